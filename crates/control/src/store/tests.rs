use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::conformance::{self, Case};
use super::{
    Effect, Fault, LocalDirectory, MemoryStore, ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError, StoreOp,
    Version,
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
    let (broken, report) = report(&block_on(conformance::check(Arc::new(MemoryStore::new()))));
    assert_eq!(broken, 0, "{report}");
}

#[test]
fn the_local_directory_conforms_for_two_openers_at_once() {
    let root = tempfile::tempdir().unwrap();
    let (one, two) = (LocalDirectory::open(root.path()).unwrap(), LocalDirectory::open(root.path()).unwrap());
    let (first, second) = block_on(async {
        tokio::join!(conformance::check(Arc::new(one)), conformance::check::<dyn Store>(Arc::new(two)))
    });
    for cases in [first, second] {
        let (broken, report) = report(&cases);
        assert_eq!(broken, 0, "{report}");
    }
}

/// A store that ignores conditions, as some do.
#[derive(Debug)]
struct Heedless(MemoryStore);

impl Store for Heedless {
    fn put_if_absent<'a>(
        &'a self,
        name: &'a ObjectName,
        body: Bytes,
        nonce: PutNonce,
    ) -> super::StoreFuture<'a, Version> {
        Box::pin(async move {
            self.0.delete(name).await?;
            self.0.put_if_absent(name, body, nonce).await
        })
    }

    fn put_if_match<'a>(
        &'a self,
        name: &'a ObjectName,
        _expected: &'a Version,
        body: Bytes,
        nonce: PutNonce,
    ) -> super::StoreFuture<'a, Version> {
        self.put_if_absent(name, body, nonce)
    }

    fn get<'a>(&'a self, name: &'a ObjectName, span: Span) -> super::StoreFuture<'a, super::Object> {
        self.0.get(name, span)
    }

    fn head<'a>(&'a self, name: &'a ObjectName) -> super::StoreFuture<'a, super::ObjectMeta> {
        self.0.head(name)
    }

    fn delete<'a>(&'a self, name: &'a ObjectName) -> super::StoreFuture<'a, ()> {
        self.0.delete(name)
    }

    fn delete_if_match<'a>(&'a self, name: &'a ObjectName, _expected: &'a Version) -> super::StoreFuture<'a, ()> {
        self.0.delete(name)
    }

    fn list<'a>(
        &'a self,
        prefix: &'a ObjectPrefix,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> super::StoreFuture<'a, super::ListPage> {
        self.0.list(prefix, after, limit)
    }
}

#[test]
fn a_store_that_ignores_conditions_is_found_out() {
    let cases = block_on(conformance::check(Arc::new(Heedless(MemoryStore::new()))));
    for promise in ["a second create is refused and changes nothing", "only the current version is replaced"] {
        let case = cases.iter().find(|case| case.name == promise).unwrap();
        assert!(case.outcome.is_err(), "{case}");
    }
    assert!(cases[0].outcome.is_ok(), "{}", cases[0]);
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
