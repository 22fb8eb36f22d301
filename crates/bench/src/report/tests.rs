use std::time::Duration;

use wire::config::Class;
use wire::reason::Reason;

use super::{LoadReport, Made, Settings, Shape};
use crate::append::AppendOptions;
use crate::cpu::ThreadTime;
use crate::load::{Outcome, Sent, Tally, ThreadUse};

const SHAPE: Shape = Shape { records_per_batch: 10, content_bytes: 2_560, in_flight_wanted: 16, rate_wanted: None };

fn outcome(acks: u64, busy_ms: u64) -> Outcome {
    let mut tally = Tally::new(false);
    tally.measure(0..u64::MAX);
    for us in 1..=acks {
        tally.on_ack(Sent::at(0), us * 1_000, Class::Express);
    }
    let time = ThreadTime { busy: Duration::from_millis(busy_ms), waiting: Duration::ZERO };
    let (measured, opening) = (Duration::from_secs(2), Duration::from_millis(40));
    let used = vec![ThreadUse { time, elapsed: measured }];
    Outcome { tally, measured, opening, used, in_flight_max: 16, unsent: 0 }
}

fn report(shape: Shape, outcome: &Outcome) -> LoadReport {
    LoadReport::new(Made::here(None), Settings::Append(AppendOptions::default()), shape, outcome)
}

#[test]
fn the_json_has_the_field_names_of_the_specification_host_and_settings() {
    let json = serde_json::to_value(report(SHAPE, &outcome(2_000, 100))).unwrap();
    assert_eq!((json["acks_per_s"].as_f64(), json["records_per_s"].as_f64()), (Some(1_000.0), Some(10_000.0)));
    assert_eq!(json["bytes_per_s"].as_f64(), Some(2_560_000.0));
    for quantile in ["p50", "p90", "p99", "max"] {
        assert!(json["latency_us"][quantile].is_f64(), "{quantile}");
    }
    assert!(json["latency_us"]["p99_9"].is_null(), "2 000 samples carry no p99.9");
    assert!(json["host"]["kernel"].is_string() && json["host"]["memory_bytes"].is_u64());
    assert!(json["started_at_ms"].as_u64().is_some_and(|ms| ms > 1_600_000_000_000));
    assert_eq!(json["settings"]["measure"], "append");
    assert_eq!((&json["settings"]["window"], &json["settings"]["duration_seconds"]), (&16.into(), &10.0.into()));
    assert_eq!(json["class"], "express");
    assert!(json["warnings"].as_array().is_some_and(Vec::is_empty), "{json}");
}

#[test]
fn the_text_is_a_table_that_fits_a_terminal() {
    let text = report(SHAPE, &outcome(20_000, 100)).to_string();
    let of = |word: &str| text.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("{word}: {text}"));
    assert_eq!(of("ack ").split_whitespace().count(), 7);
    assert!(of("rate").contains("10.0 k acks/s") && of("rate").contains("25.6 MB/s"), "{text}");
    assert_eq!(of("ack ").chars().count(), of("µs").chars().count());
    assert!(of("ack ").len() <= 90 && text.lines().all(|line| line.chars().count() <= 150), "{text}");
}

#[test]
fn a_busy_generator_unsent_and_refused_appends_and_a_small_window_are_warned_of() {
    assert!(report(SHAPE, &outcome(100, 1_590)).warnings.is_empty());
    let mut all = outcome(100, 1_700);
    all.unsent = 7;
    all.in_flight_max = 8;
    (all.tally.late_by_itself, all.tally.own_lag_ns_max) = (3, 4_000_000);
    all.tally.on_refusal(Reason::ResourceExhausted, 5);
    let warnings = report(Shape { rate_wanted: Some(50.0), ..SHAPE }, &all).warnings;
    for part in [
        "busy 85 %",
        "8 appends could be in flight, not 16",
        "7 appends",
        "1 appends were refused",
        "3 appends were sent over 1 ms late",
    ] {
        assert!(warnings.iter().any(|warning| warning.contains(part)), "{part}: {warnings:?}");
    }
}
