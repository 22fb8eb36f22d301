//! What does a load measurement tell, as text and as JSON?

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize, Serializer};
use tuning::host::HostFacts;
use wire::config::Class;

use crate::append::AppendOptions;
use crate::floors::Floors;
use crate::latency::{Encoded, Quantiles};
use crate::load::{Outcome, ThreadUse};
use crate::net::NetOptions;
use crate::peer::PeerOptions;
use crate::progress::as_f64;
use crate::server::ServerFacts;

/// Above this share of a core a thread of the generator may be what limits the rate.
const BUSY_PERCENT_MAX: f64 = 80.0;

/// What was run, with its settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "measure", rename_all = "snake_case")]
pub enum Settings {
    /// Appends to a server.
    Append(AppendOptions),
    /// Appends to the echo.
    Net(NetOptions),
    /// Appends to another server.
    Peer(PeerOptions),
}

/// What a load measurement found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadReport {
    /// When and where.
    #[serde(flatten)]
    pub made: Made,
    /// What was run.
    pub settings: Settings,
    /// How long was measured.
    pub seconds: f64,
    /// Acks in that time.
    pub acks: u64,
    /// Acks a second.
    pub acks_per_s: f64,
    /// Records a second.
    pub records_per_s: f64,
    /// Content a second, in bytes.
    pub bytes_per_s: f64,
    /// From when an append was due to its ack, in microseconds.
    pub latency_us: Quantiles,
    /// The same of each class, when there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub latency_us_by_class: BTreeMap<&'static str, Quantiles>,
    /// What the open loop has to say; absent in a closed loop.
    pub open_loop: Option<OpenLoop>,
    /// What made the appends durable; absent when none was acked.
    pub class: Option<&'static str>,
    /// Appends that were refused, by reason.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Appends that could be in flight at once.
    pub in_flight_max: u64,
    /// How long connecting and opening took, in seconds.
    pub opening_seconds: f64,
    /// Points of the distribution of the latency: quantiles and microseconds.
    pub distribution: Vec<(f64, f64)>,
    /// All latencies, for `nova bench merge`.
    pub histograms: Encoded,
    /// Each second from the start of the load on, warm-up and the wait for the last answers too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Second>,
    /// The server and what it counted meanwhile; absent when it was not asked.
    pub server: Option<ServerFacts>,
    /// What the generator took itself.
    pub generator: GeneratorUse,
    /// What the host allows, measured right before.
    pub floors: Option<Floors>,
    /// What a reader must know before believing the numbers.
    pub warnings: Vec<String>,
}

/// When and where a measurement was made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Made {
    /// When it began, in milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// The version that measured.
    pub version: &'static str,
    /// The commit that it was built from, when the build said so in NOVA_GIT.
    pub git: Option<&'static str>,
    /// The machine that measured.
    pub host: HostFacts,
}

impl Made {
    /// Now and here; `directory` is the one whose disk matters, if one does.
    pub(crate) fn here(directory: Option<&Path>) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let ms = since_epoch.unwrap_or_default().as_millis();
        let mut host = HostFacts::read(directory.unwrap_or_else(|| Path::new("/")));
        if directory.is_none() {
            host.disk = None;
        }
        Self {
            started_at_ms: u64::try_from(ms).unwrap_or(u64::MAX),
            version: env!("CARGO_PKG_VERSION"),
            git: option_env!("NOVA_GIT"),
            host,
        }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = &self.host;
        let cpu = host.cpu_model.as_deref().unwrap_or(&host.machine);
        let (cpus, gib) = (host.cpus.len(), as_f64(host.memory_bytes) / as_f64(1 << 30));
        write!(f, "host       {cpus} CPUs ({cpu}), {gib:.1} GiB, Linux {}", host.kernel)?;
        if let Some(disk) = &host.disk {
            let device = disk.device.as_deref().unwrap_or("no block device");
            write!(f, ", {} on {device}", disk.file_system)?;
        }
        writeln!(f)
    }
}

/// A second of a run, as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the load began.
    pub at_s: u64,
    /// Acks that came in it.
    pub acks: u64,
    /// Refusals that came in it.
    pub refusals: u64,
    /// Sends in it that were late.
    pub late_sends: u64,
    /// Longest time that a send came after its due time, in microseconds.
    pub lag_us_max: f64,
    /// Median latency, in microseconds; absent, as the others, where samples are too few.
    pub p50_us: Option<f64>,
    /// 99 in 100.
    pub p99_us: Option<f64>,
    /// 999 in 1 000.
    pub p99_9_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
}

/// How well an open loop kept its rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenLoop {
    /// Appends a second that were asked for.
    pub rate_wanted: f64,
    /// From the send of an append to its ack, in microseconds.
    pub service_us: Quantiles,
    /// Appends sent more than a millisecond after they were due.
    pub late_sends: u64,
    /// Longest time that an append was sent after it was due, in microseconds.
    pub lag_us_max: f64,
    /// Of the late sends, those that no window held up: the generator itself was behind.
    pub late_by_itself: u64,
    /// Longest time that the generator itself was behind, in microseconds.
    pub own_lag_us_max: f64,
    /// Appends that were due and never sent.
    pub unsent: u64,
}

/// What the threads of the generator had of their CPUs while measuring, in percent of one core each.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GeneratorUse {
    /// How many threads.
    pub threads: usize,
    /// Mean time on a CPU.
    pub busy_percent_mean: f64,
    /// Most time on a CPU.
    pub busy_percent_max: f64,
    /// Most time ready to run and waiting for a CPU.
    pub waiting_percent_max: f64,
}

impl GeneratorUse {
    pub(crate) fn of(used: &[ThreadUse]) -> Self {
        let percent = |time: Duration, of: Duration| {
            let whole = of.as_secs_f64();
            if whole > 0.0 { 100.0 * time.as_secs_f64() / whole } else { 0.0 }
        };
        let busy = used.iter().map(|used| percent(used.time.busy, used.elapsed));
        let waiting = used.iter().map(|used| percent(used.time.waiting, used.elapsed));
        let threads = as_f64(used.len() as u64);
        Self {
            threads: used.len(),
            busy_percent_mean: busy.clone().sum::<f64>() / threads.max(1.0),
            busy_percent_max: busy.fold(0.0, f64::max),
            waiting_percent_max: waiting.fold(0.0, f64::max),
        }
    }

    pub(crate) fn warning(&self) -> Option<String> {
        let (busy, waiting) = (self.busy_percent_max, self.waiting_percent_max);
        (busy + waiting > BUSY_PERCENT_MAX).then(|| {
            format!(
                "a thread of the generator was busy {busy:.0} % of a core and waited for one {waiting:.0} %: \
                 above {BUSY_PERCENT_MAX:.0} % the generator may be the limit; give it more threads or CPUs"
            )
        })
    }
}

/// What the numbers of an outcome are of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) records_per_batch: u32,
    pub(crate) content_bytes: u64,
    pub(crate) in_flight_wanted: u64,
    pub(crate) rate_wanted: Option<f64>,
}

impl LoadReport {
    /// The report of an outcome.
    pub(crate) fn new(made: Made, settings: Settings, shape: Shape, outcome: &Outcome) -> Self {
        let tally = &outcome.tally;
        let seconds = outcome.measured.as_secs_f64();
        let per_s = |count: u64| if seconds > 0.0 { as_f64(count) / seconds } else { 0.0 };
        let open_loop = shape.rate_wanted.map(|rate_wanted| OpenLoop {
            rate_wanted,
            service_us: tally.service.quantiles(),
            late_sends: tally.late_sends,
            lag_us_max: as_f64(tally.lag_ns_max) / 1e3,
            late_by_itself: tally.late_by_itself,
            own_lag_us_max: as_f64(tally.own_lag_ns_max) / 1e3,
            unsent: outcome.unsent,
        });
        let class = tally.class.map(|class| if tally.is_class_mixed { "mixed" } else { class.word() });
        let generator = GeneratorUse::of(&outcome.used);
        let histograms = Encoded {
            ack: tally.latency.encoded(),
            service: open_loop.is_some().then(|| tally.service.encoded()),
            by_class: tally.by_class.iter().map(|(class, of)| (class.word().to_owned(), of.encoded())).collect(),
        };
        let mut report = Self {
            made,
            settings,
            seconds,
            acks: tally.acks,
            acks_per_s: per_s(tally.acks),
            records_per_s: per_s(tally.acks * u64::from(shape.records_per_batch)),
            bytes_per_s: per_s(tally.acks * shape.content_bytes),
            latency_us: tally.latency.quantiles(),
            latency_us_by_class: tally.by_class.iter().map(|(class, of)| (class.word(), of.quantiles())).collect(),
            open_loop,
            class,
            refusals: tally.refusals.clone(),
            in_flight_max: outcome.in_flight_max as u64,
            opening_seconds: outcome.opening.as_secs_f64(),
            distribution: tally.latency.distribution(),
            histograms,
            timeline: Vec::new(),
            server: None,
            generator,
            floors: None,
            warnings: Vec::new(),
        };
        report.warnings = report.warnings_of(shape);
        report
    }

    /// Whether the generator, rather than the server, may have kept the rate down or the latency up.
    #[must_use]
    pub fn is_generator_the_limit(&self) -> bool {
        let late = self.open_loop.as_ref().map_or(0, |open_loop| open_loop.late_by_itself);
        self.generator.warning().is_some() || late * 100 > self.latency_us.samples
    }

    fn warnings_of(&self, shape: Shape) -> Vec<String> {
        let mut warnings: Vec<_> = self.generator.warning().into_iter().collect();
        let (reached, wanted) = (self.in_flight_max, shape.in_flight_wanted);
        if reached < wanted {
            warnings.push(format!(
                "{reached} appends could be in flight, not {wanted}: the server's own window of a session bounds them"
            ));
        }
        if let Some(open_loop) = self.open_loop.as_ref().filter(|open_loop| open_loop.unsent > 0) {
            let (unsent, rate) = (open_loop.unsent, open_loop.rate_wanted);
            warnings.push(format!(
                "{unsent} appends that were due were never sent: {rate:.0} a second is more than the windows allow"
            ));
        }
        if let Some(open_loop) = self.open_loop.as_ref().filter(|open_loop| open_loop.late_by_itself > 0) {
            let (late, lag) = (open_loop.late_by_itself, open_loop.own_lag_us_max);
            warnings.push(format!(
                "{late} appends were sent over 1 ms late with room in their windows, the worst by {lag:.0} µs: there the \
                 generator was the limit, not the server"
            ));
        }
        let refused: u64 = self.refusals.values().sum();
        if refused > 0 {
            warnings.push(format!("{refused} appends were refused and are in no other number"));
        }
        warnings
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.made)?;
        match &self.settings {
            Settings::Append(options) => writeln!(f, "append     {options}")?,
            Settings::Net(options) => writeln!(f, "net        {options}")?,
            Settings::Peer(options) => writeln!(f, "peer       {options}")?,
        }
        let (seconds, opening) = (self.seconds, self.opening_seconds);
        writeln!(f, "measured   {seconds:.1} s, after {opening:.2} s of connecting and opening")?;
        writeln!(
            f,
            "rate       {} acks/s   {} records/s   {}/s",
            Count(self.acks_per_s),
            Count(self.records_per_s),
            Size(self.bytes_per_s)
        )?;
        writeln!(f, "\nµs          {}", Quantiles::HEADS)?;
        writeln!(f, "ack         {}", self.latency_us)?;
        for (class, latency_us) in &self.latency_us_by_class {
            writeln!(f, "  {class:10}{latency_us}")?;
        }
        if let Some(open_loop) = &self.open_loop {
            writeln!(f, "service     {}", open_loop.service_us)?;
            let (late, lag) = (open_loop.late_sends, open_loop.lag_us_max);
            writeln!(f, "\nlate       {late} sends over 1 ms late, the worst by {lag:.0} µs")?;
        }
        let GeneratorUse { threads, busy_percent_max, .. } = self.generator;
        writeln!(f, "\ngenerator  {threads} threads, the busiest {busy_percent_max:.0} % of a core")?;
        if let Some(class) = self.class {
            writeln!(f, "class      {class}")?;
        }
        for (reason, count) in &self.refusals {
            writeln!(f, "refused    {count} × {reason}")?;
        }
        if let Some(floors) = &self.floors {
            write!(f, "{floors}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning    {warning}")?;
        }
        Ok(())
    }
}

/// A count as people read it: `1.84 M`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count(pub(crate) f64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            count if count >= 1e6 => write!(f, "{:.2} M", count / 1e6),
            count if count >= 1e4 => write!(f, "{:.1} k", count / 1e3),
            count => write!(f, "{count:.0}"),
        }
    }
}

/// Bytes as people read them, in powers of 1 000 as disks and networks are sold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) f64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1e9 => write!(f, "{:.2} GB", bytes / 1e9),
            bytes if bytes >= 1e6 => write!(f, "{:.1} MB", bytes / 1e6),
            bytes => write!(f, "{:.1} kB", bytes / 1e3),
        }
    }
}

/// A duration as a number of seconds.
pub(crate) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// A class as the word that users write.
pub(crate) fn word<S: Serializer>(class: &Class, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(class.word())
}

#[cfg(test)]
mod tests;
