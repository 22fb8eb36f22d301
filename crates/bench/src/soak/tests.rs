use std::time::Duration;

use super::{SoakOptions, SoakReport, Trend, Window, run};
use crate::append::AppendOptions;
use crate::error::BenchError;
use crate::tests::scripted::{Fault, Scripted};

fn options(server: &Scripted) -> SoakOptions {
    let base = SoakOptions::default();
    SoakOptions {
        load: AppendOptions {
            addr: server.addr.clone(),
            classes: vec![wire::config::Class::Express],
            streams: 4,
            connections: 2,
            rate: Some(100.0),
            ..base.load
        },
        duration: Duration::from_millis(2_400),
        window: Duration::from_secs(1),
        warm_up: Duration::ZERO,
        witnesses: 2,
        pid: Some(std::process::id()),
        ..base
    }
}

fn check(fault: Fault) -> (Result<SoakReport, BenchError>, Vec<Window>) {
    let server = Scripted::start(fault, 16);
    let mut told = Vec::new();
    let report = run(&options(&server), None, &mut |window| told.push(window.clone()));
    (report, told)
}

#[test]
fn every_window_is_told_and_what_is_too_short_is_not_judged() {
    let (report, told) = check(Fault::None);
    let report = report.unwrap();
    assert_eq!(report.windows, told);
    assert_eq!(told.len(), 2);
    // A second of the load is told once it is over, so that the first window of a second may be without.
    assert!(told[1].acks_per_s > 50.0 && told.iter().all(|window| window.memory_bytes.is_some()), "{told:?}");
    let sum = |of: fn(&Window) -> u64| told.iter().map(of).sum::<u64>();
    assert!(sum(|window| window.records_verified) > 0 && sum(|window| window.records_read) > 0, "{told:?}");
    assert!(sum(|window| window.trims) > 0 && sum(|window| window.churned) > 0, "{told:?}");
    assert!(report.verdicts.iter().all(|verdict| verdict.trend == Trend::TooShort), "{report}");
    assert_eq!(Window::HEADS.chars().count(), told[0].to_string().chars().count(), "{}", told[0]);
}

#[test]
fn a_record_that_is_not_what_was_acked_fails_the_soak() {
    let (report, _) = check(Fault::Unread(0));
    let error = report.unwrap_err();
    assert!(error.to_string().contains("where record") || matches!(error, BenchError::Seam { .. }), "{error}");
}

#[test]
fn options_that_contradict_each_other_are_refused_by_name() {
    let server = Scripted::start(Fault::None, 16);
    let of = |options: SoakOptions| run(&options, None, &mut |_| ()).unwrap_err().to_string();
    assert!(of(SoakOptions { warm_up: Duration::from_secs(9), ..options(&server) }).starts_with("warm_up"));
    assert!(of(SoakOptions { window: Duration::from_secs(9), ..options(&server) }).starts_with("window"));
    let load = AppendOptions { rate: None, ..options(&server).load };
    assert!(of(SoakOptions { load, ..options(&server) }).starts_with("rate"));
}
