//! Does the generator speak the protocol, and does it see a server that breaks a promise?

pub(crate) mod scripted;

use std::time::{Duration, SystemTime};

use wire::config::Class;
use wire::reason::Reason;

use crate::append::{self, AppendOptions};
use crate::error::BenchError;
use crate::report::LoadReport;
use crate::start_at::StartAt;
use crate::subscribe::{self, SubscribeOptions};
use crate::{load, progress::Step};

use scripted::{Fault, Scripted};

const WINDOW: u32 = 16;

fn options(server: &Scripted) -> AppendOptions {
    AppendOptions {
        addr: server.addr.clone(),
        window: 4,
        records_per_batch: 3,
        record_bytes: 100,
        warm_up: Duration::from_millis(30),
        duration: Duration::from_millis(200),
        ..AppendOptions::default()
    }
}

fn run(options: &AppendOptions) -> Result<LoadReport, BenchError> {
    append::run(options, None, &mut |_| ())
}

fn run_against(fault: Fault) -> Result<LoadReport, BenchError> {
    run(&options(&Scripted::start(fault, WINDOW)))
}

#[test]
fn a_server_that_keeps_its_promises_is_measured() {
    let server = Scripted::start(Fault::None, WINDOW);
    let report = run(&options(&server)).unwrap();
    assert!(report.acks > 50, "{report}");
    assert_eq!((report.class, report.in_flight_max), (Some("express"), 4));
    assert_eq!(report.latency_us.samples, report.acks);
    assert!((report.bytes_per_s / report.acks_per_s - 300.0).abs() < 1e-6);
    assert!(server.ends()[0] >= 3 * report.acks);
    assert_eq!(server.pongs(), 1);
}

#[test]
fn streams_are_shared_out_over_connections_and_threads() {
    let server = Scripted::start(Fault::None, WINDOW);
    let streams = AppendOptions { streams: 700, connections: 2, threads: 2, ..options(&server) };
    run(&streams).unwrap();
    let ends = server.ends();
    assert_eq!(ends.len(), 700);
    let (least, most) = (ends.iter().min().unwrap(), ends.iter().max().unwrap());
    assert!(*least > 0 && *most > 0, "every stream has its turn: {least} to {most}");
}

#[test]
fn several_connections_append_to_one_stream() {
    let server = Scripted::start(Fault::None, WINDOW);
    let shared = AppendOptions { connections: 3, ..options(&server) };
    let report = run(&shared).unwrap();
    assert_eq!((server.ends().len(), report.in_flight_max), (1, 12));
}

#[test]
fn one_shots_reach_every_stream_once() {
    let server = Scripted::start(Fault::None, WINDOW);
    let one_shots = AppendOptions { streams: 1_000, connections: 3, one_shot: true, ..options(&server) };
    let report = run(&one_shots).unwrap();
    assert_eq!(server.ends(), vec![3; 1_000]);
    assert_eq!((report.acks, report.latency_us.samples), (1_000, 1_000));
    assert!(report.seconds > 0.0 && report.acks_per_s > 0.0);
}

#[test]
fn the_window_of_the_server_bounds_that_of_the_generator() {
    let server = Scripted::start(Fault::None, 2);
    let report = run(&options(&server)).unwrap();
    assert_eq!(report.in_flight_max, 2);
    assert!(report.warnings.iter().any(|warning| warning.contains("not 4")), "{report}");
}

#[test]
fn a_gap_and_a_double_fail_the_run_and_the_report_is_kept() {
    for (fault, what) in
        [(Fault::Gap(20), "starts at sequence number 58 where 57 was due"), (Fault::Double(20), "not in flight")]
    {
        let error = run_against(fault).unwrap_err();
        let BenchError::Violations { violations, first, report } = &error else { panic!("{error}") };
        assert_eq!(*violations, 1);
        assert!(first.contains(what), "{first}");
        assert!(report.acks > 0);
    }
}

#[test]
fn a_server_that_closes_says_go_or_ends_a_session_fails_the_run() {
    assert!(matches!(run_against(Fault::Close(30)), Err(BenchError::Closed { in_flight: 1.., .. })));
    assert!(matches!(run_against(Fault::GoAway(30)), Err(BenchError::GoAway { .. })));
    let ended = run_against(Fault::EndSession(30)).unwrap_err();
    assert!(matches!(ended, BenchError::Ended { handle: 1_000, .. }), "{ended}");
    assert_eq!(ended.reason(), Reason::ResourceExhausted);
}

#[test]
fn a_session_that_is_refused_fails_the_run_with_the_reason() {
    let error = run_against(Fault::RefuseOpens).unwrap_err();
    assert_eq!(error.reason(), Reason::NotFound);
    assert_eq!(error.to_string(), "opening a session was refused: not_found: no such bucket");
}

#[test]
fn refused_appends_are_counted_by_reason_and_break_nothing() {
    let report = run_against(Fault::RefuseEvery(10)).unwrap();
    assert!(report.refusals["resource_exhausted"] > 0 && report.acks > 0);
    assert!(report.to_string().contains("× resource_exhausted"));
}

#[test]
fn appends_that_get_no_answer_fail_the_run() {
    let server = Scripted::start(Fault::Silence(30), WINDOW);
    let mut load = options(&server).load().unwrap();
    load.drain_max = Duration::from_millis(100);
    let error = load::run(&load, &mut |_| (), &mut |_| ()).unwrap_err();
    assert!(matches!(error, BenchError::Unanswered { appends: 4, .. }), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let server = Scripted::start(Fault::None, WINDOW);
    let absent = AppendOptions { addr: "127.0.0.1:1".to_owned(), ..options(&server) };
    let error = run(&absent).unwrap_err();
    assert!(error.to_string().starts_with("127.0.0.1:1 can't be reached"), "{error}");
}

#[test]
fn nothing_is_sent_before_its_time_and_a_time_that_was_missed_is_told() {
    let server = Scripted::start(Fault::None, WINDOW);
    let began = SystemTime::now();
    // Later where the connections were not open in time.
    let report = [1, 5, 25].into_iter().find_map(|seconds| {
        let at = StartAt::of(SystemTime::now() + Duration::from_secs(seconds));
        match run(&AppendOptions { start_at: Some(at), ..options(&server) }) {
            Err(BenchError::StartMissed { .. }) => None,
            outcome => Some((at, outcome.unwrap())),
        }
    });
    let (at, report) = report.unwrap();
    assert!(report.acks > 0 && report.opening_seconds < 25.0, "{report}");
    assert!(at.ahead_of(began).is_ok() && at.ahead_of(SystemTime::now()).is_err(), "it waited for {at}");

    let past = StartAt::of_unix_ms(1_000);
    let error = run(&AppendOptions { start_at: Some(past), ..options(&server) }).unwrap_err();
    assert!(matches!(error, BenchError::StartPast { .. }) && error.reason() == Reason::Invalid, "{error}");
    let mut late = options(&server).load().unwrap();
    late.start_at = Some(past);
    let error = load::run(&late, &mut |_| (), &mut |_| ()).unwrap_err();
    assert!(matches!(error, BenchError::StartMissed { .. }), "{error}");
    assert!(error.to_string().starts_with("the start 1970-01-01T00:00:01Z came "), "{error}");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let server = Scripted::start(Fault::None, WINDOW);
    let duration = Duration::from_millis(500);
    let open = AppendOptions { rate: Some(400.0), connections: 2, threads: 2, duration, ..options(&server) };
    let report = run(&open).unwrap();
    let open_loop = report.open_loop.as_ref().unwrap();
    assert_eq!((report.latency_us.samples, open_loop.unsent), (200, 0), "{report}");
    assert_eq!(open_loop.service_us.samples, 200);
}

#[test]
fn a_stall_weighs_on_all_that_was_due_during_it() {
    let server = Scripted::start(Fault::Stall(100, Duration::from_millis(300)), WINDOW);
    let open = AppendOptions {
        rate: Some(1_000.0),
        window: 1,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(600),
        ..options(&server)
    };
    let report = run(&open).unwrap();
    let open_loop = report.open_loop.as_ref().unwrap();
    // A third of the appends was due while the server stood still; one alone was in its hands.
    assert!(report.latency_us.p90.unwrap() > 100_000.0, "{report}");
    assert!(open_loop.service_us.p90.unwrap() < 100_000.0, "{report}");
    assert!(open_loop.late_sends > 100 && open_loop.lag_us_max > 200_000.0, "{report}");
}

#[test]
fn a_rate_past_the_server_s_is_said_to_be_unsent() {
    let server = Scripted::start(Fault::Stall(10, Duration::from_millis(500)), WINDOW);
    let open = AppendOptions { rate: Some(10_000.0), window: 1, ..options(&server) };
    let report = run(&open).unwrap();
    assert!(report.open_loop.as_ref().unwrap().unsent > 1_000, "{report}");
    assert!(report.warnings.iter().any(|warning| warning.contains("never sent")), "{report}");
}

#[test]
fn progress_comes_about_once_a_second() {
    let server = Scripted::start(Fault::None, WINDOW);
    let long = AppendOptions { duration: Duration::from_millis(1_500), ..options(&server) };
    let mut told = Vec::new();
    append::run(&long, None, &mut |progress| told.push(*progress)).unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].step, Step::Measuring);
    assert!(told[0].answers > 0 && told[0].answers_per_s > 0.0);
    assert!(told[0].percent.is_some_and(|percent| (20.0..100.0).contains(&percent)), "{told:?}");
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let server = Scripted::start(Fault::None, WINDOW);
    let base = options(&server);
    let bad = [
        ("streams", AppendOptions { streams: 0, ..base.clone() }),
        ("connections", AppendOptions { connections: 0, ..base.clone() }),
        ("window", AppendOptions { window: 0, ..base.clone() }),
        ("threads", AppendOptions { threads: 2, ..base.clone() }),
        ("record_bytes", AppendOptions { record_bytes: 0, ..base.clone() }),
        ("record_bytes", AppendOptions { record_bytes: (1 << 20) + 1, ..base.clone() }),
        ("records_per_batch", AppendOptions { records_per_batch: 1_001, ..base.clone() }),
        ("records_per_batch", AppendOptions { records_per_batch: 3, record_bytes: 400_000, ..base.clone() }),
        ("rate", AppendOptions { rate: Some(0.0), ..base.clone() }),
        ("rate", AppendOptions { rate: Some(1.0), one_shot: true, ..base.clone() }),
        ("arrivals", AppendOptions { arrivals: crate::arrivals::Arrivals::Poisson, ..base.clone() }),
        ("duration", AppendOptions { duration: Duration::ZERO, ..base.clone() }),
        ("active_share", AppendOptions { active_share: 0.0, ..base.clone() }),
        ("active_share", AppendOptions { active_share: 0.5, one_shot: true, ..base.clone() }),
        ("classes", AppendOptions { classes: vec![Class::Express, Class::Express], ..base.clone() }),
    ];
    for (name, options) in bad {
        let error = run(&options).unwrap_err();
        assert!(error.to_string().starts_with(name), "{name}: {error}");
        assert_eq!(error.reason(), Reason::Invalid);
    }
    let named = AppendOptions { bucket: Some("No".to_owned()), ..base };
    assert_eq!(run(&named).unwrap_err().reason(), Reason::Invalid);
}

fn live(server: &Scripted) -> SubscribeOptions {
    SubscribeOptions {
        addr: server.addr.clone(),
        warm_up: Duration::from_millis(50),
        duration: Duration::from_millis(250),
        ..SubscribeOptions::default()
    }
}

#[test]
fn options_of_subscribers_that_make_no_sense_are_refused_by_name() {
    let server = Scripted::start(Fault::None, WINDOW);
    let bad = [
        ("record_bytes", SubscribeOptions { record_bytes: 15, ..live(&server) }),
        ("subscribers", SubscribeOptions { subscribers: 0, ..live(&server) }),
        ("rate", SubscribeOptions { rate: f64::NAN, ..live(&server) }),
        ("duration", SubscribeOptions { duration: Duration::ZERO, ..live(&server) }),
        ("sse", SubscribeOptions { sse: Some("http://127.0.0.1:1".to_owned()), ..live(&server) }),
        ("sse", SubscribeOptions { sse: Some("127.0.0.1".to_owned()), ..live(&server) }),
        (
            "key_prefix",
            SubscribeOptions { sse: Some(server.addr.clone()), key_prefix: "a/b".to_owned(), ..live(&server) },
        ),
    ];
    for (name, options) in bad {
        let error = subscribe::run(&options, &mut |_| ()).unwrap_err();
        assert!(error.to_string().starts_with(name), "{name}: {error}");
    }
}

#[test]
fn live_subscribers_get_every_record_and_its_delay() {
    let server = Scripted::start(Fault::None, WINDOW);
    let report = subscribe::run(&SubscribeOptions { subscribers: 3, ..live(&server) }, &mut |_| ()).unwrap();
    assert_eq!((report.records, server.ends()), (150, vec![150]));
    // Those that are due after 50 ms, at 500 a second.
    assert_eq!((report.ack_us.samples, report.end_to_end_us.samples), (125, 375), "{report}");
    let json = serde_json::to_value(&report).unwrap();
    assert!(json["end_to_end_us"]["p50"].is_f64() && json["behind_ack_us"].is_f64(), "{json}");
}

#[test]
fn a_rate_that_acks_do_not_keep_up_with_ends_in_time_and_is_told() {
    let server = Scripted::start(Fault::None, WINDOW);
    let options = SubscribeOptions { rate: 1e12, duration: Duration::from_millis(50), ..live(&server) };
    let report = subscribe::run(&options, &mut |_| ()).unwrap();
    assert!(report.unsent > 0 && report.warnings[0].contains("never sent"), "{report}");
    assert_eq!(server.ends(), vec![report.records]);
}

#[test]
fn a_record_that_one_of_the_subscribers_misses_fails_the_run() {
    let server = Scripted::start(Fault::Undelivered(40), WINDOW);
    let error = subscribe::run(&SubscribeOptions { subscribers: 3, ..live(&server) }, &mut |_| ()).unwrap_err();
    assert!(matches!(error, BenchError::Seam { expected: 39, found: 40 }), "{error}");
}
