use std::time::Duration;

use serde_json::{Value, json};
use wire::config::Class;
use wire::reason::Reason;

use super::{Part, merge};
use crate::append::AppendOptions;
use crate::cpu::ThreadTime;
use crate::load::{Outcome, Sent, Tally, ThreadUse};
use crate::report::{LoadReport, Made, Second, Settings, Shape};

/// A report of appends of which each took one of these times, in microseconds.
fn report(latencies_us: std::ops::Range<u64>) -> LoadReport {
    let mut tally = Tally::new(true);
    tally.measure(0..u64::MAX);
    for us in latencies_us {
        tally.on_ack(Sent::at(0), us * 1_000, Class::Express);
    }
    tally.on_refusal(Reason::ResourceExhausted, 5);
    let (measured, opening) = (Duration::from_secs(10), Duration::from_millis(40));
    let time = ThreadTime { busy: Duration::from_secs(9), waiting: Duration::ZERO };
    let used = vec![ThreadUse { time, elapsed: measured }];
    let outcome = Outcome { tally, measured, opening, used, in_flight_max: 16, unsent: 3 };
    let shape = Shape { records_per_batch: 10, content_bytes: 2_560, in_flight_wanted: 16, rate_wanted: Some(50.0) };
    let options = AppendOptions {
        rate: Some(50.0),
        start_at: Some("2026-12-01T10:00:00Z".parse().unwrap()),
        ..AppendOptions::default()
    };
    let mut report = LoadReport::new(Made::here(None), Settings::Append(options), shape, &outcome);
    let second = |at_s: u64| Second {
        at_s,
        acks: 7,
        refusals: 1,
        late_sends: 0,
        lag_us_max: at_s as f64,
        p50_us: Some(1.0),
        p99_us: Some(2.0),
        p99_9_us: None,
        max_us: (at_s > 0).then_some(9.0),
    };
    report.timeline = (0..3).map(second).collect();
    report
}

fn part(name: &str, latencies_us: std::ops::Range<u64>, change: impl Fn(&mut Value)) -> Part {
    let mut report = serde_json::to_value(report(latencies_us)).unwrap();
    change(&mut report);
    Part { name: name.to_owned(), report }
}

fn pair(change: impl Fn(&mut Value)) -> [Part; 2] {
    [part("a.json", 1..1_001, |_| ()), part("b.json", 100_001..110_001, change)]
}

#[test]
fn quantiles_are_those_of_all_samples_and_rates_add_up() {
    let own = |report: &mut Value| {
        report["settings"]["addr"] = json!("elsewhere:7781");
        report["settings"]["key_prefix"] = json!("mine");
        report["host"]["kernel"] = json!("5.15");
        report["timeline"].as_array_mut().unwrap().pop();
    };
    let merged = merge(&pair(own)).unwrap();
    assert_eq!((merged.acks, merged.latency_us.samples), (11_000, 11_000));
    assert!((merged.acks_per_s - 1_100.0).abs() < 1e-9 && (merged.records_per_s - 11_000.0).abs() < 1e-9);
    let p50 = merged.latency_us.p50.unwrap();
    assert!((p50 / 104_500.0 - 1.0).abs() < 0.002, "{p50}: no mean of two medians");
    let open_loop = merged.open_loop.as_ref().unwrap();
    assert_eq!((open_loop.rate_wanted, open_loop.unsent, open_loop.service_us.samples), (100.0, 6, 11_000));
    assert_eq!((merged.refusals["resource_exhausted"], merged.in_flight_max), (2, 32));
    // Of seconds that both tell, with what can be put together.
    let seconds: Vec<_> = merged.timeline.iter().map(|second| (second.at_s, second.acks, second.max_us)).collect();
    assert_eq!(seconds, [(0, 14, None), (1, 14, Some(9.0))]);
    assert!(merged.timeline.iter().all(|second| second.p99_us.is_none()));
    // What each had of its own host stays.
    assert_eq!((merged.generators[1].kernel.as_str(), merged.generators[1].addr.as_str()), ("5.15", "elsewhere:7781"));
    assert!(!merged.settings.contains_key("addr"));
    assert!(merged.warnings.iter().any(|it| it.starts_with("b.json: ") && it.contains("busy 90 %")), "{merged}");
    assert!(merged.to_string().contains("began at 2026-12-01T10:00:00Z"), "{merged}");
}

#[test]
fn a_merged_report_is_compared_like_any_other_and_is_written_as_a_page() {
    let merged = merge(&pair(|_| ())).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let [json, html] = ["m.json", "m.html"].map(|name| directory.path().join(name));
    merged.write(Some(&json), Some(&html)).unwrap();
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("b.json") && page.matches("<svg").count() == 3, "{page}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let compared = crate::compare::compare(&json, &json, &crate::compare::Thresholds::default()).unwrap();
    assert!(compared.rows.len() > 5 && compared.too_bad().is_empty(), "{compared}");
    let again = merge(&[Part { name: "m.json".to_owned(), report: json }, part("a.json", 1..9, |_| ())]).unwrap_err();
    assert!(again.to_string().contains("m.json"), "{again}");
}

#[test]
fn what_does_not_belong_together_is_refused_by_name() {
    let check = |change: fn(&mut Value), parts: &[&str]| {
        let error = merge(&pair(change)).unwrap_err();
        assert_eq!(error.reason(), Reason::Invalid);
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} are not told: {text}");
    };
    check(|it| it["settings"]["window"] = json!(4), &["window: 16 in a.json and 4 in b.json"]);
    check(|it| it["settings"]["record_bytes"] = json!(1), &["record_bytes", "b.json"]);
    check(|it| it["version"] = json!("9.9.9"), &["version", "9.9.9 in b.json"]);
    check(|it| it["settings"]["start_at"] = json!("2026-12-01T10:00:01Z"), &["start_at", "10:00:01Z\" in b.json"]);
    check(|it| it["settings"]["start_at"] = Value::Null, &["start_at is absent in b.json", "--start-at"]);
    check(|it| it["settings"]["measure"] = json!("net"), &["net in b.json"]);
    check(|it| it["seconds"] = json!(11.0), &["seconds", "11 in b.json"]);
    check(|it| it["histograms"]["ack"] = json!("AAAA"), &["histogram", "b.json"]);
    check(|it| drop(it.as_object_mut().unwrap().remove("histograms")), &["b.json", "missing field `histograms`"]);
    check(|it| *it = json!({"rows": []}), &["b.json"]);
    let one = part("a.json", 1..9, |_| ());
    assert!(merge(std::slice::from_ref(&one)).unwrap_err().to_string().contains("two or more"));
    let twice = [one.clone(), Part { name: "c.json".to_owned(), ..one }];
    assert!(merge(&twice).unwrap_err().to_string().contains("both a.json and c.json"));
}
