use std::time::Duration;

use super::{NetOptions, run};

fn options(connections: u16, window: u32) -> NetOptions {
    NetOptions {
        connections,
        window,
        records_per_batch: 3,
        warm_up: Duration::from_millis(50),
        duration: Duration::from_millis(300),
        ..NetOptions::default()
    }
}

#[test]
fn the_echo_acks_all_that_the_generator_sends() {
    for (connections, window) in [(1, 1), (4, 16)] {
        let report = run(&options(connections, window), &mut |_| ()).unwrap();
        assert!(report.acks > 100, "{report}");
        assert_eq!(report.in_flight_max, u64::from(connections) * u64::from(window));
        assert!((report.records_per_s / report.acks_per_s - 3.0).abs() < 1e-6);
        assert_eq!(report.latency_us.samples, report.acks);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["settings"]["measure"], "net");
        assert!(json["latency_us"]["p50"].is_f64() && json["acks_per_s"].is_f64());
    }
}

#[test]
fn an_echo_on_a_cpu_that_is_not_there_says_so() {
    let options = NetOptions { server_cpu: Some(9_999), ..options(1, 1) };
    let error = run(&options, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("9999"), "{error}");
}
