use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{BUCKETS, CostWindow, Metered, OPS, Purpose, bucket_end, bucket_of};
use crate::store::{Fault, MemoryStore, ObjectName, ObjectPrefix, PutNonce, Span, StoreOp};

#[test]
fn operations_and_purposes_have_the_places_of_their_numbers() {
    for (place, op) in OPS.into_iter().enumerate() {
        assert_eq!(op as usize, place);
    }
    for (place, purpose) in Purpose::ALL.into_iter().enumerate() {
        assert_eq!(purpose as usize, place);
    }
}

#[test]
fn a_time_lies_under_the_end_of_its_bucket_by_no_more_than_a_quarter() {
    for micros in (4..100_000).step_by(37).chain([1 << 30, (1 << 33) + 12_345]) {
        let (time, end) = (Duration::from_micros(micros), bucket_end(bucket_of(Duration::from_micros(micros))));
        assert!(time < end && end <= time.mul_f64(1.25) + Duration::from_micros(1), "{time:?} under {end:?}");
    }
    assert_eq!((bucket_of(Duration::ZERO), bucket_of(Duration::MAX)), (0, BUCKETS - 1));
}

#[tokio::test]
async fn calls_bytes_failures_and_times_are_counted_by_purpose() {
    let inner = MemoryStore::new();
    let (store, meter) = Metered::new(Arc::new(inner.clone()));
    let chunk = ObjectName::parse("c/1/0").unwrap();
    for _ in 0..2 {
        // The second is refused, which is an answer.
        drop(store.put_if_absent(&chunk, Bytes::from_static(b"12345"), PutNonce::fresh()).await);
    }
    inner.inject(StoreOp::Get, Fault::ServerError);
    for _ in 0..2 {
        drop(store.get(&chunk, Span::Suffix(2)).await);
    }
    store.list(&ObjectPrefix::parse("m/7/").unwrap(), None, 10).await.unwrap();
    let counted: Vec<_> = meter
        .snapshot()
        .rows
        .iter()
        .map(|row| {
            assert!(row.quantile(0.5) > Duration::ZERO && row.quantile(0.5) <= row.quantile(1.0));
            (row.op, row.purpose.word(), row.calls, row.failures, row.bytes)
        })
        .collect();
    let expected = [
        (StoreOp::PutIfAbsent, "chunks", 2, 0, 5),
        (StoreOp::Get, "chunks", 2, 1, 2),
        (StoreOp::List, "index", 1, 0, 0),
    ];
    assert_eq!(counted, expected);
}

#[tokio::test]
async fn a_month_costs_what_the_price_list_says() {
    let (store, meter) = Metered::new(Arc::new(MemoryStore::new()));
    let name = ObjectName::parse("meta/cluster").unwrap();
    store.put_if_absent(&name, Bytes::new(), PutNonce::fresh()).await.unwrap();
    for _ in 0..10 {
        store.head(&name).await.unwrap();
    }
    store.delete(&name).await.unwrap();
    // Once a second for a month of 30.4 days: 2,628,000 writes and ten times as many reads.
    let cost = meter.snapshot().dollars_a_month(Duration::from_secs(1), 1_000_000_000_000);
    assert!((cost.writes - 13.14).abs() < 1e-9, "{cost:?}");
    assert!((cost.reads - 10.512).abs() < 1e-9, "{cost:?}");
    assert!((cost.storage - 23.0).abs() < 1e-9, "{cost:?}");
    assert!((cost.total() - 46.652).abs() < 1e-9, "{cost:?}");
}

#[tokio::test]
async fn an_estimate_goes_by_the_last_five_minutes_alone() {
    let (store, meter) = Metered::new(Arc::new(MemoryStore::new()));
    let name = ObjectName::parse("meta/cluster").unwrap();
    let mut window = CostWindow::default();
    let seconds = Duration::from_secs;
    assert_eq!(window.note(seconds(0), &meter.snapshot(), 0).0.total(), 0.0, "nothing is known yet");
    for _ in 0..100 {
        drop(store.head(&name).await);
    }
    let (dollars, over) = window.note(seconds(100), &meter.snapshot(), 0);
    // One a second.
    assert!((dollars.reads - 1.0512).abs() < 1e-9 && over == seconds(100), "{dollars:?} over {over:?}");
    for now in (110..=400).step_by(10) {
        window.note(seconds(now), &meter.snapshot(), 0);
    }
    let (dollars, over) = window.note(seconds(405), &meter.snapshot(), 1_000_000_000);
    assert!(dollars.reads == 0.0 && over >= seconds(300) && over < seconds(310), "{dollars:?} over {over:?}");
    assert!((dollars.total() - 0.023).abs() < 1e-9, "what is kept costs all the same: {dollars:?}");
    assert!(window.0.len() < 70, "it does not grow");
}
