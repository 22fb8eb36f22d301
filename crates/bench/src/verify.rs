//! Does a star keep what it acks, whatever happens to it or to this process?

pub(crate) mod journal;
mod judge;
mod look;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wire::config::Class;
use wire::names::Address;
use wire::reason::Reason;

pub use judge::Fault;

use crate::append::{bucket_of, ensure_bucket};
use crate::chain::{BODY_BYTES_MIN, Link};
use crate::dial::Dialled;
use crate::error::BenchError;
use crate::places::Places;
use crate::progress::{OnProgress, Progress, RateMeter, Step};
use crate::random::unique_number;
use crate::report::{Made, seconds, word};
use journal::Journal;
use judge::{Judge, Known};
use look::{Looked, judge_to_tail};
pub(crate) use writer::is_away;
use writer::{Writer, Written};

const LOOK_EVERY: Duration = Duration::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// A reader rests this long once it has gone through all streams.
const REST: Duration = Duration::from_millis(20);
const WRITERS_MAX: u16 = 256;
const STREAMS_MAX: u32 = 1_000_000;

/// What to write, check, and where to remember it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerifyOptions {
    /// The server's wire address, `host:port`.
    pub addr: String,
    /// The bucket of the streams; absent is `bench`, of Standard streams `bench-standard`.
    pub bucket: Option<String>,
    /// The class that the bucket's streams start from.
    #[serde(serialize_with = "word")]
    pub class: Class,
    /// How many streams.
    pub streams: u32,
    /// How many writers, each with a thread, two connections and a share of the streams.
    pub writers: u16,
    /// Bytes of a record, at least 32.
    pub record_bytes: usize,
    /// Records of an append.
    pub records_per_batch: usize,
    /// How long to write; zero only checks what an earlier run wrote.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: Duration,
    /// A directory for the journal. One that holds a journal goes on with its streams, and with its numbers of streams and writers.
    pub journal: PathBuf,
    /// How long the server may be away.
    #[serde(rename = "outage_max_seconds", serialize_with = "seconds")]
    pub outage_max: Duration,
}

impl VerifyOptions {
    fn check(&self) -> Result<(), BenchError> {
        let within = |option, value: u64, range: std::ops::RangeInclusive<u64>| match range.contains(&value) {
            true => Ok(()),
            false => Err(BenchError::option(option, value, format!("{} to {}", range.start(), range.end()))),
        };
        within("streams", self.streams.into(), 1..=STREAMS_MAX.into())?;
        within("writers", self.writers.into(), 1..=u64::from(WRITERS_MAX).min(self.streams.into()))?;
        within("record_bytes", self.record_bytes as u64, BODY_BYTES_MIN as u64..=1 << 20)?;
        let fit = (1 << 20) / self.record_bytes as u64;
        within("records_per_batch", self.records_per_batch as u64, 1..=fit.clamp(1, 1_000))
    }
}

/// What a journal is of; beside it, so that a later run goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Journalled {
    bucket: String,
    key_prefix: String,
    streams: u32,
    writers: u16,
}

impl Journalled {
    /// That of an earlier run, or a new one if there is something to write.
    fn open(options: &VerifyOptions) -> Result<Self, BenchError> {
        let path = options.journal.join("run.json");
        let failed =
            |action, path: &std::path::Path, source| BenchError::File { action, path: path.to_owned(), source };
        match fs::read_to_string(&path) {
            Ok(text) => return serde_json::from_str(&text).map_err(|error| failed("reading", &path, error.into())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("reading", &path, error)),
            Err(_) if options.duration.is_zero() => {
                let range = "a directory with the run.json of an earlier run, of which duration 0 checks what it wrote";
                return Err(BenchError::option("journal", options.journal.display(), range));
            }
            Err(_) => {}
        }
        fs::create_dir_all(&options.journal).map_err(|source| failed("making", &options.journal, source))?;
        let new = Self {
            bucket: options.bucket.clone().unwrap_or_else(|| bucket_of(options.class)),
            key_prefix: format!("verify-{:016x}", unique_number()?),
            streams: options.streams,
            writers: options.writers,
        };
        let text = serde_json::to_string(&new).map_err(|error| failed("writing", &path, error.into()))?;
        fs::write(&path, text)
            .and_then(|()| fs::File::open(&path)?.sync_all())
            .map_err(|source| failed("writing", &path, source))?;
        Ok(new)
    }
}

/// A fault and the stream that has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The stream.
    pub stream: String,
    /// What is wrong.
    #[serde(flatten)]
    pub fault: Fault,
}

/// What was written and checked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerifyReport {
    /// When and where.
    #[serde(flatten)]
    pub made: Made,
    /// What was run.
    pub settings: VerifyOptions,
    /// Records whose acks are in the journal, of earlier runs too.
    pub records_acked: u64,
    /// Records that were read from the first to the tail at the end, of all streams.
    pub records_checked: u64,
    /// Records that the readers took meanwhile.
    pub records_read: u64,
    /// Times that the star was killed.
    pub kills: u64,
    /// Times that a writer found the server away.
    pub outages: u64,
    /// Refusals by reason.
    pub refusals: BTreeMap<&'static str, u64>,
    /// What is wrong, at most one fault a stream.
    pub faults: Vec<Found>,
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)?;
        let VerifyOptions { addr, streams, writers, journal, .. } = &self.settings;
        writeln!(f, "verify     {addr}, {streams} streams, {writers} writers, journal in {}", journal.display())?;
        writeln!(f, "acked      {} records", self.records_acked)?;
        writeln!(
            f,
            "checked    {} records at the end, {} were read meanwhile",
            self.records_checked, self.records_read
        )?;
        writeln!(f, "outages    {} kills, writers found the server away {} times", self.kills, self.outages)?;
        for (reason, count) in &self.refusals {
            writeln!(f, "refused    {count} × {reason}")?;
        }
        match self.faults.len() {
            0 => writeln!(f, "whole      every record that was acked is there, once and in order")?,
            _ => self
                .faults
                .iter()
                .try_for_each(|Found { stream, fault }| writeln!(f, "FAULT      {stream}: {fault}"))?,
        }
        Ok(())
    }
}

/// What the threads of a run tell each other.
struct Shared {
    is_over: AtomicBool,
    acks: Vec<Mutex<Journal>>,
    reads: Mutex<Journal>,
    records_read: AtomicU64,
    outages: AtomicU64,
    acked: AtomicU64,
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    faults: Mutex<BTreeMap<String, Fault>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn fault(&self, address: &Address, fault: Fault) {
        locked(&self.faults).entry(address.to_string()).or_insert(fault);
        // One fault is a verdict; what comes after it may be its consequence.
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn count_outage(&self) {
        self.outages.fetch_add(1, Ordering::Relaxed);
    }

    fn count_refusal(&self, reason: Reason) {
        *locked(&self.refusals).entry(reason.word()).or_default() += 1;
    }

    /// Notes an ack durably.
    fn note_ack(&self, writer: usize, stream: u32, link: Link) -> Result<(), BenchError> {
        self.acked.fetch_add(1, Ordering::Relaxed);
        locked(&self.acks[writer]).note(stream, link, true)
    }

    /// What of a stream is acked, with its writer's number.
    fn acked_mark(&self, stream: u32) -> Link {
        let writer = usize::try_from(stream).unwrap_or(0) % self.acks.len();
        locked(&self.acks[writer]).latest().get(&stream).copied().unwrap_or_default()
    }

    /// How far a stream was read.
    fn read_mark(&self, stream: u32) -> Link {
        locked(&self.reads).latest().get(&stream).copied().unwrap_or_default()
    }
}

/// Kills the star and starts it again, at the address where it was.
pub type Kill<'a> = &'a mut dyn FnMut() -> Result<(), BenchError>;

/// Writes and reads as the options say, with a kill every so often if one is given, then reads every stream from its first record to its
/// tail.
///
/// # Errors
/// [`BenchError`] of what kept the run from its end; with the report inside [`BenchError::Unkept`] when a promise was broken, and
/// [`BenchError::Unchecked`] when there was no record to check.
pub fn run(
    options: &VerifyOptions,
    kill: Option<(Duration, Kill<'_>)>,
    on_progress: OnProgress<'_>,
) -> Result<VerifyReport, BenchError> {
    options.check()?;
    let run = Journalled::open(options)?;
    ensure_bucket(&options.addr, &run.bucket, options.class)?;
    let places = Places::new(vec![run.bucket.clone()], &run.key_prefix, run.streams, 1.0)?;
    let open = |name: String| Journal::open(&options.journal.join(name)).map(Mutex::new);
    let shared = Shared {
        is_over: AtomicBool::new(options.duration.is_zero()),
        acks: (0..run.writers).map(|writer| open(format!("acks-{writer}"))).collect::<Result<_, _>>()?,
        reads: open("reads".to_owned())?,
        records_read: AtomicU64::new(0),
        outages: AtomicU64::new(0),
        acked: AtomicU64::new(0),
        refusals: Mutex::default(),
        faults: Mutex::default(),
    };
    let settings = VerifyOptions { streams: run.streams, writers: run.writers, ..options.clone() };
    let made = Made::here(None);
    let kills = thread::scope(|scope| {
        let (shared, places, settings) = (&shared, &places, &settings);
        let ends = move |outcome: Result<(), BenchError>| {
            outcome.inspect_err(|_| shared.is_over.store(true, Ordering::Relaxed))
        };
        let writers =
            (0..run.writers).map(|number| scope.spawn(move || ends(written(settings, shared, places, number))));
        let mut threads: Vec<_> = writers.collect();
        threads.push(scope.spawn(move || ends(follow(settings, shared, places))));
        let kills =
            watch(settings, shared, kill, on_progress, &|| threads.iter().all(thread::ScopedJoinHandle::is_finished));
        shared.is_over.store(true, Ordering::Relaxed);
        let ended =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.fold(Ok(()), Result::and).and(kills)
    })?;
    let records_checked = check_all(&settings, &shared, &places)?;
    report(made, settings, shared, (records_checked, kills))
}

fn report(
    made: Made,
    settings: VerifyOptions,
    shared: Shared,
    (records_checked, kills): (u64, u64),
) -> Result<VerifyReport, BenchError> {
    let faults = shared.faults.into_inner().unwrap_or_else(PoisonError::into_inner);
    let acked = shared.acks.iter().map(|acks| locked(acks).latest().values().map(|link| link.place).sum::<u64>()).sum();
    let report = VerifyReport {
        made,
        settings,
        records_acked: acked,
        records_checked,
        records_read: shared.records_read.into_inner(),
        kills,
        outages: shared.outages.into_inner(),
        refusals: shared.refusals.into_inner().unwrap_or_else(PoisonError::into_inner),
        faults: faults.into_iter().map(|(stream, fault)| Found { stream, fault }).collect(),
    };
    match report.faults.first() {
        None if report.records_checked == 0 => Err(BenchError::Unchecked { report: Box::new(report) }),
        None => Ok(report),
        Some(Found { stream, fault }) => {
            Err(BenchError::Unkept { first: format!("{stream}: {fault}"), report: Box::new(report) })
        }
    }
}

fn written(options: &VerifyOptions, shared: &Shared, places: &Places, number: u16) -> Result<(), BenchError> {
    let mut streams = Vec::new();
    for stream in (u32::from(number)..places.streams()).step_by(options.writers.into()) {
        streams.push(Written::new(stream, places.address(stream)?, shared.acked_mark(stream)));
    }
    Writer { options, shared, number: number.into(), streams, lines: None }.run()
}

/// Reads every stream on from where it was read to, again and again, and remembers what it got.
fn follow(options: &VerifyOptions, shared: &Shared, places: &Places) -> Result<(), BenchError> {
    let (mut line, mut judges) = (None, BTreeMap::new());
    while !shared.is_over() {
        for stream in 0..places.streams() {
            if shared.is_over() {
                return Ok(());
            }
            let judge = judges.entry(stream).or_insert_with(|| Judge::from(shared.read_mark(stream)));
            match follow_one(options, shared, &mut line, (stream, &places.address(stream)?, judge)) {
                Err(error) if is_away(&error) => {
                    line = None;
                    thread::sleep(REST);
                }
                other => other?,
            }
        }
        thread::sleep(REST);
    }
    Ok(())
}

fn follow_one(
    options: &VerifyOptions,
    shared: &Shared,
    line: &mut Option<Dialled>,
    (stream, address, judge): (u32, &Address, &mut Judge),
) -> Result<(), BenchError> {
    let line = match line {
        Some(line) => line,
        None => line.insert(Dialled::connect(&options.addr)?),
    };
    let (read, acked) = (judge.link, shared.acked_mark(stream));
    if look::tail(line, address)?.get() < acked.place {
        // From what is acked on, so that it is told as what it is.
        if let Looked::Fault(fault) = judge_to_tail(line, address, Judge::from(acked))? {
            shared.fault(address, fault);
        }
        return Ok(());
    }
    match judge_to_tail(line, address, judge.clone().with_marks([(Known::Acked, acked)]))? {
        Looked::Whole(looked) if looked.link != read => {
            shared.records_read.fetch_add(looked.link.place - read.place, Ordering::Relaxed);
            *judge = looked;
            locked(&shared.reads).note(stream, judge.link, false)?;
        }
        Looked::Whole(_) => {}
        Looked::Fault(Fault::Loss { found, .. }) if found >= acked.place => {
            shared.fault(address, Fault::ReadThenLost { place: found });
        }
        Looked::Fault(fault) => shared.fault(address, fault),
    }
    Ok(())
}

/// Reads all streams from their first records to their tails.
fn check_all(options: &VerifyOptions, shared: &Shared, places: &Places) -> Result<u64, BenchError> {
    let (mut line, mut records) = (Dialled::connect(&options.addr)?, 0);
    for stream in 0..places.streams() {
        let address = places.address(stream)?;
        let (acked, read) = (shared.acked_mark(stream), shared.read_mark(stream));
        if acked.place == 0 && read.place == 0 {
            continue;
        }
        let judge = Judge::from(Link::default()).with_marks([(Known::Read, read), (Known::Acked, acked)]);
        let fault = match judge_to_tail(&mut line, &address, judge)? {
            Looked::Whole(judge) if judge.link.place < acked.place => {
                Some(Fault::Loss { acked: acked.place, found: judge.link.place })
            }
            Looked::Whole(judge) if judge.link.place < read.place => {
                Some(Fault::ReadThenLost { place: judge.link.place })
            }
            Looked::Whole(judge) => {
                records += judge.link.place;
                None
            }
            Looked::Fault(fault) => Some(fault),
        };
        if let Some(fault) = fault {
            shared.fault(&address, fault);
        }
    }
    Ok(records)
}

/// Waits for the time to be over, kills as often as is wanted, and answers how often that was.
fn watch(
    options: &VerifyOptions,
    shared: &Shared,
    mut kill: Option<(Duration, Kill<'_>)>,
    on_progress: OnProgress<'_>,
    is_over: &dyn Fn() -> bool,
) -> Result<u64, BenchError> {
    let (began, mut meter, mut due) = (Instant::now(), RateMeter::default(), PROGRESS_EVERY);
    let (mut kills, mut kill_due) = (0, kill.as_ref().map_or(Duration::MAX, |(every, _)| *every));
    while !is_over() && !shared.is_over() {
        thread::sleep(LOOK_EVERY);
        let elapsed = began.elapsed();
        if let Some((every, kill)) = kill.as_mut().filter(|_| elapsed >= kill_due) {
            kill()?;
            kills += 1;
            kill_due = began.elapsed() + *every;
        }
        if elapsed >= options.duration {
            break;
        }
        if elapsed >= due {
            due = elapsed + PROGRESS_EVERY;
            let answers = shared.acked.load(Ordering::Relaxed);
            let percent = Some(100.0 * elapsed.as_secs_f64() / options.duration.as_secs_f64());
            let answers_per_s = meter.per_s(answers, elapsed);
            on_progress(&Progress { step: Step::Measuring, elapsed, percent, answers, answers_per_s });
        }
    }
    Ok(kills)
}

#[cfg(test)]
mod tests;
