//! What did each second of a run see, over all threads?

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::latency::Latencies;
use crate::progress::as_f64;
use crate::report::Second;

/// How long a slice is.
pub(crate) const SLICE_NS: u64 = 1_000_000_000;

/// A second of a load. Latencies have two digits, and count in the second in which their acks came.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    /// Which second since the load began.
    pub(crate) number: u64,
    /// Acks that came in it.
    pub(crate) acks: u64,
    /// Refusals that came in it.
    pub(crate) refusals: u64,
    /// Sends in it that were late.
    pub(crate) late_sends: u64,
    /// Longest time that a send came after its due time.
    pub(crate) lag_ns_max: u64,
    /// From the due time to the ack.
    pub(crate) latency: Latencies,
}

impl Slice {
    /// Nothing yet.
    pub(crate) fn new(number: u64) -> Self {
        Self { number, acks: 0, refusals: 0, late_sends: 0, lag_ns_max: 0, latency: Latencies::coarse() }
    }

    /// Adds what another thread saw, or another second.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.acks += other.acks;
        self.refusals += other.refusals;
        self.late_sends += other.late_sends;
        self.lag_ns_max = self.lag_ns_max.max(other.lag_ns_max);
        self.latency.merge(&other.latency);
    }

    /// Takes what there is and goes on with the next second.
    pub(crate) fn cut(&mut self) -> Self {
        let next = Self::new(self.number + 1);
        std::mem::replace(self, next)
    }

    /// What it comes to.
    pub(crate) fn second(&self) -> Second {
        let quantiles = self.latency.quantiles();
        Second {
            at_s: self.number,
            acks: self.acks,
            refusals: self.refusals,
            late_sends: self.late_sends,
            lag_us_max: as_f64(self.lag_ns_max) / 1e3,
            p50_us: quantiles.p50,
            p99_us: quantiles.p99,
            p99_9_us: quantiles.p99_9,
            max_us: quantiles.max,
        }
    }
}

/// Where the threads leave their slices, and where they are put together.
#[derive(Debug)]
pub(super) struct Slices {
    of_threads: Vec<Mutex<VecDeque<Slice>>>,
}

impl Slices {
    pub(super) fn new(threads: u16) -> Self {
        Self { of_threads: (0..threads).map(|_| Mutex::default()).collect() }
    }

    /// Leaves a slice of a thread, which the watch of the run takes within a fraction of a second.
    pub(super) fn leave(&self, thread: u16, slice: Slice) {
        let slices = &self.of_threads[usize::from(thread)];
        slices.lock().unwrap_or_else(PoisonError::into_inner).push_back(slice);
    }

    /// Adds what the threads have left to what is put together.
    pub(super) fn gather(&self, into: &mut Gathered) {
        for slices in &self.of_threads {
            let left = std::mem::take(&mut *slices.lock().unwrap_or_else(PoisonError::into_inner));
            for slice in left {
                into.add(slice);
            }
        }
    }
}

/// Slices that are being put together.
#[derive(Debug, Default)]
pub(super) struct Gathered(BTreeMap<u64, (usize, Slice)>);

impl Gathered {
    fn add(&mut self, slice: Slice) {
        match self.0.get_mut(&slice.number) {
            Some((threads, all)) => {
                *threads += 1;
                all.merge(&slice);
            }
            None => _ = self.0.insert(slice.number, (1, slice)),
        }
    }

    /// The next slice that all threads have left, or, at the end of a run, the next one at all.
    pub(super) fn next(&mut self, threads: usize, is_over: bool) -> Option<Slice> {
        let first = self.0.first_entry()?;
        (is_over || first.get().0 == threads).then(|| first.remove().1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Gathered, Slice, Slices};

    fn slice(number: u64, acks: u64) -> Slice {
        let mut slice = Slice { acks, ..Slice::new(number) };
        (0..acks).for_each(|at| slice.latency.record((at + 1) * 1_000));
        slice
    }

    #[test]
    fn a_second_is_told_once_every_thread_has_left_it() {
        let slices = Slices::new(2);
        let mut gathered = Gathered::default();
        slices.leave(0, slice(0, 10));
        slices.leave(0, slice(1, 20));
        slices.gather(&mut gathered);
        assert!(gathered.next(2, false).is_none());
        slices.leave(1, slice(0, 30));
        slices.gather(&mut gathered);
        let first = gathered.next(2, false).unwrap();
        assert_eq!((first.number, first.acks, first.latency.samples()), (0, 40, 40));
        assert!(gathered.next(2, false).is_none());
        assert_eq!(gathered.next(2, true).map(|slice| slice.second().acks), Some(20));
        assert!(gathered.next(2, true).is_none());
    }
}
