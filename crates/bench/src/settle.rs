//! How long does an acked record take until the standard store holds it?

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use wire::config::Class;
use wire::ids::SeqNum;
use wire::message::{Appended, Message, StreamAnswer, StreamGet};
use wire::names::Address;

use crate::append::ensure_bucket;
use crate::dial::Dialled;
use crate::error::BenchError;
use crate::latency::{Latencies, Quantiles};
use crate::load::nanoseconds;
use crate::places::Places;
use crate::progress::{OnProgress, Progress, Step, as_f64};
use crate::random::unique_number;
use crate::report::{Count, Made, seconds};
use crate::soak::one_record;

/// Between two looks at what is not settled yet.
const LOOK_EVERY: Duration = Duration::from_millis(2);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
const STREAMS_MAX: u32 = 10_000;
/// Requests that are sent at once, and bytes of their records.
const REQUESTS_MAX: usize = 64;
const REQUEST_BYTES_MAX: usize = 4 << 20;
/// A share of the rate that was asked for below which the report says so.
const RATE_SHARE_MIN: f64 = 0.95;

/// What to append, and how long to wait for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettleOptions {
    /// The server's wire address, `host:port`.
    pub addr: String,
    /// The bucket of the streams, made (express) when it is not there.
    pub bucket: String,
    /// How many streams; each has one record that is waited for at a time.
    pub streams: u32,
    /// Bytes of a record's body.
    pub record_bytes: usize,
    /// Records a second over all streams, at most.
    pub rate: f64,
    /// How long to append.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: Duration,
    /// How long the last ones are waited for.
    #[serde(rename = "wait_max_seconds", serialize_with = "seconds")]
    pub wait_max: Duration,
}

impl SettleOptions {
    fn check(&self) -> Result<(), BenchError> {
        if !(1..=STREAMS_MAX).contains(&self.streams) {
            return Err(BenchError::option("streams", self.streams, format!("1 to {STREAMS_MAX}")));
        }
        if !(1..=1 << 20).contains(&self.record_bytes) {
            return Err(BenchError::option("record_bytes", self.record_bytes, "1 to 1048576"));
        }
        if !(self.rate.is_finite() && self.rate >= 0.001) {
            return Err(BenchError::option("rate", self.rate, "at least 0.001 a second"));
        }
        Ok(())
    }
}

/// How long settling took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettleReport {
    /// When and where.
    #[serde(flatten)]
    pub made: Made,
    /// What was run.
    pub settings: SettleOptions,
    /// Appends a second that were acked, of one record each, over the time in which they were made.
    pub appends_per_s: f64,
    /// From the call of an append to its ack, in microseconds.
    pub ack_us: Quantiles,
    /// From the ack of a record until its stream was seen settled past it, in microseconds; looks are at least 2 ms apart. Of
    /// those that were not settled at the end it is their age then, which is less than what they took.
    pub settle_us: Quantiles,
    /// Records that were not settled at the end.
    pub unsettled: u64,
}

impl fmt::Display for SettleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)?;
        let SettleOptions { addr, bucket, streams, record_bytes, rate, .. } = &self.settings;
        writeln!(
            f,
            "settle     {addr}, nova://{bucket}/…, {streams} streams, at most {rate} records of {record_bytes} B a second"
        )?;
        writeln!(f, "rate       {} records/s", Count(self.appends_per_s))?;
        writeln!(f, "\nµs          {}", Quantiles::HEADS)?;
        writeln!(f, "ack         {}", self.ack_us)?;
        writeln!(f, "settled     {}", self.settle_us)?;
        if self.appends_per_s < rate * RATE_SHARE_MIN {
            writeln!(
                f,
                "warning    the rate was not reached: each stream waits for its record; more streams carry more"
            )?;
        }
        if self.unsettled > 0 {
            writeln!(
                f,
                "warning    {} records were not settled at the end, and count at their age then",
                self.unsettled
            )?;
        }
        Ok(())
    }
}

/// A record that is acked and not yet seen settled.
struct Waiting {
    address: Address,
    end: SeqNum,
    acked_at: Instant,
    /// From its ack until it was seen settled.
    took: Option<Duration>,
}

/// A run as far as it is.
struct Run {
    dialled: Dialled,
    body: Vec<u8>,
    /// Streams of which no record is waited for.
    free: Vec<Address>,
    waiting: Vec<Waiting>,
    acks: Latencies,
    settles: Latencies,
}

/// Appends and watches streams settle, over one connection.
///
/// # Errors
/// [`BenchError`] of an option, or of what was refused.
pub fn run(options: &SettleOptions, on_progress: OnProgress<'_>) -> Result<SettleReport, BenchError> {
    options.check()?;
    ensure_bucket(&options.addr, &options.bucket, Class::Express)?;
    let prefix = format!("settle-{:016x}", unique_number()?);
    let places = Places::new(vec![options.bucket.clone()], &prefix, options.streams, 1.0)?;
    let made = Made::here(None);
    let mut run = Run {
        dialled: Dialled::connect(&options.addr)?,
        body: vec![b'x'; options.record_bytes],
        free: (0..options.streams).rev().map(|number| places.address(number)).collect::<Result<_, _>>()?,
        waiting: Vec::new(),
        acks: Latencies::new(),
        settles: Latencies::new(),
    };
    let (began, interval) = (Instant::now(), Duration::from_secs_f64(1.0 / options.rate));
    let (mut due, mut told) = (Duration::ZERO, PROGRESS_EVERY);
    loop {
        let elapsed = began.elapsed();
        let is_over = elapsed >= options.duration;
        if (is_over && run.waiting.is_empty()) || elapsed >= options.duration + options.wait_max {
            break;
        }
        let mut appends = 0;
        while !is_over && elapsed >= due && appends < run.free.len() {
            (due, appends) = (due + interval, appends + 1);
        }
        run.append(appends)?;
        run.look()?;
        if elapsed >= told {
            told = elapsed + PROGRESS_EVERY;
            let (answers, step) = (run.settles.samples(), if is_over { Step::Draining } else { Step::Measuring });
            on_progress(&Progress { step, elapsed, percent: None, answers, answers_per_s: 0.0 });
        }
        thread::sleep(LOOK_EVERY);
    }
    for waiting in &run.waiting {
        run.settles.record(nanoseconds(waiting.acked_at.elapsed()));
    }
    Ok(SettleReport {
        made,
        settings: options.clone(),
        appends_per_s: as_f64(run.acks.samples()) / options.duration.as_secs_f64().max(1e-9),
        ack_us: run.acks.quantiles(),
        settle_us: run.settles.quantiles(),
        unsettled: run.waiting.len() as u64,
    })
}

impl Run {
    /// Appends a record to each of so many free streams.
    fn append(&mut self, appends: usize) -> Result<(), BenchError> {
        let at_once = (REQUEST_BYTES_MAX / self.body.len().max(1)).clamp(1, REQUESTS_MAX);
        let addresses = self.free.split_off(self.free.len().saturating_sub(appends));
        addresses.chunks(at_once).try_for_each(|addresses| self.append_to(addresses))
    }

    fn append_to(&mut self, addresses: &[Address]) -> Result<(), BenchError> {
        let appends: Result<Vec<_>, _> = addresses.iter().map(|address| one_record(address, &self.body)).collect();
        let (appends, sent_at) = (appends?, Instant::now());
        let put = |number: usize, out: &mut Vec<u8>| {
            let (append, batch) = &appends[number];
            append.frame_with(number as u64, batch, out);
        };
        let (acks, waiting) = (&mut self.acks, &mut self.waiting);
        self.dialled.call_each("a one-shot append", appends.len(), put, |number, appended: Appended| {
            let Some(address) = addresses.get(number).cloned() else { return };
            acks.record(nanoseconds(sent_at.elapsed()));
            waiting.push(Waiting { address, end: appended.end.seq_num, acked_at: Instant::now(), took: None });
        })
    }

    /// Asks for every stream that is waited for, and takes those that are settled.
    fn look(&mut self) -> Result<(), BenchError> {
        let (dialled, waiting) = (&mut self.dialled, &mut self.waiting);
        waiting.chunks_mut(REQUESTS_MAX).try_for_each(|waiting| ask(dialled, waiting))?;
        let mut at = 0;
        while at < self.waiting.len() {
            let Some(took) = self.waiting[at].took else {
                at += 1;
                continue;
            };
            self.settles.record(nanoseconds(took));
            self.free.push(self.waiting.swap_remove(at).address);
        }
        Ok(())
    }
}

/// Notes of each stream whether it is settled past what is waited for.
fn ask(dialled: &mut Dialled, waiting: &mut [Waiting]) -> Result<(), BenchError> {
    let asked: Vec<_> = waiting.iter().map(|waiting| StreamGet { address: waiting.address.clone() }).collect();
    let put = |number: usize, out: &mut Vec<u8>| asked[number].frame(number as u64, out);
    dialled.call_each("asking for a stream", asked.len(), put, |number, answer: StreamAnswer| {
        if let Some(waiting) = waiting.get_mut(number).filter(|waiting| waiting.end <= answer.stream.settled) {
            waiting.took = Some(waiting.acked_at.elapsed());
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{SettleOptions, SettleReport, run};
    use crate::tests::scripted::{Fault, Scripted};

    fn check(fault: Fault, streams: u32, duration_ms: u64) -> SettleReport {
        let server = Scripted::start(fault, 16);
        let options = SettleOptions {
            addr: server.addr,
            bucket: "bench".to_owned(),
            streams,
            record_bytes: 64,
            rate: 2_000.0,
            duration: Duration::from_millis(duration_ms),
            wait_max: Duration::from_millis(200),
        };
        run(&options, &mut |_| ()).unwrap()
    }

    #[test]
    fn all_that_is_due_is_appended_although_looks_are_apart() {
        let report = check(Fault::None, 300, 500);
        // A record a look would be 250 at most.
        assert!(report.appends_per_s > 1_000.0 && report.unsettled == 0, "{report}");
        assert_eq!(report.settle_us.samples, report.ack_us.samples);
        assert!(report.to_string().contains("records/s"), "{report}");
    }

    #[test]
    fn what_is_not_settled_at_the_end_counts_at_its_age() {
        let report = check(Fault::Unsettled, 5, 50);
        assert_eq!((report.unsettled, report.ack_us.samples, report.settle_us.samples), (5, 5, 5), "{report}");
        assert!(report.settle_us.max.unwrap() >= 150_000.0, "{report}");
        assert!(report.to_string().contains("the rate was not reached"), "{report}");
    }
}
