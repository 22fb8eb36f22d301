//! What did generators on several hosts see together?
//!
//! They began at one time and ran as long, so that what each measured is of the same span: counts and rates add up, histograms are
//! merged, and what each had of its own host stays by its name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::BenchError;
use crate::files::{Shown, write_html, write_json};
use crate::latency::{Encoded, Latencies, Quantiles};
use crate::report::{Count, GeneratorUse, OpenLoop, Second, Size};

/// Settings in which generators of one run may differ: where each finds the star, which streams it takes, and what it is on its own host.
const OWN: [&str; 8] = ["addr", "bucket", "key_prefix", "seed", "threads", "cpus", "files", "with_floors"];

/// Seconds by which measured spans may differ and still be of the same length.
const SECONDS_APART_MAX: f64 = 0.001;

/// A report of one generator, and what it is called.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name, such as that of its file.
    pub name: String,
    /// Its JSON.
    pub report: Value,
}

/// The fields of a report that a merge needs.
#[derive(Debug, Deserialize)]
struct Told {
    version: String,
    git: Option<String>,
    host: Host,
    settings: Map<String, Value>,
    seconds: f64,
    acks: u64,
    acks_per_s: f64,
    records_per_s: f64,
    bytes_per_s: f64,
    latency_us: Quantiles,
    open_loop: Option<OpenLoop>,
    class: Option<String>,
    refusals: BTreeMap<String, u64>,
    in_flight_max: u64,
    histograms: Encoded,
    #[serde(default)]
    timeline: Vec<Second>,
    generator: GeneratorUse,
    warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Host {
    kernel: String,
    cpus: Vec<usize>,
}

/// A generator of several.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generator {
    /// What its report was called.
    pub name: String,
    /// The kernel of its host.
    pub kernel: String,
    /// CPUs that it could run on.
    pub cpus: usize,
    /// Where it found the star.
    pub addr: String,
    /// Acks a second.
    pub acks_per_s: f64,
    /// Its own latencies, in microseconds.
    pub latency_us: Quantiles,
    /// Sends for which it was late by itself, in an open loop.
    pub late_by_itself: u64,
    /// What it took of its CPUs.
    pub generator: GeneratorUse,
    /// What a reader must know before believing its numbers.
    pub warnings: Vec<String>,
}

/// What several generators found together. Names are those of a report of one, so that it can be compared with others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MergedReport {
    /// The version that measured.
    pub version: String,
    /// The commit that it was built from, where it is known.
    pub git: Option<String>,
    /// The settings that all share.
    pub settings: Map<String, Value>,
    /// Each generator.
    pub generators: Vec<Generator>,
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
    /// From when an append was due to its ack, in microseconds: of all samples.
    pub latency_us: Quantiles,
    /// The same of each class, when there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub latency_us_by_class: BTreeMap<String, Quantiles>,
    /// What the open loops have to say together; absent in closed loops.
    pub open_loop: Option<OpenLoop>,
    /// What made the appends durable.
    pub class: Option<String>,
    /// Appends that were refused, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Appends that could be in flight at once.
    pub in_flight_max: u64,
    /// Points of the distribution of the latency: quantiles and microseconds.
    pub distribution: Vec<(f64, f64)>,
    /// Each second from the start on. Its quantiles are withheld: those of generators can't be put together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Second>,
    /// What a reader must know, each by the name of a generator.
    pub warnings: Vec<String>,
}

/// Merges reports of generators that began together.
///
/// # Errors
/// [`BenchError::Option`] when one is no report of a load, or when they don't belong together: other versions, starts or shapes.
pub fn merge(parts: &[Part]) -> Result<MergedReport, BenchError> {
    if parts.len() < 2 {
        return Err(BenchError::option("reports", parts.len(), "two or more"));
    }
    let mut all: Vec<(&str, Told)> = Vec::new();
    for (at, Part { name, report }) in parts.iter().enumerate() {
        if let Some(same) = parts[..at].iter().find(|other| other.report == *report) {
            return Err(BenchError::option("a report", format!("both {} and {name}", same.name), "given once"));
        }
        let told = Told::deserialize(report).map_err(|error| {
            BenchError::option("a report", format!("{name}, where {error}"), "the JSON of one load of appends")
        })?;
        all.push((name, told));
    }
    let settings = shared_settings(&all)?;
    let sum = |of: fn(&Told) -> f64| all.iter().map(|(_, told)| of(told)).sum::<f64>();
    let latencies = merged(&all, |told| Some(&told.histograms.ack))?.unwrap_or_else(Latencies::new);
    let (_, first) = &all[0];
    let acks = all.iter().map(|(_, told)| told.acks).sum();
    Ok(MergedReport {
        version: first.version.clone(),
        git: first.git.clone(),
        settings,
        seconds: first.seconds,
        acks,
        acks_per_s: sum(|told| told.acks_per_s),
        records_per_s: sum(|told| told.records_per_s),
        bytes_per_s: sum(|told| told.bytes_per_s),
        latency_us: latencies.quantiles(),
        latency_us_by_class: by_class(&all)?,
        open_loop: open_loop(&all)?,
        class: class(&all),
        refusals: refusals(&all),
        in_flight_max: all.iter().map(|(_, told)| told.in_flight_max).sum(),
        distribution: latencies.distribution(),
        timeline: timeline(&all),
        warnings: all
            .iter()
            .flat_map(|(name, told)| told.warnings.iter().map(move |warning| format!("{name}: {warning}")))
            .collect(),
        generators: all.iter().map(|(name, told)| generator(name, told)).collect(),
    })
}

/// What all reports must have in common.
fn shared_settings(all: &[(&str, Told)]) -> Result<Map<String, Value>, BenchError> {
    let (first_name, first) = &all[0];
    let differ = |what: &str, one: &dyn fmt::Display, (name, other): (&str, &dyn fmt::Display)| {
        let values = format!("{one} in {first_name} and {other} in {name}");
        BenchError::Option {
            option: "a setting",
            value: format!("{what}: {values}"),
            range: "the same in all reports".to_owned(),
        }
    };
    let mut settings = first.settings.clone();
    settings.retain(|name, _| !OWN.contains(&name.as_str()));
    for (name, told) in all {
        let measure = told.settings.get("measure").and_then(Value::as_str);
        if !matches!(measure, Some("append" | "peer")) {
            let value = format!("{} in {name}", measure.unwrap_or("unnamed"));
            return Err(BenchError::option("measure", value, "append or peer"));
        }
        if told.settings.get("start_at").is_none_or(Value::is_null) {
            let value = format!("absent in {name}");
            return Err(BenchError::option("start_at", value, "set: run each generator with the same --start-at"));
        }
        if told.version != first.version {
            return Err(differ("version", &first.version, (name, &told.version)));
        }
        if let (Some(one), Some(other)) = (&first.git, &told.git)
            && one != other
        {
            return Err(differ("git", one, (name, other)));
        }
        if (told.seconds - first.seconds).abs() > SECONDS_APART_MAX {
            return Err(differ("seconds", &first.seconds, (name, &told.seconds)));
        }
        let names = settings.keys().chain(told.settings.keys().filter(|name| !OWN.contains(&name.as_str())));
        for setting in names {
            let [one, other] = [&settings, &told.settings].map(|map| map.get(setting).unwrap_or(&Value::Null));
            if one != other {
                return Err(differ(setting, one, (name, other)));
            }
        }
    }
    Ok(settings)
}

/// The samples of all reports that have such a histogram; none when no report has.
fn merged(all: &[(&str, Told)], of: impl Fn(&Told) -> Option<&String>) -> Result<Option<Latencies>, BenchError> {
    let mut together: Option<Latencies> = None;
    for (name, told) in all {
        let Some(text) = of(told) else { continue };
        let read = Latencies::decoded(text).map_err(|why| {
            BenchError::option("a histogram", format!("unreadable in {name}: {why}"), "as it was written")
        })?;
        together.get_or_insert_with(Latencies::new).merge(&read);
    }
    Ok(together)
}

fn by_class(all: &[(&str, Told)]) -> Result<BTreeMap<String, Quantiles>, BenchError> {
    let mut classes: Vec<&String> = all.iter().flat_map(|(_, told)| told.histograms.by_class.keys()).collect();
    classes.sort();
    classes.dedup();
    let of_class = |class: &String| {
        let latencies = merged(all, |told| told.histograms.by_class.get(class))?;
        Ok((class.clone(), latencies.unwrap_or_else(Latencies::new).quantiles()))
    };
    classes.into_iter().map(of_class).collect()
}

fn open_loop(all: &[(&str, Told)]) -> Result<Option<OpenLoop>, BenchError> {
    let Some(service) = merged(all, |told| told.histograms.service.as_ref())? else { return Ok(None) };
    let loops = || all.iter().filter_map(|(_, told)| told.open_loop.as_ref());
    let most = |of: fn(&OpenLoop) -> f64| loops().map(of).fold(0.0, f64::max);
    Ok(Some(OpenLoop {
        rate_wanted: loops().map(|it| it.rate_wanted).sum(),
        service_us: service.quantiles(),
        late_sends: loops().map(|it| it.late_sends).sum(),
        lag_us_max: most(|it| it.lag_us_max),
        late_by_itself: loops().map(|it| it.late_by_itself).sum(),
        own_lag_us_max: most(|it| it.own_lag_us_max),
        unsent: loops().map(|it| it.unsent).sum(),
    }))
}

fn class(all: &[(&str, Told)]) -> Option<String> {
    let mut classes = all.iter().filter_map(|(_, told)| told.class.as_ref());
    let first = classes.next()?;
    Some(if classes.all(|class| class == first) { first.clone() } else { "mixed".to_owned() })
}

fn refusals(all: &[(&str, Told)]) -> BTreeMap<String, u64> {
    let mut together = BTreeMap::new();
    for (reason, count) in all.iter().flat_map(|(_, told)| &told.refusals) {
        *together.entry(reason.clone()).or_insert(0) += count;
    }
    together
}

/// Seconds that every generator tells, since the start of all.
fn timeline(all: &[(&str, Told)]) -> Vec<Second> {
    let mut together: BTreeMap<u64, (usize, Second)> = BTreeMap::new();
    for second in all.iter().flat_map(|(_, told)| &told.timeline) {
        let none = Second { p50_us: None, p99_us: None, p99_9_us: None, ..*second };
        let Some((generators, sum)) = together.get_mut(&second.at_s) else {
            together.insert(second.at_s, (1, none));
            continue;
        };
        *generators += 1;
        sum.acks += second.acks;
        sum.refusals += second.refusals;
        sum.late_sends += second.late_sends;
        sum.lag_us_max = sum.lag_us_max.max(second.lag_us_max);
        sum.max_us = sum.max_us.into_iter().chain(second.max_us).reduce(f64::max);
    }
    together.into_values().filter(|(generators, _)| *generators == all.len()).map(|(_, second)| second).collect()
}

fn generator(name: &str, told: &Told) -> Generator {
    Generator {
        name: name.to_owned(),
        kernel: told.host.kernel.clone(),
        cpus: told.host.cpus.len(),
        addr: told.settings.get("addr").and_then(Value::as_str).unwrap_or_default().to_owned(),
        acks_per_s: told.acks_per_s,
        latency_us: told.latency_us,
        late_by_itself: told.open_loop.as_ref().map_or(0, |it| it.late_by_itself),
        generator: told.generator,
        warnings: told.warnings.clone(),
    }
}

impl MergedReport {
    /// Writes it as JSON and as a page, where that is wanted.
    ///
    /// # Errors
    /// [`BenchError::File`].
    pub fn write(&self, json: Option<&PathBuf>, html: Option<&PathBuf>) -> Result<(), BenchError> {
        if let Some(path) = json {
            write_json(path, self)?;
        }
        html.map_or(Ok(()), |path: &PathBuf| self.write_page(path))
    }

    fn write_page(&self, path: &Path) -> Result<(), BenchError> {
        let Self { warnings, timeline, distribution, .. } = self;
        write_html(path, self, &Shown { text: self.to_string(), warnings, timeline, distribution })
    }
}

impl fmt::Display for MergedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |name: &str| self.settings.get(name).and_then(Value::as_str).unwrap_or("unknown").to_owned();
        writeln!(
            f,
            "merged     {} generators of {} that began at {}",
            self.generators.len(),
            text("measure"),
            text("start_at")
        )?;
        writeln!(f, "measured   {:.1} s", self.seconds)?;
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
        for it in &self.generators {
            let (rate, busy) = (Count(it.acks_per_s), it.generator.busy_percent_max);
            let p99 = it.latency_us.p99.map_or_else(|| "-".to_owned(), |us| format!("{us:.0} µs"));
            writeln!(f, "generator  {}: {rate} acks/s, p99 {p99}, its busiest thread {busy:.0} % of a core", it.name)?;
        }
        for (reason, count) in &self.refusals {
            writeln!(f, "refused    {count} × {reason}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning    {warning}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
