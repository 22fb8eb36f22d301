use super::{Latencies, Quantiles};

fn of(range: std::ops::Range<u64>) -> Latencies {
    let mut latencies = Latencies::new();
    range.for_each(|us| latencies.record(us * 1_000));
    latencies
}

fn is_near(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found / expected - 1.0).abs() < 0.002)
}

#[test]
fn merged_quantiles_are_those_of_all_samples_and_not_a_mean() {
    let mut all = of(1..1_001);
    all.merge(&of(100_001..110_001));
    let quantiles = all.quantiles();
    assert_eq!(quantiles.samples, 11_000);
    assert!(is_near(quantiles.p50, 104_500.0), "{quantiles:?}");
    assert!(is_near(quantiles.p99_9, 109_989.0), "{quantiles:?}");
    assert!(is_near(quantiles.max, 110_000.0), "{quantiles:?}");
}

#[test]
fn a_quantile_is_withheld_below_ten_samples_beyond_it() {
    let known = |samples: u64| {
        let Quantiles { p50, p90, p99, p99_9, max, .. } = of(1..samples + 1).quantiles();
        [p50, p90, p99, p99_9, max].map(|value| value.is_some())
    };
    assert_eq!(known(0), [false; 5]);
    assert_eq!(known(19), [false, false, false, false, true]);
    assert_eq!(known(20), [true, false, false, false, true]);
    assert_eq!(known(999), [true, true, false, false, true]);
    assert_eq!(known(1_000), [true, true, true, false, true]);
    assert_eq!(known(10_000), [true; 5]);
}

#[test]
fn absent_quantiles_are_null_in_json_and_a_dash_in_text() {
    let quantiles = of(1..21).quantiles();
    let json = serde_json::to_value(quantiles).unwrap();
    assert!(json["p99_9"].is_null() && json["p50"].is_f64(), "{json}");
    let text = quantiles.to_string();
    assert_eq!(text.split_whitespace().filter(|cell| *cell == "-").count(), 4);
    assert_eq!(text.len(), Quantiles::HEADS.len());
}

#[test]
fn a_latency_past_the_range_counts_as_the_longest() {
    let mut latencies = Latencies::new();
    latencies.record(u64::MAX);
    latencies.record(0);
    assert!(is_near(latencies.quantiles().max, 3.6e9));
    assert_eq!(latencies.samples(), 2);
}

#[test]
fn what_is_encoded_is_read_back_and_anything_else_is_refused() {
    let latencies = of(1..5_001);
    let back = Latencies::decoded(&latencies.encoded()).unwrap();
    assert_eq!((back.quantiles(), back.distribution()), (latencies.quantiles(), latencies.distribution()));
    assert_eq!(Latencies::decoded(&Latencies::new().encoded()).unwrap().samples(), 0);
    for wrong in ["", "AAAA", "not base64", &latencies.encoded()[..40]] {
        assert!(Latencies::decoded(wrong).is_err(), "{wrong}");
    }
}
