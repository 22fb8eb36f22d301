//! How fast does a server read back what it holds?

mod pages;
mod reader;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::BenchError;
use crate::latency::{Latencies, Quantiles};
use crate::places::Places;
use crate::progress::{OnProgress, Progress, RateMeter, Step, as_f64};
use crate::report::{Count, Made, Size, seconds};

pub(crate) use pages::{Held, bodies, held, page};

const READERS_MAX: u16 = 1_024;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How records are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A page at a time, the next one when the one before has come.
    Pages,
    /// As a subscription, which the server fills as far as its credit goes.
    Subscription,
}

/// What to read, by how many, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReadOptions {
    /// The server's wire address, `host:port`.
    pub addr: String,
    /// The bucket of the streams.
    pub bucket: String,
    /// What the keys start with; a number follows.
    pub key_prefix: String,
    /// How many streams there are.
    pub streams: u32,
    /// How many readers, each with a connection and a thread of its own. Reader r reads streams r, r + readers and so on; with
    /// fewer streams than readers several read the same one.
    pub readers: u16,
    /// How they ask.
    pub mode: Mode,
    /// The sequence number to start at; below the trim point it is the trim point.
    pub from: u64,
    /// Most content of a page, in bytes; 0 is the server's bound.
    pub page_bytes: u32,
    /// Credit of a subscription, in bytes.
    pub credit_bytes: u32,
    /// Goes around again until this time is over; absent is once, up to the tail that a stream has when its turn comes.
    #[serde(serialize_with = "maybe_seconds")]
    pub duration: Option<Duration>,
    /// More readers, which go slowly and are left out of the numbers.
    pub slow_readers: u16,
    /// Records a second that each slow reader takes.
    pub slow_rate: f64,
    /// CPUs that the readers are pinned to in turn; empty leaves them free.
    pub cpus: Vec<usize>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            addr: "127.0.0.1:7781".to_owned(),
            bucket: "bench".to_owned(),
            key_prefix: "bench".to_owned(),
            streams: 1,
            readers: 1,
            mode: Mode::Subscription,
            from: 0,
            page_bytes: 0,
            credit_bytes: 8 << 20,
            duration: None,
            slow_readers: 0,
            slow_rate: 100.0,
            cpus: Vec::new(),
        }
    }
}

fn maybe_seconds<S: serde::Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => seconds(time, serializer),
        None => serializer.serialize_none(),
    }
}

impl ReadOptions {
    fn check(&self) -> Result<Places, BenchError> {
        let readers = u32::from(self.readers) + u32::from(self.slow_readers);
        if !(1..=u32::from(READERS_MAX)).contains(&readers) {
            return Err(BenchError::option("readers", readers, format!("1 to {READERS_MAX}, the slow ones too")));
        }
        if self.streams == 0 {
            return Err(BenchError::option("streams", 0, "at least 1"));
        }
        if self.readers == 0 && self.duration.is_none() {
            return Err(BenchError::option("duration", "absent", "set when all readers are slow"));
        }
        if self.duration.is_some_and(|time| time.is_zero()) {
            return Err(BenchError::option("duration", 0, "longer than nothing"));
        }
        if !(self.slow_rate.is_finite() && self.slow_rate >= 0.001) {
            return Err(BenchError::option("slow_rate", self.slow_rate, "at least 0.001 a second"));
        }
        Ok(Places::new(vec![self.bucket.clone()], &self.key_prefix, self.streams, 1.0)?)
    }
}

/// What the readers saw.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReadReport {
    /// When and where.
    #[serde(flatten)]
    pub made: Made,
    /// What was run.
    pub settings: ReadOptions,
    /// How long the readers took, the slow ones left out.
    pub seconds: f64,
    /// Records that were read, each batch's sum checked.
    pub records: u64,
    /// Records a second.
    pub records_per_s: f64,
    /// Content a second, in bytes.
    pub bytes_per_s: f64,
    /// Content a second of the slowest reader and of the fastest.
    pub reader_bytes_per_s: (f64, f64),
    /// Streams that were read from their start to their tail.
    pub streams_read: u64,
    /// From asking for a page, or for a subscription, to its first records, in microseconds.
    pub first_us: Quantiles,
    /// Records that the slow readers took.
    pub slow_records: u64,
    /// What a reader of this must know before believing the numbers.
    pub warnings: Vec<String>,
}

impl fmt::Display for ReadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)?;
        let ReadOptions { addr, bucket, key_prefix, streams, readers, mode, .. } = &self.settings;
        let (how, first) = match mode {
            Mode::Pages => ("pages", "page"),
            Mode::Subscription => ("subscriptions", "first"),
        };
        writeln!(
            f,
            "read       {addr}, nova://{bucket}/{key_prefix}-…, {streams} streams, {readers} readers by {how}"
        )?;
        writeln!(f, "measured   {:.2} s, {} streams read to their tail", self.seconds, self.streams_read)?;
        let (records, bytes) = (Count(self.records_per_s), Size(self.bytes_per_s));
        let (slowest, fastest) = (Size(self.reader_bytes_per_s.0), Size(self.reader_bytes_per_s.1));
        writeln!(f, "rate       {records} records/s   {bytes}/s   of a reader {slowest}/s to {fastest}/s")?;
        if self.settings.slow_readers > 0 {
            let (slow, rate) = (self.settings.slow_readers, self.settings.slow_rate);
            writeln!(f, "slow       {slow} more readers at {rate} records/s took {} records", self.slow_records)?;
        }
        writeln!(f, "\nµs          {}", Quantiles::HEADS)?;
        writeln!(f, "{first:12}{}", self.first_us)?;
        for warning in &self.warnings {
            writeln!(f, "warning    {warning}")?;
        }
        Ok(())
    }
}

/// What the readers and their caller tell each other.
#[derive(Debug)]
struct Shared {
    began: Instant,
    /// Set when the time is over, a reader failed, or all but the slow ones are done.
    is_over: AtomicBool,
    records: AtomicU64,
}

/// What one reader took.
#[derive(Debug)]
struct Took {
    records: u64,
    bytes: u64,
    streams: u64,
    elapsed: Duration,
    first: Latencies,
}

impl Took {
    fn new() -> Self {
        Self { records: 0, bytes: 0, streams: 0, elapsed: Duration::ZERO, first: Latencies::new() }
    }
}

/// Reads as the options say, and reports.
///
/// # Errors
/// [`BenchError`] of an option or of what kept a reader from its end; [`BenchError::Seam`] when records are missing.
pub fn run(options: &ReadOptions, on_progress: OnProgress<'_>) -> Result<ReadReport, BenchError> {
    let places = options.check()?;
    let made = Made::here(None);
    let shared = Shared { began: Instant::now(), is_over: AtomicBool::new(false), records: AtomicU64::new(0) };
    let readers = options.readers;
    let all = readers + options.slow_readers;
    let (fast, slow) = thread::scope(|scope| {
        let (shared, places) = (&shared, &places);
        let threads: Vec<_> = (0..all)
            .map(|number| {
                let over = |_: &BenchError| shared.is_over.store(true, Ordering::Relaxed);
                scope.spawn(move || reader::run(options, places, shared, number).inspect_err(over))
            })
            .collect();
        let (fast, slow) = threads.split_at(readers.into());
        watch(options, shared, on_progress, &|| match readers {
            0 => slow.iter().all(thread::ScopedJoinHandle::is_finished),
            _ => fast.iter().all(thread::ScopedJoinHandle::is_finished),
        });
        shared.is_over.store(true, Ordering::Relaxed);
        let mut took = threads.into_iter().map(|thread| thread.join());
        let mut part = |count: u16| {
            let part = took.by_ref().take(count.into());
            part.map(|took| took.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Result<Vec<_>, _>>()
        };
        (part(readers), part(options.slow_readers))
    });
    Ok(report(options, made, &fast?, &slow?))
}

fn report(options: &ReadOptions, made: Made, fast: &[Took], slow: &[Took]) -> ReadReport {
    let elapsed = fast.iter().map(|took| took.elapsed).max().unwrap_or_default().as_secs_f64();
    let per_s = |count: u64, seconds: f64| if seconds > 0.0 { as_f64(count) / seconds } else { 0.0 };
    let (records, bytes) = (fast.iter().map(|took| took.records).sum(), fast.iter().map(|took| took.bytes).sum());
    let mut first = Latencies::new();
    fast.iter().for_each(|took| first.merge(&took.first));
    let rates = fast.iter().map(|took| per_s(took.bytes, took.elapsed.as_secs_f64()));
    let streams_read = fast.iter().map(|took| took.streams).sum();
    let mut warnings = Vec::new();
    if !fast.is_empty() && streams_read == 0 {
        warnings.push("no stream was read to its tail in this time".to_owned());
    }
    if !fast.is_empty() && records == 0 {
        warnings.push("there was nothing to read: see --bucket, --key-prefix and --streams".to_owned());
    }
    ReadReport {
        made,
        settings: options.clone(),
        seconds: elapsed,
        records,
        records_per_s: per_s(records, elapsed),
        bytes_per_s: per_s(bytes, elapsed),
        reader_bytes_per_s: (rates.clone().fold(f64::INFINITY, f64::min).min(f64::MAX), rates.fold(0.0, f64::max)),
        streams_read,
        first_us: first.quantiles(),
        slow_records: slow.iter().map(|took| took.records).sum(),
        warnings,
    }
}

fn watch(options: &ReadOptions, shared: &Shared, on_progress: OnProgress<'_>, is_over: &dyn Fn() -> bool) {
    let (mut meter, mut due) = (RateMeter::default(), PROGRESS_EVERY);
    while !is_over() {
        thread::sleep(LOOK_EVERY);
        let elapsed = shared.began.elapsed();
        if options.duration.is_some_and(|duration| elapsed >= duration) {
            shared.is_over.store(true, Ordering::Relaxed);
        }
        if elapsed < due {
            continue;
        }
        due = elapsed + PROGRESS_EVERY;
        let answers = shared.records.load(Ordering::Relaxed);
        let percent = options.duration.map(|duration| 100.0 * elapsed.as_secs_f64() / duration.as_secs_f64());
        on_progress(&Progress {
            step: Step::Measuring,
            elapsed,
            percent,
            answers,
            answers_per_s: meter.per_s(answers, elapsed),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, ReadOptions, ReadReport, run};
    use crate::append::{self, AppendOptions};
    use crate::error::BenchError;
    use crate::tests::scripted::{Fault, Scripted};
    use std::time::Duration;

    fn filled(fault: Fault) -> Scripted {
        let server = Scripted::start(fault, 16);
        let options = AppendOptions {
            addr: server.addr.clone(),
            streams: 3,
            window: 4,
            records_per_batch: 3,
            record_bytes: 100,
            warm_up: Duration::ZERO,
            duration: Duration::from_millis(150),
            ..AppendOptions::default()
        };
        append::run(&options, None, &mut |_| ()).unwrap();
        server
    }

    fn check(server: &Scripted, options: ReadOptions) -> Result<ReadReport, BenchError> {
        run(&ReadOptions { addr: server.addr.clone(), streams: 3, ..options }, &mut |_| ())
    }

    #[test]
    fn every_stream_is_read_once_by_pages_and_by_subscriptions() {
        let server = filled(Fault::None);
        let records: u64 = server.ends().iter().sum();
        for mode in [Mode::Pages, Mode::Subscription] {
            let report = check(&server, ReadOptions { mode, readers: 2, ..ReadOptions::default() }).unwrap();
            assert_eq!((report.records, report.streams_read), (records, 3), "{report}");
            assert!((report.bytes_per_s / report.records_per_s - 100.0).abs() < 1e-6, "{report}");
            assert!(report.first_us.samples >= 3 && report.warnings.is_empty(), "{report}");
        }
    }

    #[test]
    fn slow_readers_take_their_rate_and_are_left_out() {
        let server = filled(Fault::None);
        let options = ReadOptions {
            readers: 1,
            duration: Some(Duration::from_secs(2)),
            slow_readers: 2,
            slow_rate: 10.0,
            ..ReadOptions::default()
        };
        let report = check(&server, options).unwrap();
        assert!(report.streams_read > 3, "it goes around until the time is over: {report}");
        // One frame of records comes before the first wait.
        assert!((2..200).contains(&report.slow_records), "{report}");
    }

    #[test]
    fn a_record_that_is_left_out_is_found() {
        let server = filled(Fault::Unread(1));
        let error = check(&server, ReadOptions { mode: Mode::Pages, ..ReadOptions::default() }).unwrap_err();
        assert!(matches!(error, BenchError::Seam { expected: 3, found: 6 }), "{error}");
    }

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        let server = Scripted::start(Fault::None, 16);
        let of = |options| check(&server, options).unwrap_err().to_string();
        assert!(of(ReadOptions { readers: 0, ..ReadOptions::default() }).starts_with("readers"));
        assert!(of(ReadOptions { readers: 0, slow_readers: 1, ..ReadOptions::default() }).starts_with("duration"));
        assert!(of(ReadOptions { slow_rate: 0.0, ..ReadOptions::default() }).starts_with("slow_rate"));
    }
}
