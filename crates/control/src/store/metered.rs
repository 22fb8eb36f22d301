//! How often, how fast and for how much money is the store asked, and what for?

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use failpoints::{Obstacle, Point, at_store};

use super::{
    Effect, ListPage, Object, ObjectMeta, ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError, StoreFuture,
    StoreOp, Trouble, Version,
};

// List prices of S3 Standard in us-east-1, in dollars, as of November 2025: https://aws.amazon.com/s3/pricing/
/// Of a PUT, a COPY, a POST or a LIST.
const DOLLARS_A_WRITE: f64 = 0.005 / 1_000.0;
/// Of a GET, and of every other request but a DELETE, which is free.
const DOLLARS_A_READ: f64 = 0.0004 / 1_000.0;
/// Of a GB kept for a month: the first 50 TB, in decimal bytes.
const DOLLARS_A_GB_MONTH: f64 = 0.023;

const MONTH: Duration = Duration::from_secs(365 * 86_400 / 12);

const OPS: [StoreOp; 7] = [
    StoreOp::PutIfAbsent,
    StoreOp::PutIfMatch,
    StoreOp::Get,
    StoreOp::Head,
    StoreOp::Delete,
    StoreOp::DeleteIfMatch,
    StoreOp::List,
];

/// What an object is for, as the first part of its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// The cluster and its buckets: `meta`.
    Meta,
    /// Leases of stars: `stars`.
    Stars,
    /// Chunks of channels: `c`.
    Chunks,
    /// Bundles: `d`.
    Bundles,
    /// The index: `m`.
    Index,
    /// The conformance suite: `check`.
    Check,
    /// Anything else.
    Other,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 7] =
        [Self::Meta, Self::Stars, Self::Chunks, Self::Bundles, Self::Index, Self::Check, Self::Other];

    /// Of the object, or the listing, of this name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name.split('/').next() {
            Some("meta") => Self::Meta,
            Some("stars") => Self::Stars,
            Some("c") => Self::Chunks,
            Some("d") => Self::Bundles,
            Some("m") => Self::Index,
            Some("check") => Self::Check,
            _ => Self::Other,
        }
    }

    /// As metrics and tables name it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Stars => "stars",
            Self::Chunks => "chunks",
            Self::Bundles => "bundles",
            Self::Index => "index",
            Self::Check => "check",
            Self::Other => "other",
        }
    }
}

/// Four buckets for each doubling of a time in microseconds.
const BUCKETS: usize = 4 * 40;

fn bucket_of(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(4);
    let doublings = micros.ilog2();
    let quarter = (micros >> (doublings - 2)) & 3;
    let bucket = u64::from(doublings - 2) * 4 + quarter;
    usize::try_from(bucket).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}

/// The shortest time past a bucket.
fn bucket_end(bucket: usize) -> Duration {
    let (doublings, quarter) = (bucket / 4, bucket as u64 % 4);
    Duration::from_micros((4 + quarter + 1) << doublings)
}

#[derive(Debug)]
struct Cell {
    calls: AtomicU64,
    failures: AtomicU64,
    bytes: AtomicU64,
    times: [AtomicU64; BUCKETS],
}

impl Default for Cell {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self { calls: zero(), failures: zero(), bytes: zero(), times: std::array::from_fn(|_| zero()) }
    }
}

impl Cell {
    fn finish(&self, began: Instant, bytes: u64, is_failure: bool) {
        self.times[bucket_of(began.elapsed())].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.failures.fetch_add(u64::from(is_failure), Ordering::Relaxed);
    }
}

/// The counters of a [`Metered`] store. Reading them never waits, and costs its users nothing.
#[derive(Debug)]
pub struct StoreMeter {
    cells: [[Cell; Purpose::ALL.len()]; OPS.len()],
}

impl StoreMeter {
    fn cell(&self, op: StoreOp, target: &str) -> &Cell {
        &self.cells[op as usize][Purpose::of(target) as usize]
    }

    /// What was counted so far; rows that nothing was asked of are left out.
    #[must_use]
    pub fn snapshot(&self) -> StoreCounts {
        let mut rows = Vec::new();
        for (op, cells) in OPS.into_iter().zip(&self.cells) {
            for (purpose, cell) in Purpose::ALL.into_iter().zip(cells) {
                let calls = cell.calls.load(Ordering::Relaxed);
                let times = cell.times.iter().map(|count| count.load(Ordering::Relaxed)).collect();
                rows.extend((calls > 0).then(|| OpCounts {
                    op,
                    purpose,
                    calls,
                    failures: cell.failures.load(Ordering::Relaxed),
                    bytes: cell.bytes.load(Ordering::Relaxed),
                    times,
                }));
            }
        }
        StoreCounts { rows }
    }
}

/// One kind of operation for one purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpCounts {
    /// The operation.
    pub op: StoreOp,
    /// What its objects are for.
    pub purpose: Purpose,
    /// How often it was begun, also when its answer was not waited for. Repetitions within the store are not seen.
    pub calls: u64,
    /// How often the store failed or refused; that an object is or is not there, or has changed, is an answer.
    pub failures: u64,
    /// Bytes of bodies written or read.
    pub bytes: u64,
    /// How many answers took how long; see [`OpCounts::quantile`].
    times: Vec<u64>,
}

impl OpCounts {
    /// The time that this part of the answers, within 0 and 1, did not exceed by more than a quarter; zero before the first answer.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Duration {
        let answers: u64 = self.times.iter().sum();
        let mut seen = 0;
        for (bucket, count) in self.times.iter().enumerate() {
            seen += count;
            if seen > 0 && seen as f64 >= answers as f64 * part {
                return bucket_end(bucket);
            }
        }
        Duration::ZERO
    }
}

/// What a [`StoreMeter`] counted up to one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// By operation, then purpose.
    pub rows: Vec<OpCounts>,
}

/// An estimate at list prices of AWS, in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dollars {
    /// Of requests that write or list.
    pub writes: f64,
    /// Of requests that read.
    pub reads: f64,
    /// Of the bytes kept.
    pub storage: f64,
}

impl Dollars {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.writes + self.reads + self.storage
    }
}

impl StoreCounts {
    /// What a month costs if it goes on as in the `elapsed` time that was counted, with so many bytes kept.
    #[must_use]
    pub fn dollars_a_month(&self, elapsed: Duration, kept_bytes: u64) -> Dollars {
        self.calls().dollars_a_month(elapsed, kept_bytes)
    }

    fn calls(&self) -> Calls {
        let calls = |wanted: &[StoreOp]| -> u64 {
            self.rows.iter().filter(|row| wanted.contains(&row.op)).map(|row| row.calls).sum()
        };
        Calls {
            writes: calls(&[StoreOp::PutIfAbsent, StoreOp::PutIfMatch, StoreOp::List]),
            // S3 removes by condition after a look at the object.
            reads: calls(&[StoreOp::Get, StoreOp::Head, StoreOp::DeleteIfMatch]),
        }
    }
}

/// How long what is asked of a store is remembered for an estimate of its cost.
const WINDOW: Duration = Duration::from_secs(300);
/// Between two moments that are remembered.
const WINDOW_STEP: Duration = Duration::from_secs(5);

/// Calls that cost the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Calls {
    writes: u64,
    reads: u64,
}

impl Calls {
    fn since(self, before: Self) -> Self {
        Self { writes: self.writes - before.writes, reads: self.reads - before.reads }
    }

    fn dollars_a_month(self, elapsed: Duration, kept_bytes: u64) -> Dollars {
        let months = if elapsed.is_zero() { 0.0 } else { MONTH.div_duration_f64(elapsed) };
        Dollars {
            writes: self.writes as f64 * DOLLARS_A_WRITE * months,
            reads: self.reads as f64 * DOLLARS_A_READ * months,
            storage: kept_bytes as f64 / 1e9 * DOLLARS_A_GB_MONTH,
        }
    }
}

/// What was asked of a store in the last minutes.
#[derive(Debug, Default)]
pub(crate) struct CostWindow(VecDeque<(Duration, Calls)>);

impl CostWindow {
    /// Notes what was counted up to `now`, a time since any moment. What a month costs if it goes on as in the time before, five
    /// minutes of it at most, and how long that was.
    pub(crate) fn note(&mut self, now: Duration, counts: &StoreCounts, kept_bytes: u64) -> (Dollars, Duration) {
        let calls = counts.calls();
        if self.0.back().is_none_or(|(at, _)| now >= *at + WINDOW_STEP) {
            self.0.push_back((now, calls));
        }
        while self.0.get(1).is_some_and(|(at, _)| *at + WINDOW <= now) {
            self.0.pop_front();
        }
        let (from, before) = self.0.front().copied().unwrap_or((now, calls));
        let elapsed = now.saturating_sub(from);
        (calls.since(before).dollars_a_month(elapsed, kept_bytes), elapsed)
    }
}

/// A store that counts what is asked of another.
#[derive(Debug)]
pub struct Metered {
    store: Arc<dyn Store>,
    meter: Arc<StoreMeter>,
}

impl Metered {
    /// The same store, counted from now on, and its counters.
    #[expect(clippy::new_ret_no_self, reason = "what is asked of a store is asked of any store")]
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<StoreMeter>) {
        let cells = std::array::from_fn(|_| std::array::from_fn(|_| Cell::default()));
        let meter = Arc::new(StoreMeter { cells });
        (Arc::new(Self { store, meter: Arc::clone(&meter) }), meter)
    }

    async fn count<T>(
        &self,
        (op, target): (StoreOp, &str),
        answer: StoreFuture<'_, T>,
        bytes: impl FnOnce(&T) -> u64,
    ) -> Result<T, StoreError> {
        let cell = self.meter.cell(op, target);
        cell.calls.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let answer = match at_store(if op.is_read() { Point::StoreRead } else { Point::StoreWrite }) {
            None => answer.await,
            Some(obstacle) => meet(obstacle, (op, target), answer).await,
        };
        let is_failure = answer.as_ref().is_err_and(|error| !error.is_answer());
        cell.finish(began, answer.as_ref().map_or(0, bytes), is_failure);
        answer
    }
}

/// A request that a test holds up, or that does not get there.
async fn meet<T>(
    obstacle: Obstacle,
    (op, target): (StoreOp, &str),
    answer: StoreFuture<'_, T>,
) -> Result<T, StoreError> {
    match obstacle {
        Obstacle::Slow(by) => {
            tokio::time::sleep(by).await;
            answer.await
        }
        Obstacle::Down => {
            let (target, source) = (target.to_owned(), "the store is down".into());
            Err(StoreError::Unavailable { op, target, effect: Effect::None, source })
        }
    }
}

impl Store for Metered {
    fn put_if_absent<'a>(&'a self, name: &'a ObjectName, body: Bytes, nonce: PutNonce) -> StoreFuture<'a, Version> {
        let bytes = body.len() as u64;
        let answer = self.store.put_if_absent(name, body, nonce);
        Box::pin(self.count((StoreOp::PutIfAbsent, name.as_str()), answer, move |_| bytes))
    }

    fn put_if_match<'a>(
        &'a self,
        name: &'a ObjectName,
        expected: &'a Version,
        body: Bytes,
        nonce: PutNonce,
    ) -> StoreFuture<'a, Version> {
        let bytes = body.len() as u64;
        let answer = self.store.put_if_match(name, expected, body, nonce);
        Box::pin(self.count((StoreOp::PutIfMatch, name.as_str()), answer, move |_| bytes))
    }

    fn get<'a>(&'a self, name: &'a ObjectName, span: Span) -> StoreFuture<'a, Object> {
        let bytes = |object: &Object| object.body.len() as u64;
        Box::pin(self.count((StoreOp::Get, name.as_str()), self.store.get(name, span), bytes))
    }

    fn head<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ObjectMeta> {
        Box::pin(self.count((StoreOp::Head, name.as_str()), self.store.head(name), |_| 0))
    }

    fn delete<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ()> {
        Box::pin(self.count((StoreOp::Delete, name.as_str()), self.store.delete(name), |()| 0))
    }

    fn delete_if_match<'a>(&'a self, name: &'a ObjectName, expected: &'a Version) -> StoreFuture<'a, ()> {
        let answer = self.store.delete_if_match(name, expected);
        Box::pin(self.count((StoreOp::DeleteIfMatch, name.as_str()), answer, |()| 0))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a ObjectPrefix,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> StoreFuture<'a, ListPage> {
        let answer = self.store.list(prefix, after, limit);
        Box::pin(self.count((StoreOp::List, prefix.as_str()), answer, |_| 0))
    }

    fn clock_skew_ms(&self) -> Option<i64> {
        self.store.clock_skew_ms()
    }

    fn trouble(&self) -> Option<Trouble> {
        self.store.trouble()
    }
}

#[cfg(test)]
mod tests;
