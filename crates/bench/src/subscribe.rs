//! How long does a record take from a producer to a live subscriber?

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use wire::batch::{BatchBuilder, VerifiedBatch};
use wire::config::Class;
use wire::entry::Entry;
use wire::frame::{self, Frame, FrameError, Kind};
use wire::hot::{AppendHead, RecordsHead, walk_acks};
use wire::ids::{BatchNo, ProducerId, SeqNum};
use wire::message::{AppendRefused, Credit, Open, Opened, Start, Subscribe, Subscribed};
use wire::names::{Address, FencingToken};

use crate::append::ensure_bucket;
use crate::dial::{Dialled, decoded};
use crate::error::BenchError;
use crate::latency::{Latencies, Quantiles};
use crate::load::Clock;
use crate::progress::{OnProgress, Progress, RateMeter, Step, as_f64};
use crate::random::{Random, unique_number};
use crate::report::{Made, seconds, word};

/// The send time stands in the first bytes of a body.
const STAMP_BYTES: usize = 8;
const RECORD_BYTES_MAX: usize = 1 << 20;
const SUBSCRIPTION: u32 = 1;
const CREDIT_BYTES: u32 = 4 << 20;
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
    /// Bytes of a record's body, at least 8.
    pub record_bytes: usize,
    /// Records a second, one an append, one in flight.
    pub rate: f64,
    /// How long to run before measuring.
    #[serde(rename = "warm_up_seconds", serialize_with = "seconds")]
    pub warm_up: Duration,
    /// How long to measure.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: Duration,
    /// CPUs that producer and subscriber are pinned to in turn; empty leaves them free.
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
        let (bytes, range) = (self.record_bytes, STAMP_BYTES..=RECORD_BYTES_MAX);
        if !range.contains(&bytes) {
            let range = format!("{STAMP_BYTES} to {RECORD_BYTES_MAX}");
            return Err(BenchError::option("record_bytes", bytes, range));
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
    /// Records that were delivered, all of them in order and once.
    pub records: u64,
    /// From the send of a record to its ack, in microseconds.
    pub ack_us: Quantiles,
    /// From the send of a record to its arrival at the subscriber, in microseconds.
    pub end_to_end_us: Quantiles,
    /// End-to-end p50 less ack p50, in microseconds.
    pub behind_ack_us: Option<f64>,
}

impl fmt::Display for SubscribeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)?;
        let SubscribeOptions { addr, bucket, key_prefix, record_bytes, rate, .. } = &self.settings;
        writeln!(
            f,
            "subscribe  {addr}, nova://{bucket}/{key_prefix}-…, {rate} records of {record_bytes} B a second, {} delivered",
            self.records
        )?;
        writeln!(f, "\nµs          {}", Quantiles::HEADS)?;
        writeln!(f, "ack         {}", self.ack_us)?;
        writeln!(f, "end to end  {}", self.end_to_end_us)?;
        if let Some(behind) = self.behind_ack_us {
            writeln!(f, "\nbehind     the subscriber's p50 is {behind:+.1} µs from the ack's")?;
        }
        Ok(())
    }
}

/// What producer and subscriber tell each other.
#[derive(Debug)]
struct Live {
    clock: Clock,
    has_failed: AtomicBool,
    acks: AtomicU64,
    measured_ns: u64,
    records: u64,
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
    let subscriber = Subscriber::open(options, &address, producer.opened.tail.seq_num)?;
    let live = Live {
        clock: Clock::start(),
        has_failed: AtomicBool::new(false),
        acks: AtomicU64::new(0),
        measured_ns: crate::load::nanoseconds(options.warm_up),
        records: records_of(options),
    };
    let (acks, deliveries) = thread::scope(|scope| {
        let producing = scope.spawn(|| live.note(producer.run(options, &live)));
        let following = scope.spawn(|| live.note(subscriber.run(options, &live)));
        watch(&live, on_progress, &|| producing.is_finished() && following.is_finished());
        (joined(producing.join()), joined(following.join()))
    });
    let (acks, deliveries) = (acks?, deliveries?);
    let (ack_us, end_to_end_us) = (acks.quantiles(), deliveries.quantiles());
    Ok(SubscribeReport {
        made,
        settings: options.clone(),
        records: live.records,
        ack_us,
        end_to_end_us,
        behind_ack_us: end_to_end_us.p50.zip(ack_us.p50).map(|(end_to_end, ack)| end_to_end - ack),
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
    /// Lets the other thread stop when this one failed.
    fn note<T>(&self, result: Result<T, BenchError>) -> Result<T, BenchError> {
        if result.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        result
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
            percent: Some(100.0 * as_f64(answers) / as_f64(live.records)),
            answers,
            answers_per_s: meter.per_s(answers, elapsed),
        });
    }
}

fn pin(options: &SubscribeOptions, thread: usize) -> Result<(), BenchError> {
    match options.cpus.len() {
        0 => Ok(()),
        cpus => crate::cpu::pin(options.cpus[thread % cpus]),
    }
}

#[derive(Debug)]
struct Producer {
    dialled: Dialled,
    opened: Opened,
}

impl Producer {
    fn open(options: &SubscribeOptions, address: &Address) -> Result<Self, BenchError> {
        let mut dialled = Dialled::connect(&options.addr)?;
        let open = Open {
            address: address.clone(),
            producer: ProducerId::new(unique_number()?),
            fencing_token: FencingToken::default(),
            resume: None,
        };
        let opened = dialled.call("opening a session", &open)?;
        Ok(Self { dialled, opened })
    }

    fn run(mut self, options: &SubscribeOptions, live: &Live) -> Result<Latencies, BenchError> {
        pin(options, 0)?;
        let mut latencies = Latencies::new();
        let mut body = vec![0; options.record_bytes];
        Random::new(1).fill_printable(&mut body);
        let interval = Duration::from_secs_f64(1.0 / options.rate);
        let mut due = Duration::ZERO;
        for no in 1..=live.records {
            let now = Duration::from_nanos(live.clock.now_ns());
            thread::sleep(due.saturating_sub(now));
            due += interval;
            if live.has_failed.load(Ordering::Relaxed) {
                break;
            }
            let sent_ns = self.append(live, no, &mut body)?;
            self.wait_for_ack(no)?;
            note_since(&mut latencies, sent_ns, live.clock.now_ns(), live.measured_ns);
            live.acks.store(no, Ordering::Relaxed);
        }
        Ok(latencies)
    }

    /// Sends a record that says when it was sent.
    fn append(&mut self, live: &Live, no: u64, body: &mut [u8]) -> Result<u64, BenchError> {
        let sent_ns = live.clock.now_ns();
        body[..STAMP_BYTES].copy_from_slice(&sent_ns.to_le_bytes());
        let (mut builder, mut batch) = (BatchBuilder::new(), Vec::new());
        builder.push::<&[u8], &[u8]>(None, &[], body)?;
        let head = AppendHead {
            session: self.opened.session,
            no: BatchNo::new(no),
            match_seq_num: None,
            resent: false,
            batch_crc: builder.finish(&mut batch)?,
        };
        self.dialled.send_with(|out| {
            let open = frame::begin(out);
            out.extend_from_slice(&head.encode());
            let open = open.head_ends(out);
            out.extend_from_slice(&batch);
            open.end(Kind::Append, no, out);
        })?;
        Ok(sent_ns)
    }

    fn wait_for_ack(&mut self, no: u64) -> Result<(), BenchError> {
        let mut is_acked = false;
        while !is_acked {
            is_acked = self.dialled.next(|frame| is_ack_of(frame, no))?;
        }
        Ok(())
    }
}

fn is_ack_of(frame: &Frame<'_>, no: u64) -> Result<bool, BenchError> {
    if frame.kind == Kind::AppendRefused {
        let AppendRefused { refusal, .. } = decoded(frame, "an append was in flight")?;
        return Err(BenchError::Refused { request: "an append", refusal });
    }
    if frame.kind != Kind::Acks {
        return Err(BenchError::Unexpected { found: frame.kind, awaited: "an append was in flight" });
    }
    let mut is_acked = false;
    walk_acks(frame.head, |_, ack| is_acked |= ack.no.get() == no).map_err(|_| body_of(frame))?;
    Ok(is_acked)
}

fn body_of(frame: &Frame<'_>) -> BenchError {
    BenchError::Frame(FrameError::Body { kind: frame.kind })
}

#[derive(Debug)]
struct Subscriber {
    dialled: Dialled,
    next: SeqNum,
}

impl Subscriber {
    fn open(options: &SubscribeOptions, address: &Address, from: SeqNum) -> Result<Self, BenchError> {
        let mut dialled = Dialled::connect(&options.addr)?;
        let subscribe = Subscribe {
            address: address.clone(),
            start: Start::SeqNum(from),
            clamp: false,
            subscription: SUBSCRIPTION,
            credit_bytes: CREDIT_BYTES,
            resume: None,
        };
        let subscribed: Subscribed = dialled.call("subscribing", &subscribe)?;
        if subscribed.start != from {
            return Err(seam(from, subscribed.start));
        }
        Ok(Self { dialled, next: from })
    }

    fn run(mut self, options: &SubscribeOptions, live: &Live) -> Result<Latencies, BenchError> {
        pin(options, 1)?;
        // Records may be far apart: what is waited for at most is the time between two, and an answer's.
        let interval = Duration::from_secs_f64(1.0 / options.rate);
        self.dialled.set_answer_max(interval + crate::dial::ANSWER_MAX)?;
        let end = self.next.after(live.records);
        let mut latencies = Latencies::new();
        while self.next < end && !live.has_failed.load(Ordering::Relaxed) {
            let bytes = self.follow(live, &mut latencies)?;
            if bytes > 0 {
                self.dialled.send(&Credit { subscription: SUBSCRIPTION, bytes })?;
            }
        }
        Ok(latencies)
    }

    /// Takes the next frame of records and answers how many bytes of credit it took.
    fn follow(&mut self, live: &Live, latencies: &mut Latencies) -> Result<u32, BenchError> {
        let (reached, payload_bytes) = self.dialled.next(|frame| {
            let (now_ns, from_ns) = (live.clock.now_ns(), live.measured_ns);
            let on_sent = |sent_ns: u64| note_since(latencies, sent_ns, now_ns, from_ns);
            Ok((delivered(frame, self.next, on_sent)?, frame.payload.len()))
        })?;
        self.next = reached;
        Ok(u32::try_from(payload_bytes).unwrap_or(u32::MAX))
    }
}

/// Notes how long something took, if it began in the measured span.
fn note_since(latencies: &mut Latencies, sent_ns: u64, now_ns: u64, measured_ns: u64) {
    if sent_ns >= measured_ns {
        latencies.record(now_ns.saturating_sub(sent_ns));
    }
}

/// Looks at the records of a frame, which must begin at `next`; answers where the next frame must begin.
fn delivered(frame: &Frame<'_>, next: SeqNum, mut on_sent: impl FnMut(u64)) -> Result<SeqNum, BenchError> {
    if frame.kind != Kind::Records {
        return Err(BenchError::Unexpected { found: frame.kind, awaited: "records were due" });
    }
    let head = RecordsHead::decode(frame.head).map_err(|_| body_of(frame))?;
    let (mut at, mut reached) = (0, next);
    while at < frame.payload.len() {
        let (entry, bytes) = Entry::decode(&frame.payload[at..])?;
        at += bytes;
        let Entry::Batch { head, batch, .. } = entry else {
            continue;
        };
        if head.first != reached {
            return Err(seam(reached, head.first));
        }
        for record in &VerifiedBatch::verify(batch, head.batch_crc)? {
            let stamp = record.body.first_chunk::<STAMP_BYTES>();
            on_sent(u64::from_le_bytes(*stamp.ok_or_else(|| body_of(frame))?));
        }
        reached = head.end().seq_num;
    }
    if head.end != reached {
        return Err(seam(reached, head.end));
    }
    Ok(reached)
}

fn seam(expected: SeqNum, found: SeqNum) -> BenchError {
    BenchError::Seam { expected: expected.get(), found: found.get() }
}
