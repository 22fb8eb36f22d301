//! Does a star stay as it is under a mixed load, for hours?

mod chores;
mod drift;
mod witness;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use wire::config::Class;

pub(crate) use chores::{append_once, one_record};
pub use drift::{Trend, Verdict, judge};

use crate::append::{AppendOptions, ensure_bucket_with};
use crate::error::BenchError;
use crate::load::{self, Load, Slice};
use crate::progress::as_f64;
use crate::report::{Count, Made, Size, seconds};
use crate::star::{files_below, holds};

const LOOK_EVERY: Duration = Duration::from_millis(50);
const WINDOW_MIN: Duration = Duration::from_secs(1);

/// A load that mixes all that streams are used for, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SoakOptions {
    /// The appends: streams, connections, rate, sizes, classes. They begin with the first window.
    pub load: AppendOptions,
    /// How long it runs.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: Duration,
    /// How long a window is.
    #[serde(rename = "window_seconds", serialize_with = "seconds")]
    pub window: Duration,
    /// How long windows are told and not judged: until retention and reclaim have caught up with the appends.
    #[serde(rename = "warm_up_seconds", serialize_with = "seconds")]
    pub warm_up: Duration,
    /// Age at which records are dropped, a default of the buckets.
    #[serde(rename = "retention_seconds", serialize_with = "seconds")]
    pub retention: Duration,
    /// Streams of each class whose records are chained and read back in every window.
    pub witnesses: u16,
    /// Reads of a stream's records a second.
    pub reads_per_s: f64,
    /// Trims a second, each of a stream of the load to a hundred records before its tail.
    pub trims_per_s: f64,
    /// Streams a second that are made, read and deleted.
    pub churn_per_s: f64,
    /// By how much memory, files and bytes may grow after the warm-up, in percent.
    pub drift_percent_max: f64,
    /// By how much p99 may grow after the warm-up, in percent.
    pub p99_drift_percent_max: f64,
    /// The star's process; absent leaves its memory and open files out.
    pub pid: Option<u32>,
    /// The star's data directory; absent leaves it out.
    pub data: Option<PathBuf>,
    /// The store's directory; absent leaves it out, unless the caller counts.
    pub store: Option<PathBuf>,
}

impl Default for SoakOptions {
    fn default() -> Self {
        Self {
            load: AppendOptions {
                bucket: Some("soak".to_owned()),
                classes: vec![Class::Express, Class::Standard],
                key_prefix: "soak".to_owned(),
                streams: 1_000,
                connections: 8,
                rate: Some(2_000.0),
                warm_up: Duration::ZERO,
                ..AppendOptions::default()
            },
            duration: Duration::from_secs(2 * 3_600),
            window: Duration::from_secs(60),
            warm_up: Duration::from_secs(20 * 60),
            retention: Duration::from_secs(5 * 60),
            witnesses: 8,
            reads_per_s: 20.0,
            trims_per_s: 5.0,
            churn_per_s: 2.0,
            drift_percent_max: 10.0,
            p99_drift_percent_max: 50.0,
            pid: None,
            data: None,
            store: None,
        }
    }
}

impl SoakOptions {
    fn check(&self) -> Result<(), BenchError> {
        if self.load.rate.is_none() || self.load.one_shot {
            return Err(BenchError::option("rate", "absent", "set: a soak is an open loop"));
        }
        if self.window < WINDOW_MIN || self.window > self.duration {
            return Err(BenchError::option(
                "window",
                format!("{:?}", self.window),
                "at least 1s, at most the duration",
            ));
        }
        if self.warm_up >= self.duration {
            return Err(BenchError::option("warm_up", format!("{:?}", self.warm_up), "shorter than the duration"));
        }
        if self.retention < WINDOW_MIN {
            return Err(BenchError::option("retention", format!("{:?}", self.retention), "at least 1s"));
        }
        let rates =
            [("reads_per_s", self.reads_per_s), ("trims_per_s", self.trims_per_s), ("churn_per_s", self.churn_per_s)];
        match rates.into_iter().find(|(_, rate)| !(rate.is_finite() && *rate >= 0.0)) {
            Some((option, rate)) => Err(BenchError::option(option, rate, "at least 0")),
            None => Ok(()),
        }
    }
}

/// What a window saw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    /// When it ended, in seconds since the load began.
    pub at_s: f64,
    /// Acks a second.
    pub acks_per_s: f64,
    /// Appends and other requests that were refused.
    pub refusals: u64,
    /// Median latency of the appends from when they were due, in microseconds.
    pub p50_us: Option<f64>,
    /// 99 in 100.
    pub p99_us: Option<f64>,
    /// Resident bytes of the star.
    pub memory_bytes: Option<u64>,
    /// Files that the star has open.
    pub open_files: Option<u64>,
    /// Files in its data directory, and the bytes they take.
    pub data: Option<(u64, u64)>,
    /// Objects in the store, and their bytes.
    pub store: Option<(u64, u64)>,
    /// Records that readers took.
    pub records_read: u64,
    /// Records of witnesses that were read back and are what was acked.
    pub records_verified: u64,
    /// Trims.
    pub trims: u64,
    /// Streams that were made and deleted.
    pub churned: u64,
}

impl Window {
    /// The heads of the columns that its `Display` prints.
    pub const HEADS: &str = "    at s    acks/s   p50 µs   p99 µs  refused    memory  files data files     bytes   objects     bytes  verified";
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
        let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| Size(as_f64(bytes)).to_string());
        let (files, data_bytes) = (self.data.map(|data| data.0), self.data.map(|data| data.1));
        let (objects, store_bytes) = (self.store.map(|store| store.0), self.store.map(|store| store.1));
        write!(f, "{:8.0} {:>9}", self.at_s, Count(self.acks_per_s).to_string())?;
        write!(f, " {:>8} {:>8} {:8}", us(self.p50_us), us(self.p99_us), self.refusals)?;
        write!(f, " {:>9} {:>6}", bytes(self.memory_bytes), count(self.open_files))?;
        write!(f, " {:>10} {:>9}", count(files), bytes(data_bytes))?;
        write!(f, " {:>9} {:>9} {:9}", count(objects), bytes(store_bytes), self.records_verified)
    }
}

/// What a soak found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SoakReport {
    /// When and where.
    #[serde(flatten)]
    pub made: Made,
    /// What was run.
    pub settings: SoakOptions,
    /// What each window saw.
    pub windows: Vec<Window>,
    /// The verdicts on what must stay flat.
    pub verdicts: Vec<Verdict>,
    /// Refusals of the whole run, by reason.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Faults that the witnesses found.
    pub faults: Vec<String>,
}

impl SoakReport {
    /// Why the run does not pass; `None` when it does.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if let Some(first) = self.faults.first() {
            return Some(format!("{} records are not what was acked, the first: {first}", self.faults.len()));
        }
        let grows = self.verdicts.iter().filter(|verdict| verdict.trend == Trend::Grows);
        let grows: Vec<_> = grows
            .map(|it| {
                format!("{} grows by {:.0} % ({:.0} % may be)", it.series, it.drift_percent, it.drift_percent_max)
            })
            .collect();
        (!grows.is_empty()).then(|| grows.join(", "))
    }
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{}", self.made)?;
        writeln!(f, "soak       {}", self.settings.load)?;
        let verified: u64 = self.windows.iter().map(|window| window.records_verified).sum();
        let read: u64 = self.windows.iter().map(|window| window.records_read).sum();
        writeln!(
            f,
            "read       {} records, {} of witnesses read back as acked",
            Count(as_f64(read)),
            Count(as_f64(verified))
        )?;
        for (reason, count) in &self.refusals {
            writeln!(f, "refused    {count} × {reason}")?;
        }
        for it in &self.verdicts {
            let (drift, max) = (it.drift_percent, it.drift_percent_max);
            match it.trend {
                Trend::Flat => writeln!(f, "flat       {}: {drift:+.1} % ({max:.0} % may be)", it.series)?,
                Trend::Grows => writeln!(f, "GROWS      {}: {drift:+.1} % ({max:.0} % may be)", it.series)?,
                Trend::TooShort => {
                    writeln!(
                        f,
                        "unjudged   {}: fewer than {} windows after the warm-up",
                        it.series,
                        drift::SAMPLES_MIN
                    )?;
                }
            }
        }
        for fault in &self.faults {
            writeln!(f, "FAULT      {fault}")?;
        }
        Ok(())
    }
}

/// What the threads of a soak tell each other.
#[derive(Debug)]
struct Shared {
    is_over: AtomicBool,
    records_read: AtomicU64,
    records_verified: AtomicU64,
    trims: AtomicU64,
    churned: AtomicU64,
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    faults: Mutex<Vec<String>>,
}

/// Faults that are told; more are one and the same.
const FAULTS_MAX: usize = 20;

impl Shared {
    fn new() -> Self {
        Self {
            is_over: AtomicBool::new(false),
            records_read: AtomicU64::new(0),
            records_verified: AtomicU64::new(0),
            trims: AtomicU64::new(0),
            churned: AtomicU64::new(0),
            refusals: Mutex::default(),
            faults: Mutex::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends the run when a part of it failed: a load without its witnesses proves nothing.
    fn ends(&self, outcome: Result<(), BenchError>) -> Result<(), BenchError> {
        if outcome.is_err() {
            self.is_over.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn fault(&self, fault: String) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if faults.len() < FAULTS_MAX {
            faults.push(fault);
        }
    }

    /// What was asked for, or `None` when a load like this one may be refused it; counted.
    fn tolerate<T>(&self, outcome: Result<T, BenchError>) -> Result<Option<T>, BenchError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(BenchError::Refused { refusal, .. }) if chores::is_part_of_life(refusal.reason) => {
                let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
                *refusals.entry(refusal.reason.word()).or_default() += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn refused(&self) -> u64 {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// Waits for a while, or until the run is over.
    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// Counts the objects of a store and their bytes, where that is more than looking into a directory.
pub type CountStore<'a> = &'a mut dyn FnMut() -> Option<(u64, u64)>;

/// Runs the load, tells each window, and reports.
///
/// # Errors
/// [`BenchError`] of what kept the run from its end; [`BenchError::Soak`], with the report inside, when something grew or a record was
/// not what was acked.
pub fn run(
    options: &SoakOptions,
    count_store: Option<CountStore<'_>>,
    on_window: &mut dyn FnMut(&Window),
) -> Result<SoakReport, BenchError> {
    options.check()?;
    let load_options = AppendOptions { duration: options.duration, warm_up: Duration::ZERO, ..options.load.clone() };
    let load = load_options.load()?;
    for (bucket, class) in load_options.buckets() {
        ensure_bucket_with(&load_options.addr, &bucket, class, Some(options.retention))?;
    }
    let made = Made::here(options.data.as_deref());
    let shared = Shared::new();
    let (windows, outcome) = thread::scope(|scope| {
        let (send, slices) = mpsc::channel();
        let (load, shared, addr) = (&load, &shared, load_options.addr.as_str());
        let mut chores = vec![
            scope.spawn(move || shared.ends(chores::read(options, load, shared))),
            scope.spawn(move || shared.ends(chores::trim(options, load, shared))),
            scope.spawn(move || shared.ends(chores::churn(options, addr, shared))),
        ];
        for (bucket, _) in load_options.buckets() {
            chores.push(scope.spawn(move || shared.ends(witness::run(options, addr, &bucket, shared))));
        }
        let loading = scope.spawn(move || {
            let outcome = load::run(load, &mut |_| (), &mut |slice| {
                // The watch takes them until this thread has ended.
                let _gone = send.send(slice.clone());
            });
            shared.is_over.store(true, Ordering::Relaxed);
            outcome.and_then(kept)
        });
        let mut watch = Watch { options, shared, count_store, slices, before: Before::default() };
        let windows = watch.run(load, &|| loading.is_finished(), on_window);
        let threads = [loading].into_iter().chain(chores);
        let ended = threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (windows, ended.fold(Ok(()), Result::and))
    });
    outcome?;
    report(options, made, windows, shared)
}

/// Whether the appends kept what the server promised.
fn kept(outcome: load::Outcome) -> Result<(), BenchError> {
    match outcome.tally.first_violation {
        None => Ok(()),
        Some(first) => Err(BenchError::Faults { faults: outcome.tally.violations, first }),
    }
}

fn report(options: &SoakOptions, made: Made, windows: Vec<Window>, shared: Shared) -> Result<SoakReport, BenchError> {
    let judged = windows.iter().filter(|window| window.at_s > options.warm_up.as_secs_f64());
    let series = |name, value: fn(&Window) -> Option<f64>, max: f64| {
        let values: Vec<_> = judged.clone().filter_map(value).collect();
        (!values.is_empty()).then(|| judge(name, &values, max))
    };
    let (max, p99_max) = (options.drift_percent_max, options.p99_drift_percent_max);
    let verdicts = [
        series("memory", |window| window.memory_bytes.map(as_f64), max),
        series("open files", |window| window.open_files.map(as_f64), max),
        series("data files", |window| window.data.map(|data| as_f64(data.0)), max),
        series("data bytes", |window| window.data.map(|data| as_f64(data.1)), max),
        series("store objects", |window| window.store.map(|store| as_f64(store.0)), max),
        series("store bytes", |window| window.store.map(|store| as_f64(store.1)), max),
        series("p99", |window| window.p99_us, p99_max),
    ];
    let report = SoakReport {
        made,
        settings: options.clone(),
        windows,
        verdicts: verdicts.into_iter().flatten().collect(),
        refusals: shared.refusals.into_inner().unwrap_or_else(PoisonError::into_inner),
        faults: shared.faults.into_inner().unwrap_or_else(PoisonError::into_inner),
    };
    match report.failure() {
        None => Ok(report),
        Some(why) => Err(BenchError::Soak { why, report: Box::new(report) }),
    }
}

/// What had been counted when the window before ended.
#[derive(Debug, Default)]
struct Before {
    at: Duration,
    refused: u64,
    records_read: u64,
    records_verified: u64,
    trims: u64,
    churned: u64,
}

/// Puts windows together while the load runs.
struct Watch<'a, 'b> {
    options: &'a SoakOptions,
    shared: &'a Shared,
    count_store: Option<CountStore<'b>>,
    slices: Receiver<Slice>,
    before: Before,
}

impl Watch<'_, '_> {
    fn run(&mut self, load: &Load, is_over: &dyn Fn() -> bool, on_window: &mut dyn FnMut(&Window)) -> Vec<Window> {
        let (began, mut windows) = (Instant::now(), Vec::new());
        let mut all = Slice::new(0);
        let mut due = self.options.window;
        while !is_over() {
            thread::sleep(LOOK_EVERY);
            self.slices.try_iter().for_each(|slice| all.merge(&slice));
            if self.shared.is_over() {
                load.is_over.store(true, Ordering::Relaxed);
            }
            let elapsed = began.elapsed();
            if elapsed >= due {
                due += self.options.window;
                let window = self.window(&all.cut(), elapsed);
                on_window(&window);
                windows.push(window);
            }
        }
        windows
    }

    fn window(&mut self, all: &Slice, at: Duration) -> Window {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shared = self.shared;
        let now = Before {
            at,
            refused: shared.refused() + all.refusals,
            records_read: count(&shared.records_read),
            records_verified: count(&shared.records_verified),
            trims: count(&shared.trims),
            churned: count(&shared.churned),
        };
        let holds = self.options.pid.and_then(holds);
        let quantiles = all.latency.quantiles();
        let store = self.options.store.as_deref();
        let window = Window {
            at_s: at.as_secs_f64(),
            acks_per_s: as_f64(all.acks) / (at - self.before.at).as_secs_f64(),
            refusals: now.refused - self.before.refused,
            p50_us: quantiles.p50,
            p99_us: quantiles.p99,
            memory_bytes: holds.map(|holds| holds.0),
            open_files: holds.map(|holds| holds.1),
            data: self.options.data.as_deref().map(|data| files_below(data, store)),
            store: match &mut self.count_store {
                Some(count) => count(),
                None => store.map(|store| files_below(store, None)),
            },
            records_read: now.records_read - self.before.records_read,
            records_verified: now.records_verified - self.before.records_verified,
            trims: now.trims - self.before.trims,
            churned: now.churned - self.before.churned,
        };
        // Refusals of the appends are the window's own, and in no later one.
        self.before = Before { refused: now.refused - all.refusals, ..now };
        window
    }
}

#[cfg(test)]
mod tests;
