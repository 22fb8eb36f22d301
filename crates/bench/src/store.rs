//! How long do a put and a get of one object take, by size and by how many are in flight?

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde::Serialize;
use wire::reason::Reason;

use crate::error::BenchError;
use crate::latency::{Latencies, Quantiles};
use crate::load::nanoseconds;
use crate::progress::{OnProgress, Progress, Step, as_f64};
use crate::report::{Made, Size, seconds};

/// Removals that are in flight at once.
const REMOVALS: usize = 16;
const DEPTH_MAX: usize = 256;
const OBJECT_BYTES_MAX: usize = 256 << 20;

/// A store, as far as it is measured: objects under numbers that nobody else uses.
pub trait Objects {
    /// Makes object `number`, of so many bytes, if it is not there yet; it is durable when this answers.
    fn put(&self, number: u64, bytes: usize) -> impl Future<Output = Result<(), StoreFault>>;

    /// Reads all of object `number`, and answers how many bytes it has.
    fn get(&self, number: u64) -> impl Future<Output = Result<usize, StoreFault>>;

    /// Removes object `number`; removing what is not there succeeds.
    fn remove(&self, number: u64) -> impl Future<Output = Result<(), StoreFault>>;
}

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFault {
    /// What it comes down to.
    pub reason: Reason,
    /// What the store says.
    pub why: String,
}

impl StoreFault {
    fn during(self, action: &'static str) -> BenchError {
        BenchError::Store { action, why: self.why, reason: self.reason }
    }
}

/// What to ask of a store, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoreOptions {
    /// Which store, for the report.
    pub store: String,
    /// Sizes of the objects, in bytes: at least 1, at most 256 MiB.
    pub sizes: Vec<usize>,
    /// How many operations are in flight at once, in turn at each size: 1 to 256.
    pub depths: Vec<usize>,
    /// How long puts are measured at each size and depth; the gets read what these put, once.
    #[serde(rename = "rung_seconds", serialize_with = "seconds")]
    pub rung: Duration,
    /// Bytes that a size and depth puts at most, at least one object for each operation in flight.
    pub rung_bytes_max: u64,
}

impl StoreOptions {
    /// 4 KiB to 8 MiB, at depths 1 and 8, for two seconds or 512 MiB each.
    #[must_use]
    pub fn ladder(store: String) -> Self {
        Self {
            store,
            sizes: vec![4 << 10, 64 << 10, 512 << 10, 8 << 20],
            depths: vec![1, 8],
            rung: Duration::from_secs(2),
            rung_bytes_max: 512 << 20,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let within = |option, values: &[usize], max: usize| match values.iter().find(|it| !(1..=max).contains(*it)) {
            Some(bad) => Err(BenchError::option(option, bad, format!("1 to {max}"))),
            None if values.is_empty() => Err(BenchError::option(option, "empty", "at least one")),
            None => Ok(()),
        };
        within("sizes", &self.sizes, OBJECT_BYTES_MAX)?;
        within("depths", &self.depths, DEPTH_MAX)?;
        if self.rung.is_zero() {
            return Err(BenchError::option("duration", 0, "longer than nothing"));
        }
        Ok(())
    }
}

/// What was asked of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Making an object that is not there yet.
    Put,
    /// Reading a whole object.
    Get,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Put => "put",
            Self::Get => "get",
        })
    }
}

/// One size at one depth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoreRung {
    /// What was asked.
    pub op: Op,
    /// Bytes of an object.
    pub object_bytes: usize,
    /// Operations in flight at once.
    pub depth: usize,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// From the call to its answer, in microseconds.
    pub latency_us: Quantiles,
}

/// The puts and gets of a store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoreReport {
    /// When and where.
    #[serde(flatten)]
    pub made: Made,
    /// What was run.
    pub settings: StoreOptions,
    /// By size, then by depth, puts before gets.
    pub rungs: Vec<StoreRung>,
}

impl StoreReport {
    /// The rung of depth 1, or the shallowest there is, whose size is nearest.
    #[must_use]
    pub fn nearest(&self, op: Op, bytes: usize) -> Option<&StoreRung> {
        let rungs = self.rungs.iter().filter(|rung| rung.op == op);
        rungs.min_by_key(|rung| (rung.object_bytes.abs_diff(bytes), rung.depth))
    }

    /// Bytes a second of the rung that has most.
    #[must_use]
    pub fn bytes_per_s_max(&self, op: Op) -> Option<f64> {
        let rungs = self.rungs.iter().filter(|rung| rung.op == op);
        rungs.map(|rung| rung.bytes_per_s).max_by(f64::total_cmp)
    }
}

/// What a rung is made of.
struct Rung<'a, O> {
    objects: &'a O,
    bytes: usize,
    depth: usize,
    latencies: RefCell<Latencies>,
}

impl<'a, O: Objects> Rung<'a, O> {
    fn new(objects: &'a O, bytes: usize, depth: usize) -> Self {
        Self { objects, bytes, depth, latencies: RefCell::new(Latencies::new()) }
    }

    /// Makes objects from number `next` on, `depth` at a time, until the time or the room is over.
    async fn puts(&self, next: &Cell<u64>, options: &StoreOptions) -> Result<StoreRung, StoreFault> {
        let began = Instant::now();
        let objects_max = (options.rung_bytes_max / self.bytes as u64).max(self.depth as u64);
        let end = next.get() + objects_max;
        self.each(Op::Put, began, || {
            let number = next.get();
            let goes_on = number < end && (began.elapsed() < options.rung || self.latencies.borrow().samples() == 0);
            goes_on.then(|| {
                next.set(number + 1);
                number
            })
        })
        .await
    }

    /// Reads the objects `range`, in order, `depth` at a time.
    async fn gets(&self, range: std::ops::Range<u64>) -> Result<StoreRung, StoreFault> {
        let next = Cell::new(range.start);
        self.each(Op::Get, Instant::now(), || {
            let number = next.get();
            next.set(number + 1);
            (number < range.end).then_some(number)
        })
        .await
    }

    async fn each(&self, op: Op, began: Instant, next: impl Fn() -> Option<u64>) -> Result<StoreRung, StoreFault> {
        let lane = || async {
            while let Some(number) = next() {
                let sent = Instant::now();
                match op {
                    Op::Put => self.objects.put(number, self.bytes).await?,
                    Op::Get => self.whole(number).await?,
                }
                self.latencies.borrow_mut().record(nanoseconds(sent.elapsed()));
            }
            Ok(())
        };
        let lanes = join_all((0..self.depth).map(|_| lane())).await;
        lanes.into_iter().collect::<Result<Vec<()>, StoreFault>>()?;
        let (seconds, latencies) = (began.elapsed().as_secs_f64().max(1e-9), self.latencies.borrow());
        let ops_per_s = as_f64(latencies.samples()) / seconds;
        Ok(StoreRung {
            op,
            object_bytes: self.bytes,
            depth: self.depth,
            ops_per_s,
            bytes_per_s: ops_per_s * as_f64(self.bytes as u64),
            latency_us: latencies.quantiles(),
        })
    }

    async fn whole(&self, number: u64) -> Result<(), StoreFault> {
        let (found, bytes) = (self.objects.get(number).await?, self.bytes);
        let why = || format!("object {number} was put with {bytes} bytes and read with {found}");
        if found == bytes { Ok(()) } else { Err(StoreFault { reason: Reason::Internal, why: why() }) }
    }
}

/// Measures the store, and removes what it put, also when an operation fails.
///
/// # Errors
/// [`BenchError`] of an option, or of the store.
pub async fn run(
    options: &StoreOptions,
    objects: &impl Objects,
    on_progress: OnProgress<'_>,
) -> Result<StoreReport, BenchError> {
    options.check()?;
    let mut report = StoreReport { made: Made::here(None), settings: options.clone(), rungs: Vec::new() };
    // A first put and get connect, and make what the store makes once.
    let next = Cell::new(1);
    let first = async {
        objects.put(0, 1).await?;
        objects.get(0).await.map(drop)
    };
    let mut outcome = first.await.map_err(|fault| fault.during("a first put and get"));
    let began = Instant::now();
    let rungs = options.sizes.iter().flat_map(|bytes| options.depths.iter().map(|depth| (*bytes, *depth)));
    let all = as_f64((options.sizes.len() * options.depths.len()) as u64);
    let mut removed = 0;
    for (at, (bytes, depth)) in rungs.enumerate() {
        if outcome.is_err() {
            break;
        }
        let from = next.get();
        outcome = climb(objects, (bytes, depth), &next, options).await.map(|rungs| report.rungs.extend(rungs));
        remove(objects, removed..next.get()).await.unwrap_or_else(|fault| {
            outcome = Err(fault.during("removing what was put"));
        });
        removed = next.get();
        let answers = next.get() - from;
        on_progress(&Progress {
            step: Step::Floor,
            elapsed: began.elapsed(),
            percent: Some(100.0 * as_f64(at as u64 + 1) / all),
            answers: next.get(),
            answers_per_s: report.rungs.last().map_or_else(|| as_f64(answers), |rung| rung.ops_per_s),
        });
    }
    outcome.map(|()| report)
}

async fn climb(
    objects: &impl Objects,
    (bytes, depth): (usize, usize),
    next: &Cell<u64>,
    options: &StoreOptions,
) -> Result<[StoreRung; 2], BenchError> {
    let from = next.get();
    let puts = Rung::new(objects, bytes, depth).puts(next, options).await.map_err(|fault| fault.during("a put"))?;
    let gets = Rung::new(objects, bytes, depth).gets(from..next.get()).await.map_err(|fault| fault.during("a get"))?;
    Ok([puts, gets])
}

async fn remove(objects: &impl Objects, range: std::ops::Range<u64>) -> Result<(), StoreFault> {
    let lane = |first: u64| {
        let range = range.clone();
        async move {
            for number in (range.start + first..range.end).step_by(REMOVALS) {
                objects.remove(number).await?;
            }
            Ok(())
        }
    };
    let lanes = join_all((0..REMOVALS as u64).map(lane)).await;
    lanes.into_iter().collect::<Result<Vec<()>, StoreFault>>().map(drop)
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)?;
        writeln!(f, "store      {}, whole objects", self.settings.store)?;
        writeln!(f, "\n    KiB  op   depth  µs {}        ops       rate", Quantiles::HEADS)?;
        for rung in &self.rungs {
            let (ops, rate) = (rung.ops_per_s, Size(rung.bytes_per_s).to_string());
            let kib = as_f64(rung.object_bytes as u64) / 1024.0;
            writeln!(f, "{kib:7.0}  {:3} {:6}     {} {ops:8.0}/s {rate:>9}/s", rung.op, rung.depth, rung.latency_us)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
