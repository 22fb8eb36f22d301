use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use wire::reason::Reason;

use super::{Objects, Op, StoreFault, StoreOptions, StoreReport, run};
use crate::error::BenchError;

/// Objects in memory, one of which can't be put.
#[derive(Default)]
struct InMemory {
    sizes: RefCell<BTreeMap<u64, usize>>,
    refused: Option<u64>,
    puts: RefCell<u64>,
}

impl Objects for InMemory {
    async fn put(&self, number: u64, bytes: usize) -> Result<(), StoreFault> {
        if self.refused == Some(number) {
            return Err(StoreFault { reason: Reason::Unavailable, why: "away".to_owned() });
        }
        *self.puts.borrow_mut() += 1;
        let before = self.sizes.borrow_mut().insert(number, bytes);
        assert_eq!(before, None, "object {number} is put once");
        Ok(())
    }

    async fn get(&self, number: u64) -> Result<usize, StoreFault> {
        Ok(self.sizes.borrow()[&number])
    }

    async fn remove(&self, number: u64) -> Result<(), StoreFault> {
        self.sizes.borrow_mut().remove(&number);
        Ok(())
    }
}

fn check(objects: &InMemory, options: &StoreOptions) -> Result<StoreReport, BenchError> {
    futures_lite::future::block_on(run(options, objects, &mut |_| ()))
}

fn options() -> StoreOptions {
    StoreOptions {
        sizes: vec![1_000, 2_000],
        depths: vec![1, 3],
        rung: Duration::from_secs(3_600),
        rung_bytes_max: 40_000,
        ..StoreOptions::ladder("memory".to_owned())
    }
}

#[test]
fn every_size_is_put_and_read_at_every_depth_and_nothing_is_left() {
    let objects = InMemory::default();
    let report = check(&objects, &options()).unwrap();
    let of = |op| report.rungs.iter().filter(move |rung| rung.op == op).map(|rung| rung.latency_us.samples);
    assert_eq!(of(Op::Put).collect::<Vec<_>>(), [40, 40, 20, 20]);
    assert_eq!(of(Op::Get).collect::<Vec<_>>(), [40, 40, 20, 20]);
    assert_eq!(*objects.puts.borrow(), 121);
    assert!(objects.sizes.borrow().is_empty());
    assert_eq!(report.nearest(Op::Put, 1_600).map(|rung| (rung.object_bytes, rung.depth)), Some((2_000, 1)));
    assert!(report.to_string().lines().count() > 9, "{report}");
}

#[test]
fn a_put_that_fails_is_told_and_what_was_put_is_removed() {
    let objects = InMemory { refused: Some(50), ..InMemory::default() };
    let error = check(&objects, &options()).unwrap_err();
    assert_eq!(error.to_string(), "a put in the store: away");
    assert_eq!(error.reason(), Reason::Unavailable);
    assert!(objects.sizes.borrow().is_empty());
}

#[test]
fn options_out_of_range_are_named() {
    let of = |options: StoreOptions| check(&InMemory::default(), &options).unwrap_err().to_string();
    assert_eq!(of(StoreOptions { sizes: vec![0], ..options() }), "sizes is 0: it must be 1 to 268435456");
    assert_eq!(of(StoreOptions { depths: vec![], ..options() }), "depths is empty: it must be at least one");
}
