//! How many appends a second does a server take, and how long does each wait for its ack?

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use wire::bucket::{BucketPatch, BucketSpec};
use wire::config::{Class, ConfigPatch};
use wire::limits::{BATCH_CONTENT_BYTES_MAX, BATCH_RECORDS_MAX};
use wire::message::{BucketAnswer, BucketEnsure, BucketUpdate};
use wire::names::{BucketName, NameError};

use crate::arrivals::Arrivals;
use crate::batch::Batches;
use crate::dial::Dialled;
use crate::error::BenchError;
use crate::files::{Files, Histograms};
use crate::floors::{self, Floors};
use crate::load::{self, Load, Outcome, Pace, Slice};
use crate::places::Places;
use crate::progress::OnProgress;
use crate::report::{LoadReport, Made, Second, Settings, Shape, seconds};
use crate::server::{self, ServerFacts};
use crate::shape::{Sizes, Spread};
use crate::start_at::StartAt;
use crate::store::StoreReport;

/// Most appends in flight on one connection.
const WINDOW_MAX: u32 = 65_536;
/// Most connections and, since each has at least one, threads.
const CONNECTIONS_MAX: u16 = 20_000;
/// Seconds that a report tells one by one: a day.
const TIMELINE_MAX: usize = 86_400;
const STREAMS_MAX: u32 = 1_000_000_000;

/// What to append, how often and for how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AppendOptions {
    /// The server's wire address, `host:port`.
    pub addr: String,
    /// The bucket of the streams; absent is `bench`, of Standard streams `bench-standard`. With several classes each has a
    /// bucket of its own, whose name ends in the class.
    pub bucket: Option<String>,
    /// The classes of the streams, which are shared out evenly over them. With `create`, that is what the buckets' streams
    /// start from.
    #[serde(serialize_with = "words")]
    pub classes: Vec<Class>,
    /// Whether to make the buckets, with create on append, when they are not there.
    pub create: bool,
    /// What the keys start with; a number follows.
    pub key_prefix: String,
    /// How many streams there are. With fewer streams than connections several sessions append to a stream, and sequence numbers
    /// are then only checked to rise.
    pub streams: u32,
    /// Which share of the streams is appended to; one session each, evenly spread.
    pub active_share: f64,
    /// How many connections; stream s goes to connection s modulo connections.
    pub connections: u16,
    /// Appends in flight on a connection. Its sessions take turns round robin; none goes past the server's own window.
    pub window: u32,
    /// Bytes of a record's body.
    pub record_bytes: usize,
    /// Whether the records are all that large, or how they are spread instead.
    pub sizes: Sizes,
    /// How the appends of a connection are shared out over its streams.
    pub spread: Spread,
    /// Whether each append of a session says which sequence number it must get.
    pub conditional: bool,
    /// Records of a batch; each append is one batch.
    pub records_per_batch: usize,
    /// Appends a second of all connections together, whose latency counts from when each is due. Absent
    /// is a closed loop: the next append goes when an ack frees its place.
    pub rate: Option<f64>,
    /// How the appends of an open loop are spread over time.
    pub arrivals: Arrivals,
    /// Sends one append to each stream outside of any session, then ends: makes many streams. Excludes a rate; warm-up
    /// and duration don't matter.
    pub one_shot: bool,
    /// When the load starts, warm-up and all; absent is as soon as its connections are open.
    pub start_at: Option<StartAt>,
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
    /// Files to write.
    pub files: Files,
    /// Measures the floors right before, the disk's in this directory.
    pub with_floors: Option<PathBuf>,
}

impl Default for AppendOptions {
    fn default() -> Self {
        Self {
            addr: "127.0.0.1:7781".to_owned(),
            bucket: None,
            classes: vec![Class::Express],
            create: false,
            key_prefix: "bench".to_owned(),
            streams: 1,
            active_share: 1.0,
            connections: 1,
            window: 16,
            record_bytes: 256,
            sizes: Sizes::Fixed,
            spread: Spread::Uniform,
            conditional: false,
            records_per_batch: 1,
            rate: None,
            arrivals: Arrivals::Constant,
            one_shot: false,
            start_at: None,
            warm_up: Duration::from_secs(2),
            duration: Duration::from_secs(10),
            threads: 1,
            cpus: Vec::new(),
            seed: 1,
            files: Files::default(),
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
        let share = self.active_share;
        must(share > 0.0 && share <= 1.0, "active_share", &share, "above 0, at most 1".to_owned())?;
        must(share == 1.0 || !self.one_shot, "active_share", &share, "absent with one_shot".to_owned())?;
        let mut classes = self.classes.clone();
        classes.dedup();
        let is_set = !classes.is_empty() && classes.len() == self.classes.len() && classes.len() <= 2;
        must(is_set, "classes", &words_of(&self.classes), "express, standard, or both once".to_owned())?;
        let (streams, buckets) = (self.streams, self.classes.len());
        must(streams as usize >= buckets, "streams", &streams, format!("at least {buckets}, one of each class"))?;
        let is_zero = self.duration.is_zero();
        must(!is_zero, "duration", &"0", "longer than nothing".to_owned())?;
        if let Some(rate) = self.rate {
            let is_rate = rate.is_finite() && rate >= 0.001;
            must(is_rate, "rate", &rate, "at least 0.001 a second".to_owned())?;
            must(!self.one_shot, "rate", &rate, "absent with one_shot".to_owned())?;
        }
        let now = SystemTime::now();
        if let Some((at, ago)) = self.start_at.and_then(|at| Some((at, at.ahead_of(now).err()?))) {
            return Err(BenchError::StartPast { at, now: StartAt::of(now), ago });
        }
        let is_spread = self.arrivals == Arrivals::Constant || self.rate.is_some();
        must(is_spread, "arrivals", &self.arrivals, "constant without a rate".to_owned())?;
        Ok(())
    }

    /// The load that the options ask for.
    pub(crate) fn load(&self) -> Result<Load, BenchError> {
        self.check()?;
        let pace = match self.rate {
            _ if self.one_shot => Pace::EachOnce,
            Some(per_s) => Pace::Open { per_s, arrivals: self.arrivals },
            None => Pace::Closed,
        };
        Ok(Load {
            addr: self.addr.clone(),
            peer: None,
            places: self.places()?,
            connections: self.connections,
            window: self.window,
            batches: Batches::new(self.records_per_batch, (self.record_bytes, &self.sizes), self.seed)?,
            spread: self.spread,
            is_conditional: self.conditional,
            seed: self.seed,
            pace,
            start_at: self.start_at,
            warm_up: if self.one_shot { Duration::ZERO } else { self.warm_up },
            duration: self.duration,
            threads: self.threads,
            cpus: self.cpus.clone(),
            drain_max: load::DRAIN_MAX,
            is_over: AtomicBool::new(false),
        })
    }

    fn places(&self) -> Result<Places, NameError> {
        let buckets = self.buckets().into_iter().map(|(bucket, _)| bucket).collect();
        Places::new(buckets, &self.key_prefix, self.streams, self.active_share)
    }

    /// The buckets of the run, and the class that each one's streams start from.
    pub(crate) fn buckets(&self) -> Vec<(String, Class)> {
        let name = |class: Class| match (&self.bucket, self.classes.len()) {
            (Some(bucket), 1) => bucket.clone(),
            (Some(bucket), _) => format!("{bucket}-{class}"),
            (None, _) => bucket_of(class),
        };
        self.classes.iter().map(|class| (name(*class), *class)).collect()
    }
}

/// The bucket of a class when none is named.
#[must_use]
pub fn bucket_of(class: Class) -> String {
    match class {
        Class::Express => "bench".to_owned(),
        Class::Standard => "bench-standard".to_owned(),
    }
}

impl fmt::Display for AppendOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, streams, connections, window, record_bytes, records_per_batch, .. } = self;
        write!(f, "{addr}, ")?;
        for (bucket, _) in self.buckets() {
            write!(f, "nova://{bucket}/{}-…, ", self.key_prefix)?;
        }
        write!(f, "{streams} streams")?;
        if self.active_share < 1.0 {
            write!(f, " of which {} % are active", 100.0 * self.active_share)?;
        }
        write!(f, ", {connections} connections × window {window}, {records_per_batch} × {record_bytes} B a batch, ")?;
        if self.sizes != Sizes::Fixed {
            write!(f, "sizes {}, ", self.sizes)?;
        }
        if self.spread != Spread::Uniform {
            write!(f, "spread {}, ", self.spread)?;
        }
        if self.conditional {
            write!(f, "conditional, ")?;
        }
        match self.rate {
            _ if self.one_shot => write!(f, "one shot a stream")?,
            Some(rate) => write!(f, "open loop at {rate} appends/s, {}", self.arrivals)?,
            None => write!(f, "closed loop")?,
        }
        self.start_at.map_or(Ok(()), |at| write!(f, ", from {at} on"))
    }
}

/// Appends as the options say, and reports; beside the floors, if the options want them, what the caller measured of the
/// store right before.
///
/// # Errors
/// [`BenchError`] of what kept the run from its end; [`BenchError::Violations`], with the report inside, when the run came
/// to its end and answers broke a promise.
pub fn run(
    options: &AppendOptions,
    store: Option<&StoreReport>,
    on_progress: OnProgress<'_>,
) -> Result<LoadReport, BenchError> {
    let load = options.load()?;
    for (bucket, class) in options.buckets().iter().filter(|_| options.create) {
        ensure_bucket(&options.addr, bucket, *class)?;
    }
    let made = Made::here(options.with_floors.as_deref());
    let floors = match &options.with_floors {
        Some(directory) => Some(floors::measure(options, directory, store, on_progress)?),
        None => None,
    };
    let before = server::ask(&options.addr)?;
    let mut followed = Followed::begin(&options.files)?;
    let outcome = load::run(&load, on_progress, &mut |slice| followed.see(slice))?;
    let after = server::ask(&options.addr)?;
    let settings = Settings::Append(options.clone());
    let mut report = LoadReport::new(made, settings, shape(&load), &outcome);
    report.server = before.zip(after).map(|(before, after)| ServerFacts::between(&before, &after));
    followed.end(&mut report)?;
    let report = with_floors(report, floors);
    options.files.write(&report)?;
    verdict(report, &outcome)
}

/// What is kept of each second while a load runs.
pub(crate) struct Followed {
    timeline: Vec<Second>,
    histograms: Option<Histograms>,
    outcome: Result<(), BenchError>,
}

impl Followed {
    /// Begins, with a log of histograms if one is wanted.
    pub(crate) fn begin(files: &Files) -> Result<Self, BenchError> {
        let histograms = files.hlog.as_deref().map(Histograms::begin).transpose()?;
        Ok(Self { timeline: Vec::new(), histograms, outcome: Ok(()) })
    }

    /// Takes a second that is over.
    pub(crate) fn see(&mut self, slice: &Slice) {
        if self.timeline.len() < TIMELINE_MAX {
            self.timeline.push(slice.second());
        }
        if let (Some(histograms), Ok(())) = (&mut self.histograms, &self.outcome) {
            self.outcome = histograms.add(slice.number, &slice.latency);
        }
    }

    /// Puts what was kept into the report, and ends the log.
    pub(crate) fn end(self, report: &mut LoadReport) -> Result<(), BenchError> {
        report.timeline = self.timeline;
        self.outcome?;
        self.histograms.map_or(Ok(()), Histograms::end)
    }
}

fn with_floors(mut report: LoadReport, floors: Option<Floors>) -> LoadReport {
    report.floors = floors.map(|floors| floors.compared_to(&report));
    report
}

/// What the numbers of a load are of.
pub(crate) fn shape(load: &Load) -> Shape {
    Shape {
        records_per_batch: load.batches.records,
        content_bytes: load.batches.content_bytes,
        in_flight_wanted: u64::from(load.connections) * u64::from(load.window),
        rate_wanted: match load.pace {
            Pace::Open { per_s, .. } => Some(per_s),
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

/// Makes the bucket, unless it is there; one whose streams are of another class is refused.
pub(crate) fn ensure_bucket(addr: &str, bucket: &str, class: Class) -> Result<(), BenchError> {
    ensure_bucket_with(addr, bucket, class, None)
}

/// The same, and has its streams that are made from then on drop records of an age.
pub(crate) fn ensure_bucket_with(
    addr: &str,
    bucket: &str,
    class: Class,
    max_age: Option<Duration>,
) -> Result<(), BenchError> {
    let spec = BucketSpec {
        create_stream_on_append: true,
        defaults: ConfigPatch { class: Some(class), ..ConfigPatch::default() },
        ..BucketSpec::named(BucketName::new(bucket)?)
    };
    let mut dialled = Dialled::connect(addr)?;
    let BucketAnswer { bucket: found } = dialled.call("ensuring the bucket", &BucketEnsure { spec })?;
    if found.defaults.class != class {
        return Err(BenchError::BucketClass { bucket: bucket.to_owned(), found: found.defaults.class, class });
    }
    let Some(max_age) = max_age else { return Ok(()) };
    let max_age_ms = u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX);
    let defaults = ConfigPatch { retention_max_age_ms: Some(max_age_ms), ..ConfigPatch::default() };
    let patch = BucketPatch { defaults, ..BucketPatch::default() };
    let update = BucketUpdate { name: found.name, patch };
    dialled.call::<BucketAnswer>("setting the retention of the bucket", &update).map(drop)
}

/// Classes as the words that users write.
fn words<S: Serializer>(classes: &[Class], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(classes.iter().map(|class| class.word()))
}

fn words_of(classes: &[Class]) -> String {
    classes.iter().map(|class| class.word()).collect::<Vec<_>>().join(",")
}
