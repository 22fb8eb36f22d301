//! How many appends a second does a server take, and how long does each wait for its ack?

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use wire::bucket::BucketSpec;
use wire::config::{Class, ConfigPatch};
use wire::limits::{BATCH_CONTENT_BYTES_MAX, BATCH_RECORDS_MAX};
use wire::message::{BucketAnswer, BucketEnsure};
use wire::names::BucketName;

use crate::batch::EncodedBatch;
use crate::dial::Dialled;
use crate::error::BenchError;
use crate::floors::{self, Floors};
use crate::load::{self, Load, Outcome, Pace};
use crate::progress::OnProgress;
use crate::report::{LoadReport, Made, Settings, Shape, seconds};

/// Most appends in flight on one connection.
const WINDOW_MAX: u32 = 65_536;
/// Most connections and, since each has at least one, threads.
const CONNECTIONS_MAX: u16 = 20_000;
const STREAMS_MAX: u32 = 9_999_999;

/// What to append, how often and for how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AppendOptions {
    /// The server's wire address, `host:port`.
    pub addr: String,
    /// The bucket of the streams.
    pub bucket: String,
    /// Whether to make the bucket, express and with create on append, when it is not there.
    pub create: bool,
    /// What the keys start with; a number follows.
    pub key_prefix: String,
    /// How many streams. With fewer streams than connections several sessions append to a stream, and sequence numbers
    /// are then only checked to rise.
    pub streams: u32,
    /// How many connections; stream s goes to connection s modulo connections.
    pub connections: u16,
    /// Appends in flight on a connection. Its sessions take turns round robin; none goes past the server's own window.
    pub window: u32,
    /// Bytes of a record's body.
    pub record_bytes: usize,
    /// Records of a batch; each append is one batch.
    pub records_per_batch: usize,
    /// Appends a second of all connections together, evenly spaced, whose latency counts from when each is due. Absent
    /// is a closed loop: the next append goes when an ack frees its place.
    pub rate: Option<f64>,
    /// Sends one append to each stream outside of any session, then ends: makes many streams. Excludes a rate; warm-up
    /// and duration don't matter.
    pub one_shot: bool,
    /// How long to run before measuring.
    #[serde(rename = "warm_up_seconds", serialize_with = "seconds")]
    pub warm_up: Duration,
    /// How long to measure.
    #[serde(rename = "duration_seconds", serialize_with = "seconds")]
    pub duration: Duration,
    /// Threads of the generator, at most one a connection.
    pub threads: u16,
    /// CPUs that the threads are pinned to in turn; empty leaves them free.
    pub cpus: Vec<usize>,
    /// What the records' bytes are drawn from.
    pub seed: u64,
    /// Measures the floors right before, the disk's in this directory.
    pub with_floors: Option<PathBuf>,
}

impl Default for AppendOptions {
    fn default() -> Self {
        Self {
            addr: "127.0.0.1:7781".to_owned(),
            bucket: "bench".to_owned(),
            create: false,
            key_prefix: "bench".to_owned(),
            streams: 1,
            connections: 1,
            window: 16,
            record_bytes: 256,
            records_per_batch: 1,
            rate: None,
            one_shot: false,
            warm_up: Duration::from_secs(2),
            duration: Duration::from_secs(10),
            threads: 1,
            cpus: Vec::new(),
            seed: 1,
            with_floors: None,
        }
    }
}

impl AppendOptions {
    fn check(&self) -> Result<(), BenchError> {
        let must = |is_met: bool, option, value: &dyn fmt::Display, range: String| {
            if is_met { Ok(()) } else { Err(BenchError::option(option, value, range)) }
        };
        let within =
            |option, value: u64, max: u64| must((1..=max).contains(&value), option, &value, format!("1 to {max}"));
        within("streams", self.streams.into(), STREAMS_MAX.into())?;
        within("connections", self.connections.into(), CONNECTIONS_MAX.into())?;
        within("window", self.window.into(), WINDOW_MAX.into())?;
        within("threads", self.threads.into(), self.connections.into())?;
        within("record_bytes", self.record_bytes as u64, BATCH_CONTENT_BYTES_MAX as u64)?;
        let fit = (BATCH_CONTENT_BYTES_MAX / self.record_bytes).min(BATCH_RECORDS_MAX);
        within("records_per_batch", self.records_per_batch as u64, fit as u64)?;
        let is_zero = self.duration.is_zero();
        must(!is_zero, "duration", &"0", "longer than nothing".to_owned())?;
        if let Some(rate) = self.rate {
            let is_rate = rate.is_finite() && rate >= 0.001;
            must(is_rate, "rate", &rate, "at least 0.001 a second".to_owned())?;
            must(!self.one_shot, "rate", &rate, "absent with one_shot".to_owned())?;
        }
        Ok(())
    }

    /// The load that the options ask for.
    pub(crate) fn load(&self) -> Result<Load, BenchError> {
        self.check()?;
        let pace = match self.rate {
            _ if self.one_shot => Pace::EachOnce,
            Some(per_s) => Pace::Constant { per_s },
            None => Pace::Closed,
        };
        let load = Load {
            addr: self.addr.clone(),
            bucket: self.bucket.clone(),
            key_prefix: self.key_prefix.clone(),
            streams: self.streams,
            connections: self.connections,
            window: self.window,
            batch: EncodedBatch::printable(self.records_per_batch, self.record_bytes, self.seed)?,
            pace,
            warm_up: if self.one_shot { Duration::ZERO } else { self.warm_up },
            duration: self.duration,
            threads: self.threads,
            cpus: self.cpus.clone(),
            drain_max: load::DRAIN_MAX,
        };
        load.check_names()?;
        Ok(load)
    }
}

impl fmt::Display for AppendOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, bucket, streams, connections, window, record_bytes, records_per_batch, .. } = self;
        write!(
            f,
            "{addr}, nova://{bucket}/{}-…, {streams} streams, {connections} connections × window {window}, \
             {records_per_batch} × {record_bytes} B a batch, ",
            self.key_prefix
        )?;
        match self.rate {
            _ if self.one_shot => write!(f, "one shot a stream"),
            Some(rate) => write!(f, "open loop at {rate} appends/s"),
            None => write!(f, "closed loop"),
        }
    }
}

/// Appends as the options say, and reports.
///
/// # Errors
/// [`BenchError`] of what kept the run from its end; [`BenchError::Violations`], with the report inside, when the run came
/// to its end and answers broke a promise.
pub fn run(options: &AppendOptions, on_progress: OnProgress<'_>) -> Result<LoadReport, BenchError> {
    let load = options.load()?;
    if options.create {
        ensure_bucket(&options.addr, &options.bucket)?;
    }
    let made = Made::here(options.with_floors.as_deref());
    let floors = match &options.with_floors {
        Some(directory) => Some(floors::measure(options, directory, on_progress)?),
        None => None,
    };
    let outcome = load::run(&load, on_progress)?;
    let settings = Settings::Append(options.clone());
    let report = LoadReport::new(made, settings, shape(&load), &outcome);
    verdict(with_floors(report, floors), &outcome)
}

fn with_floors(mut report: LoadReport, floors: Option<Floors>) -> LoadReport {
    report.floors = floors.map(|floors| floors.compared_to(&report));
    report
}

/// What the numbers of a load are of.
pub(crate) fn shape(load: &Load) -> Shape {
    Shape {
        records_per_batch: load.batch.records,
        content_bytes: load.batch.content_bytes,
        in_flight_wanted: u64::from(load.connections) * u64::from(load.window),
        rate_wanted: match load.pace {
            Pace::Constant { per_s } => Some(per_s),
            Pace::Closed | Pace::EachOnce => None,
        },
    }
}

/// The report, unless answers broke a promise.
pub(crate) fn verdict(report: LoadReport, outcome: &Outcome) -> Result<LoadReport, BenchError> {
    match &outcome.tally.first_violation {
        None => Ok(report),
        Some(first) => Err(BenchError::Violations {
            violations: outcome.tally.violations,
            first: first.clone(),
            report: Box::new(report),
        }),
    }
}

/// Makes the bucket, unless it is there.
pub(crate) fn ensure_bucket(addr: &str, bucket: &str) -> Result<(), BenchError> {
    let spec = BucketSpec {
        create_stream_on_append: true,
        defaults: ConfigPatch { class: Some(Class::Express), ..ConfigPatch::default() },
        ..BucketSpec::named(BucketName::new(bucket)?)
    };
    let mut dialled = Dialled::connect(addr)?;
    dialled.call::<BucketAnswer>("ensuring the bucket", &BucketEnsure { spec }).map(|_| ())
}
