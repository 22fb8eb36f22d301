//! How long does a durable write take on this disk, by size, by method, and by how many are in flight?

mod ring;
mod target;

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use tuning::host::{Fitness, file_system};
use tuning::measured::Method;

use crate::error::BenchError;
use crate::latency::{Latencies, Quantiles};
use crate::load::nanoseconds;
use crate::progress::{OnProgress, Progress, Step, as_f64};
use crate::report::{Made, Size, seconds};

use target::Target;

/// Smallest write.
pub(crate) const WRITE_BYTES_MIN: usize = 4 << 10;
/// Largest write.
pub(crate) const WRITE_BYTES_MAX: usize = 1 << 20;
/// Most writes in flight at once.
const DEPTH_MAX: usize = 8;
/// Smallest file: a few of the largest writes.
const FILE_BYTES_MIN: u64 = 4 << 20;

/// What to write, where and for how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskOptions {
    /// The directory; a file is made in it and removed.
    pub directory: PathBuf,
    /// Sizes of the writes, in bytes: multiples of 4 KiB, at most 1 MiB.
    pub sizes: Vec<usize>,
    /// How the writes are made durable, in turn at each size.
    pub methods: Vec<Method>,
    /// Writes in flight at once, in turn, of the methods that go through a ring; the others have one. 1 to 8.
    pub depths: Vec<usize>,
    /// How long each method is measured at each size and depth.
    #[serde(rename = "rung_seconds", serialize_with = "seconds")]
    pub rung: Duration,
    /// Bytes of the file. It is written with zeroes first, as head-log segments are.
    pub file_bytes: u64,
    /// CPU that the writer is pinned to.
    pub cpu: Option<usize>,
}

impl DiskOptions {
    /// The ladder of one write at a time in a directory: 4 KiB to 1 MiB in powers of two, every method that blocks for half a
    /// second.
    #[must_use]
    pub fn ladder(directory: PathBuf) -> Self {
        Self {
            directory,
            sizes: (12..=20).map(|power| 1 << power).collect(),
            methods: Method::BLOCKING.to_vec(),
            depths: vec![1],
            rung: Duration::from_millis(500),
            file_bytes: 64 << 20,
            cpu: None,
        }
    }

    /// The ladder that tells how commits are best made: sizes from the least commit to the largest, every method, and through a
    /// ring one, two and four at once.
    #[must_use]
    pub fn commits(directory: PathBuf) -> Self {
        Self {
            sizes: vec![4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20],
            methods: Method::BLOCKING.into_iter().chain(Method::RING).collect(),
            depths: vec![1, 2, 4],
            ..Self::ladder(directory)
        }
    }

    /// What is measured, in order: size, method and depth.
    #[must_use]
    pub fn steps(&self) -> Vec<(usize, Method, usize)> {
        let depths = |method: Method| if method.is_ring() { self.depths.as_slice() } else { &[1] };
        let methods = |size| self.methods.iter().map(move |method| (size, *method));
        let pairs = self.sizes.iter().copied().flat_map(methods);
        pairs.flat_map(|(size, method)| depths(method).iter().map(move |depth| (size, method, *depth))).collect()
    }

    fn check(&self) -> Result<(), BenchError> {
        for size in &self.sizes {
            if *size < WRITE_BYTES_MIN || *size > WRITE_BYTES_MAX || size % WRITE_BYTES_MIN != 0 {
                let range = "a multiple of 4 KiB, 4 KiB to 1 MiB";
                return Err(BenchError::option("size", size, range));
            }
        }
        if let Some(depth) = self.depths.iter().find(|depth| !(1..=DEPTH_MAX).contains(*depth)) {
            return Err(BenchError::option("depth", depth, format!("1 to {DEPTH_MAX}")));
        }
        if self.steps().is_empty() {
            return Err(BenchError::option("sizes, methods and depths", "empty", "at least one"));
        }
        if self.file_bytes < FILE_BYTES_MIN || !self.file_bytes.is_multiple_of(WRITE_BYTES_MAX as u64) {
            let range = "a multiple of 1 MiB, at least 4 MiB";
            return Err(BenchError::option("file_bytes", self.file_bytes, range));
        }
        Ok(())
    }
}

/// One size by one method, so many at once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rung {
    /// Bytes of a write.
    pub write_bytes: usize,
    /// How it was made durable.
    pub method: Method,
    /// Writes in flight at once.
    pub depth: usize,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// From before the write until it is durable, in microseconds.
    pub latency_us: Quantiles,
}

impl Rung {
    fn of((write_bytes, method, depth): (usize, Method, usize), latencies: &Latencies, took: Duration) -> Self {
        let bytes = as_f64(latencies.samples() * write_bytes as u64);
        let latency_us = latencies.quantiles();
        Self { write_bytes, method, depth, bytes_per_s: bytes / took.as_secs_f64().max(1e-9), latency_us }
    }
}

/// The durable writes of a disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskReport {
    /// When and where.
    #[serde(flatten)]
    pub made: Made,
    /// What was run.
    pub settings: DiskOptions,
    /// Whether the file system took the writes past its cache.
    pub is_direct: bool,
    /// By size, then by method, then by depth.
    pub rungs: Vec<Rung>,
    /// What a reader must know before believing the numbers.
    pub warnings: Vec<String>,
}

impl DiskReport {
    /// The quickest method at a size, by its median, of one write at a time.
    #[must_use]
    pub fn floor(&self, write_bytes: usize) -> Option<&Rung> {
        let rungs = self.rungs.iter().filter(|rung| rung.write_bytes == write_bytes && rung.depth == 1);
        let median = |rung: &&Rung| rung.latency_us.p50.or(rung.latency_us.max).unwrap_or(f64::MAX);
        rungs.min_by(|left, right| median(left).total_cmp(&median(right)))
    }
}

/// Measures the ladder.
///
/// # Errors
/// [`BenchError`] of an option, or of the file.
pub fn run(options: &DiskOptions, on_progress: OnProgress<'_>) -> Result<DiskReport, BenchError> {
    options.check()?;
    if options.methods.iter().any(|method| method.is_ring()) {
        ring::check()?;
    }
    // Before the writer is pinned, for the facts tell which CPUs the process may use.
    let made = Made::here(Some(&options.directory));
    match options.cpu {
        Some(cpu) => on_cpu(options, made, cpu, on_progress),
        None => measure(options, made, on_progress),
    }
}

/// Measures on a thread of its own, so that the caller stays where it is.
fn on_cpu(
    options: &DiskOptions,
    made: Made,
    cpu: usize,
    on_progress: OnProgress<'_>,
) -> Result<DiskReport, BenchError> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            crate::cpu::pin(cpu)?;
            // A caller that has gone needs no progress.
            measure(options, made, &mut |progress| _ = sender.send(*progress))
        });
        receiver.iter().for_each(|progress| on_progress(&progress));
        writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn measure(options: &DiskOptions, made: Made, on_progress: OnProgress<'_>) -> Result<DiskReport, BenchError> {
    let began = Instant::now();
    let mut target = Target::create(&options.directory, options.file_bytes)?;
    let mut rungs = Vec::new();
    let steps = options.steps();
    let mut writes = 0;
    for (write_bytes, method, depth) in &steps {
        let rung = if method.is_ring() {
            ring::climb(&target, (*write_bytes, *method, *depth), options)?
        } else {
            climb(&mut target, *write_bytes, *method, options.rung)?
        };
        writes += rung.latency_us.samples;
        on_progress(&Progress {
            step: Step::Floor,
            elapsed: began.elapsed(),
            percent: Some(100.0 * as_f64(rungs.len() as u64 + 1) / as_f64(steps.len() as u64)),
            answers: writes,
            answers_per_s: rung.bytes_per_s / as_f64(*write_bytes as u64),
        });
        rungs.push(rung);
    }
    Ok(DiskReport {
        made,
        settings: options.clone(),
        is_direct: target.is_direct(),
        rungs,
        warnings: warnings(&target, options),
    })
}

fn warnings(target: &Target, options: &DiskOptions) -> Vec<String> {
    let mut warnings = Vec::new();
    if !target.is_direct() {
        warnings.push("the file system refuses O_DIRECT: the writes went through its cache".to_owned());
    }
    let found = file_system(&options.directory).map(|kind| (kind, kind.fitness()));
    if let Ok((kind, Fitness::Unfit(why) | Fitness::Doubtful(why))) = found {
        warnings.push(format!("{kind}: {why}"));
    }
    warnings
}

fn climb(target: &mut Target, write_bytes: usize, method: Method, rung: Duration) -> Result<Rung, BenchError> {
    let mut latencies = Latencies::new();
    let began = Instant::now();
    let mut before = began;
    loop {
        target.write(write_bytes, method)?;
        let now = Instant::now();
        latencies.record(nanoseconds(now - before));
        before = now;
        if now - began >= rung {
            break;
        }
    }
    Ok(Rung::of((write_bytes, method, 1), &latencies, before - began))
}

impl fmt::Display for DiskReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)?;
        let (directory, direct) = (self.settings.directory.display(), self.is_direct);
        let how = if direct { "O_DIRECT" } else { "through the cache" };
        writeln!(f, "disk       {directory}, {how}, into written zeroes")?;
        writeln!(f, "\n    KiB  µs, by         at once {}       rate", Quantiles::HEADS)?;
        for rung in &self.rungs {
            let is_floor = self.floor(rung.write_bytes) == Some(rung);
            writeln!(
                f,
                "{:7}  {:15} {:6} {} {:>9}/s{}",
                rung.write_bytes >> 10,
                rung.method,
                rung.depth,
                rung.latency_us,
                Size(rung.bytes_per_s).to_string(),
                if is_floor { "  ← floor" } else { "" }
            )?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning    {warning}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
