use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::conformance::{self, Case};
use super::{
    Effect, Fault, Latency, LocalDirectory, MemoryStore, ObjectName, ObjectPrefix, PutNonce, Rule, Span, Store,
    StoreError, StoreOp, When,
};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), future).await.unwrap() })
}

fn name(text: &str) -> ObjectName {
    ObjectName::parse(text).unwrap()
}

fn report(cases: &[Case]) -> (usize, String) {
    let broken = cases.iter().filter(|case| case.outcome.is_err()).count();
    let lines: Vec<_> = cases.iter().map(Case::to_string).collect();
    (broken, lines.join("\n"))
}

#[test]
fn the_memory_store_conforms() {
    let (broken, report) = report(&block_on(conformance::check(Arc::new(MemoryStore::new()), |_| {})));
    assert_eq!(broken, 0, "{report}");
}

#[test]
fn the_local_directory_conforms_for_two_openers_at_once() {
    let root = tempfile::tempdir().unwrap();
    let (one, two) = (LocalDirectory::open(root.path()).unwrap(), LocalDirectory::open(root.path()).unwrap());
    let (first, second) = block_on(async {
        tokio::join!(conformance::check(Arc::new(one), |_| {}), conformance::check::<dyn Store>(Arc::new(two), |_| {}))
    });
    for cases in [first, second] {
        let (broken, report) = report(&cases);
        assert_eq!(broken, 0, "{report}");
    }
}

#[test]
fn the_suite_finds_out_a_store_that_ignores_conditions() {
    let lies = [
        (StoreOp::PutIfAbsent, "a second create is refused and changes nothing"),
        (StoreOp::PutIfAbsent, "a race to create has one winner"),
        (StoreOp::PutIfMatch, "only the current version is replaced"),
        (StoreOp::PutIfMatch, "a race of replacements loses none"),
        (StoreOp::DeleteIfMatch, "only the current version is removed"),
    ];
    for (op, promise) in lies {
        let store = MemoryStore::seeded(1);
        store.ignore_conditions_of(op);
        // Without it each operation runs to its end before the next, and nobody races.
        store.set_latency(Latency { p50: Duration::from_micros(200), p99: Duration::from_millis(1) });
        let cases = block_on(conformance::check(Arc::new(store), |_| {}));
        let case = cases.iter().find(|case| case.name == promise).unwrap();
        assert!(case.outcome.is_err(), "{op} is carried out whatever its condition, and yet: {case}");
        assert!(cases[0].outcome.is_ok(), "{}", cases[0]);
    }
}

#[test]
fn the_suite_finds_out_damaged_bodies_and_a_store_that_is_read_only() {
    for fault in [Fault::Truncated, Fault::Flipped] {
        let store = MemoryStore::new();
        store.add(Rule::new(fault).when(When::Nth(1)));
        let cases = block_on(conformance::check(Arc::new(store), |_| {}));
        assert!(cases[0].outcome.is_err(), "{fault:?}: {}", cases[0]);
    }
    let store = MemoryStore::new();
    store.set_read_only(true);
    let (broken, report) = report(&block_on(conformance::check(Arc::new(store), |_| {})));
    assert!(broken > 10 && report.contains("give nova's user read and write access"), "{report}");
}

#[test]
fn a_store_that_is_slow_and_loses_answers_of_replacements_conforms() {
    let store = MemoryStore::seeded(3);
    store.set_latency(Latency { p50: Duration::from_micros(100), p99: Duration::from_millis(1) });
    for fault in [Fault::AfterApply, Fault::BeforeApply, Fault::ServerError] {
        store.add(Rule::new(fault).of(StoreOp::PutIfMatch).with("/count").when(When::Chance(0.1)));
    }
    let (broken, report) = report(&block_on(conformance::check(Arc::new(store), |_| {})));
    assert_eq!(broken, 0, "{report}");
}

#[test]
fn a_late_put_is_judged_when_it_arrives() {
    let store = MemoryStore::new();
    block_on(async {
        let (free, taken) = (name("free"), name("taken"));
        let late = Fault::Late(Duration::from_millis(20));
        for key in [&free, &taken] {
            store.inject(StoreOp::PutIfAbsent, late);
            let given_up = store.put_if_absent(key, Bytes::from_static(b"late"), PutNonce::fresh()).await;
            assert_eq!(given_up.unwrap_err().effect(), Effect::Unknown);
            assert!(matches!(store.head(key).await, Err(StoreError::NotFound { .. })));
        }
        store.put_if_absent(&taken, Bytes::from_static(b"first"), PutNonce::fresh()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert_eq!(store.get(&free, Span::Whole).await.unwrap().body, "late");
        assert_eq!(store.get(&taken, Span::Whole).await.unwrap().body, "first");
    });
}

#[test]
fn a_hung_operation_never_answers_and_changes_nothing() {
    let store = MemoryStore::new();
    block_on(async {
        store.inject(StoreOp::PutIfAbsent, Fault::Hang);
        let key = name("hung");
        let put = store.put_if_absent(&key, Bytes::new(), PutNonce::fresh());
        assert!(tokio::time::timeout(Duration::from_millis(20), put).await.is_err());
        assert_eq!((store.objects(), store.bytes()), (0, 0));
    });
}

#[test]
fn bytes_changed_behind_the_back_of_nova_keep_their_version() {
    let store = MemoryStore::new();
    block_on(async {
        let key = name("rotten");
        let version = store.put_if_absent(&key, Bytes::from_static(b"good"), PutNonce::fresh()).await.unwrap();
        assert!(store.tamper(&key, Bytes::from_static(b"bad")) && !store.tamper(&name("absent"), Bytes::new()));
        let object = store.get(&key, Span::Whole).await.unwrap();
        assert_eq!((object.body, object.meta.version), (Bytes::from_static(b"bad"), version));
    });
}

#[test]
fn names_that_no_store_can_keep_are_refused() {
    let long = "x".repeat(ObjectName::SEGMENT_BYTES_MAX + 1);
    let many = vec!["x"; ObjectName::BYTES_MAX].join("/");
    for bad in ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\0b", "a\nb", &long, &many] {
        assert!(ObjectName::parse(bad).is_err(), "{bad:?}");
    }
    for good in ["a", "a/b", "...", "a/.b", "%", "é/\u{1F980}", &long[1..]] {
        assert_eq!(name(good).as_str(), good);
    }
}

#[test]
fn a_prefix_may_be_empty_or_end_in_a_slash() {
    for good in ["", "a", "a/", "a/b", "a/b/"] {
        assert_eq!(ObjectPrefix::parse(good).unwrap().as_str(), good);
    }
    for bad in ["/", "a//", "../"] {
        assert!(ObjectPrefix::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_span_is_cut_at_the_end_and_never_reversed() {
    assert_eq!(Span::Whole.within(0), Some(0..0));
    assert_eq!(Span::Suffix(3).within(0), Some(0..0));
    assert_eq!(Span::Range { start: 0, end: 1 }.within(0), None);
    assert_eq!(Span::Range { start: 5, end: 2 }.within(9), Some(5..5));
    assert_eq!(Span::Range { start: 5, end: u64::MAX }.within(9), Some(5..9));
}

#[test]
fn a_lost_response_is_told_from_a_lost_request_by_reading_back() {
    let store = MemoryStore::new();
    block_on(async {
        let (lost, late) = (name("lost"), name("late"));
        store.inject(StoreOp::PutIfAbsent, Fault::BeforeApply);
        store.inject(StoreOp::PutIfAbsent, Fault::AfterApply);
        for key in [&lost, &late] {
            let answer = store.put_if_absent(key, Bytes::from_static(b"x"), PutNonce::fresh()).await;
            assert_eq!(answer.unwrap_err().effect(), Effect::Unknown);
        }
        assert!(matches!(store.head(&lost).await, Err(StoreError::NotFound { .. })));
        assert_eq!(store.head(&late).await.unwrap().size_bytes, 1);
    });
}

#[test]
fn held_operations_go_on_one_a_step() {
    let store = MemoryStore::new();
    block_on(async {
        store.hold();
        let put = |key: &'static str| {
            let store = store.clone();
            tokio::spawn(async move { store.put_if_absent(&name(key), Bytes::new(), PutNonce::fresh()).await })
        };
        let (first, second) = (put("first"), put("second"));
        while store.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        store.step();
        first.await.unwrap().unwrap();
        assert!(!second.is_finished());
        store.release();
        second.await.unwrap().unwrap();
        store.head(&name("second")).await.unwrap();
    });
}
