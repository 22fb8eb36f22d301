//! How long does a record take from a producer to live subscribers?
//!
//! The first bytes of each body say when it was due, so that a subscriber that is told late of what was sent late counts both.

mod followers;
mod producer;
mod sse;
mod wired;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use wire::config::Class;
use wire::names::Address;

use crate::append::ensure_bucket;
use crate::cpu::ThreadTime;
use crate::error::BenchError;
use crate::latency::{Latencies, Quantiles};
use crate::load::{Clock, ThreadUse};
use crate::progress::{OnProgress, Progress, RateMeter, Step, as_f64};
use crate::random::unique_number;
use crate::report::{GeneratorUse, Made, seconds, word};
use followers::Followers;
use producer::Producer;

const RECORD_BYTES_MAX: usize = 1 << 20;
const SUBSCRIBERS_MAX: u32 = 20_000;
/// Time beyond the run for records that are late.
const LATE_MAX: Duration = Duration::from_secs(1);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// What to append and follow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubscribeOptions {
    /// The server's wire address, `host:port`.
    pub addr: String,
    /// The bucket of the stream.
    pub bucket: String,
    /// The class that the bucket's streams start from.
    #[serde(serialize_with = "word")]
    pub class: Class,
    /// Whether to make the bucket, with create on append, when it is not there.
    pub create: bool,
    /// The stream's key; a number that no other run has follows.
    pub key_prefix: String,
    /// Where the HTTP surface is, `host:port`, to follow by server-sent events; over the wire when it is absent.
    pub sse: Option<String>,
    /// Those who follow, each on a connection of its own: 1 to 20 000.
    pub subscribers: u32,
    /// Bytes of a record's body, at least 16.
    pub record_bytes: usize,
    /// Records a second, one an append.
    pub rate: f64,
    /// How long to run before measuring.
    #[serde(rename = "warm_up_seconds", serialize_with = "seconds")]
    pub warm_up: Duration,
    /// How long to measure.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: Duration,
    /// CPUs that producer and subscribers are pinned to in turn; empty leaves them free.
    pub cpus: Vec<usize>,
}

impl Default for SubscribeOptions {
    fn default() -> Self {
        Self {
            addr: "127.0.0.1:7781".to_owned(),
            bucket: "bench".to_owned(),
            class: Class::Express,
            create: false,
            key_prefix: "bench-live".to_owned(),
            sse: None,
            subscribers: 1,
            record_bytes: 256,
            rate: 500.0,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            cpus: Vec::new(),
        }
    }
}

impl SubscribeOptions {
    fn check(&self) -> Result<(), BenchError> {
        let bytes = self.record_bytes;
        if !(Stamp::BYTES..=RECORD_BYTES_MAX).contains(&bytes) {
            return Err(BenchError::option("record_bytes", bytes, format!("{} to {RECORD_BYTES_MAX}", Stamp::BYTES)));
        }
        if !(1..=SUBSCRIBERS_MAX).contains(&self.subscribers) {
            return Err(BenchError::option("subscribers", self.subscribers, format!("1 to {SUBSCRIBERS_MAX}")));
        }
        let is_host_and_port = |at: &str| {
            at.rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok())
        };
        if let Some(at) = self.sse.as_ref().filter(|at| !is_host_and_port(at)) {
            return Err(BenchError::option(
                "sse",
                at,
                "the host and port where nova's HTTP listens, such as 127.0.0.1:8080",
            ));
        }
        let stands_in_a_path = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
        if self.sse.is_some() && !self.key_prefix.chars().all(stands_in_a_path) {
            let range = "letters, digits, '-', '.', '_' and '~' where server-sent events are followed";
            return Err(BenchError::option("key_prefix", &self.key_prefix, range));
        }
        if !(self.rate.is_finite() && self.rate >= 0.001) {
            return Err(BenchError::option("rate", self.rate, "at least 0.001 a second"));
        }
        if self.duration.is_zero() {
            return Err(BenchError::option("duration", 0, "longer than nothing"));
        }
        Ok(())
    }
}

/// How long acks and deliveries took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubscribeReport {
    /// When and where.
    #[serde(flatten)]
    pub made: Made,
    /// What was run.
    pub settings: SubscribeOptions,
    /// Records that each subscriber got, all of them in order and once.
    pub records: u64,
    /// Records that were due and never sent.
    pub unsent: u64,
    /// From when a record was due to its ack, in microseconds.
    pub ack_us: Quantiles,
    /// From when a record was due to its arrival at a subscriber, in microseconds, of all subscribers.
    pub end_to_end_us: Quantiles,
    /// End-to-end p50 less ack p50, in microseconds.
    pub behind_ack_us: Option<f64>,
    /// What producer and subscribers took themselves.
    pub generator: GeneratorUse,
    /// What a reader must know before believing the numbers.
    pub warnings: Vec<String>,
}

impl fmt::Display for SubscribeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)?;
        let SubscribeOptions { addr, bucket, key_prefix, record_bytes, rate, subscribers, sse, .. } = &self.settings;
        writeln!(
            f,
            "subscribe  {addr}, nova://{bucket}/{key_prefix}-…, {rate} records of {record_bytes} B a second, {} delivered",
            self.records
        )?;
        let by = sse.as_ref().map_or_else(|| "the wire".to_owned(), |http| format!("server-sent events of {http}"));
        writeln!(f, "followed   by {subscribers} over {by}, every record by each")?;
        writeln!(f, "\nµs          {}", Quantiles::HEADS)?;
        writeln!(f, "ack         {}", self.ack_us)?;
        writeln!(f, "end to end  {}", self.end_to_end_us)?;
        if let Some(behind) = self.behind_ack_us {
            writeln!(f, "\nbehind     the subscribers' p50 is {behind:+.1} µs from the ack's")?;
        }
        let GeneratorUse { busy_percent_max, waiting_percent_max, .. } = self.generator;
        writeln!(
            f,
            "generator  at most {busy_percent_max:.0} % of a core, {waiting_percent_max:.0} % waiting for one"
        )?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "warning    {warning}"))
    }
}

/// What producer and subscribers tell each other.
#[derive(Debug)]
struct Live {
    clock: Clock,
    has_failed: AtomicBool,
    acks: AtomicU64,
    measured_ns: u64,
    /// When no more are sent.
    end_ns: u64,
    /// Records that are due until then.
    due: u64,
    /// Those that are sent in the end: as many as are due, until it is known to be fewer.
    records: AtomicU64,
}

/// When a record was due, as the first bytes of its body, which every surface carries as they are.
#[derive(Debug)]
struct Stamp;

impl Stamp {
    const BYTES: usize = 16;

    /// Writes it.
    ///
    /// # Panics
    /// When the body is shorter than a stamp.
    fn put(due_ns: u64, body: &mut [u8]) {
        for (digit, byte) in body[..Self::BYTES].iter_mut().enumerate() {
            let four_bits = (due_ns >> (60 - 4 * digit)) & 0xf;
            *byte = b"0123456789abcdef"[four_bits as usize];
        }
    }

    fn get(body: &[u8]) -> Option<u64> {
        let digits = std::str::from_utf8(body.get(..Self::BYTES)?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    }
}

/// Appends at a low rate, follows, and reports.
///
/// # Errors
/// [`BenchError`] of what kept the run from its end, [`BenchError::Seam`] when a record came out of order.
pub fn run(options: &SubscribeOptions, on_progress: OnProgress<'_>) -> Result<SubscribeReport, BenchError> {
    options.check()?;
    if options.create {
        ensure_bucket(&options.addr, &options.bucket, options.class)?;
    }
    let number = unique_number()?;
    let address = Address::new(&options.bucket, &format!("{}-{number:016x}", options.key_prefix))?;
    let made = Made::here(None);
    let producer = Producer::open(options, &address)?;
    let followers = Followers::open(options, &address, producer.tail())?;
    let live = Live {
        clock: Clock::start(),
        has_failed: AtomicBool::new(false),
        acks: AtomicU64::new(0),
        measured_ns: crate::load::nanoseconds(options.warm_up),
        end_ns: crate::load::nanoseconds(options.warm_up + options.duration + LATE_MAX),
        due: records_of(options),
        records: AtomicU64::new(records_of(options)),
    };
    let (acks, deliveries) = thread::scope(|scope| {
        let producing = scope.spawn(|| live.took(options, 0, || producer.run(options, &live)));
        let following = scope.spawn(|| live.took(options, 1, || followers.run(options, &live)));
        watch(&live, on_progress, &|| producing.is_finished() && following.is_finished());
        (joined(producing.join()), joined(following.join()))
    });
    let ((acks, producing), (deliveries, following)) = (acks?, deliveries?);
    let (ack_us, end_to_end_us) = (acks.quantiles(), deliveries.quantiles());
    let generator = GeneratorUse::of(&[producing, following]);
    let records = live.records.load(Ordering::Relaxed);
    let unsent = live.due - records;
    let behind = (unsent > 0)
        .then(|| format!("{unsent} records that were due were never sent: acks came too slowly for this rate"));
    Ok(SubscribeReport {
        made,
        settings: options.clone(),
        records,
        unsent,
        ack_us,
        end_to_end_us,
        behind_ack_us: end_to_end_us.p50.zip(ack_us.p50).map(|(end_to_end, ack)| end_to_end - ack),
        generator,
        warnings: behind.into_iter().chain(generator.warning()).collect(),
    })
}

fn joined<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// How many records the run sends: warm-up and duration at the rate, at least one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and no run is that long")]
fn records_of(options: &SubscribeOptions) -> u64 {
    let seconds = (options.warm_up + options.duration).as_secs_f64();
    ((seconds * options.rate) as u64).max(1)
}

impl Live {
    /// Does the work of a thread on its CPU, and says what of it the thread took; lets the other one stop when it failed.
    fn took(
        &self,
        options: &SubscribeOptions,
        thread: usize,
        work: impl FnOnce() -> Result<Latencies, BenchError>,
    ) -> Result<(Latencies, ThreadUse), BenchError> {
        let (from, began) = (ThreadTime::now(), Instant::now());
        let pinned = match options.cpus.len() {
            0 => Ok(()),
            cpus => crate::cpu::pin(options.cpus[thread % cpus]),
        };
        let latencies = pinned.and_then(|()| work());
        if latencies.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        Ok((latencies?, ThreadUse { time: ThreadTime::now().since(from), elapsed: began.elapsed() }))
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Notes how long something took that was due then, if that lies in the measured span.
    fn note(&self, latencies: &mut Latencies, due_ns: u64, now_ns: u64) {
        if due_ns >= self.measured_ns {
            latencies.record(now_ns.saturating_sub(due_ns));
        }
    }
}

fn watch(live: &Live, on_progress: OnProgress<'_>, is_over: &dyn Fn() -> bool) {
    let began = Instant::now();
    let (mut meter, mut due) = (RateMeter::default(), PROGRESS_EVERY);
    while !is_over() {
        thread::sleep(Duration::from_millis(20));
        let elapsed = began.elapsed();
        if elapsed < due {
            continue;
        }
        due = elapsed + PROGRESS_EVERY;
        let answers = live.acks.load(Ordering::Relaxed);
        let is_warm = live.clock.now_ns() >= live.measured_ns;
        on_progress(&Progress {
            step: if is_warm { Step::Measuring } else { Step::WarmUp },
            elapsed,
            percent: Some(100.0 * as_f64(answers) / as_f64(live.due)),
            answers,
            answers_per_s: meter.per_s(answers, elapsed),
        });
    }
}
