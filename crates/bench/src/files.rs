//! Which files does a run leave for others to read?

mod plot;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use serde::Serialize;

use crate::error::BenchError;
use crate::latency::Latencies;
use crate::report::{LoadReport, Second};

use plot::{Line, Plot};

/// Where to write what; absent is nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Files {
    /// The report as JSON.
    pub json: Option<PathBuf>,
    /// A row a second.
    pub csv: Option<PathBuf>,
    /// A histogram a second, as an HdrHistogram log.
    pub hlog: Option<PathBuf>,
    /// The report as one page with plots, that needs nothing else.
    pub html: Option<PathBuf>,
}

impl Files {
    /// Writes those that are made of a report.
    pub(crate) fn write(&self, report: &LoadReport) -> Result<(), BenchError> {
        if let Some(path) = &self.json {
            write_json(path, report)?;
        }
        if let Some(path) = &self.csv {
            written(path, Ok(csv(&report.timeline)))?;
        }
        if let Some(path) = &self.html {
            let text = report.to_string();
            let (warnings, timeline, distribution) = (&report.warnings, &report.timeline, &report.distribution);
            write_html(path, report, &Shown { text, warnings, timeline, distribution })?;
        }
        Ok(())
    }
}

/// Writes a report as JSON.
pub(crate) fn write_json(path: &Path, report: &impl Serialize) -> Result<(), BenchError> {
    let text = serde_json::to_string_pretty(report).map_err(io::Error::from);
    written(path, text.map(|text| text + "\n"))
}

/// Writes a report as one page with plots, that needs nothing else.
pub(crate) fn write_html(path: &Path, report: &impl Serialize, shown: &Shown<'_>) -> Result<(), BenchError> {
    written(path, html(report, shown))
}

fn written(path: &Path, text: io::Result<String>) -> Result<(), BenchError> {
    let failed = |source| BenchError::File { action: "writing", path: path.to_owned(), source };
    text.and_then(|text| std::fs::write(path, text)).map_err(failed)
}

/// A row a second, with heads.
fn csv(timeline: &[Second]) -> String {
    let mut out = "at_s,acks,refusals,late_sends,lag_us_max,p50_us,p99_us,p99_9_us,max_us\n".to_owned();
    for row in timeline {
        let us = |us: Option<f64>| us.map_or_else(String::new, |us| format!("{us:.1}"));
        let Second { at_s, acks, refusals, late_sends, lag_us_max, p50_us, p99_us, p99_9_us, max_us } = row;
        let quantiles = [p50_us, p99_us, p99_9_us, max_us].map(|it| us(*it)).join(",");
        // Writing to a string does not fail.
        let _ = writeln!(out, "{at_s},{acks},{refusals},{late_sends},{lag_us_max:.1},{quantiles}");
    }
    out
}

/// Histograms of a run, one after the other, in the log format of HdrHistogram 1.3: nanoseconds, maxima in milliseconds.
pub(crate) struct Histograms {
    path: PathBuf,
    began: SystemTime,
    rows: Vec<(u64, Latencies)>,
    out: BufWriter<File>,
    has_begun: bool,
}

/// Seconds that are written at once.
const ROWS_AT_ONCE: usize = 16;

impl Histograms {
    /// Begins a log.
    pub(crate) fn begin(path: &Path) -> Result<Self, BenchError> {
        let failed = |source| BenchError::File { action: "writing", path: path.to_owned(), source };
        let out = BufWriter::new(File::create(path).map_err(failed)?);
        Ok(Self { path: path.to_owned(), began: SystemTime::now(), rows: Vec::new(), out, has_begun: false })
    }

    /// Adds a second.
    pub(crate) fn add(&mut self, at_s: u64, latencies: &Latencies) -> Result<(), BenchError> {
        self.rows.push((at_s, latencies.clone()));
        if self.rows.len() >= ROWS_AT_ONCE { self.write() } else { Ok(()) }
    }

    /// Writes what is left.
    pub(crate) fn end(mut self) -> Result<(), BenchError> {
        self.write()?;
        let path = std::mem::take(&mut self.path);
        self.out.flush().map_err(|source| BenchError::File { action: "writing", path, source })
    }

    fn write(&mut self) -> Result<(), BenchError> {
        let failed = |why: String| BenchError::File {
            action: "writing",
            path: self.path.clone(),
            source: io::Error::other(why),
        };
        let mut serializer = V2DeflateSerializer::new();
        let mut builder = IntervalLogWriterBuilder::new();
        builder.with_max_value_divisor(1e6);
        if !self.has_begun {
            builder.with_start_time(self.began);
        }
        let mut part = Vec::new();
        let mut log =
            builder.begin_log_with(&mut part, &mut serializer).map_err(|error| failed(format!("{error:?}")))?;
        for (at_s, latencies) in self.rows.drain(..) {
            let second = Duration::from_secs(1);
            log.write_histogram(latencies.histogram(), Duration::from_secs(at_s), second, None)
                .map_err(|error| failed(format!("{error:?}")))?;
        }
        self.has_begun = true;
        self.out.write_all(&part).map_err(|error| failed(error.to_string()))
    }
}

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1a1f26}\
h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:2rem}pre{background:#f4f6f8;padding:1rem;overflow:auto;font-size:12px}\
svg{width:100%;height:auto}.warn{color:#a33}";

/// What a page shows of a report besides all of it.
#[derive(Debug)]
pub(crate) struct Shown<'a> {
    /// What is told on a terminal.
    pub(crate) text: String,
    pub(crate) warnings: &'a [String],
    pub(crate) timeline: &'a [Second],
    pub(crate) distribution: &'a [(f64, f64)],
}

/// A page that needs nothing else: what the text report says, plots of every second, and all of the JSON.
fn html(report: &impl Serialize, shown: &Shown<'_>) -> io::Result<String> {
    let series = |value: fn(&Second) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = shown.timeline.iter().filter_map(|row| Some((crate::progress::as_f64(row.at_s), value(row)?)));
        points.collect()
    };
    let rates = Plot {
        title: "acks a second",
        across: "seconds",
        is_log: false,
        lines: vec![
            Line { name: "acks", points: series(|row| Some(crate::progress::as_f64(row.acks))) },
            Line { name: "refusals", points: series(|row| Some(crate::progress::as_f64(row.refusals))) },
        ],
    };
    let latencies = Plot {
        title: "latency of each second, µs",
        across: "seconds",
        is_log: true,
        lines: vec![
            Line { name: "p50", points: series(|row| row.p50_us) },
            Line { name: "p99", points: series(|row| row.p99_us) },
            Line { name: "p99.9", points: series(|row| row.p99_9_us) },
            Line { name: "max", points: series(|row| row.max_us) },
        ],
    };
    let spread = Plot {
        title: "latency by quantile, µs",
        across: "of 10^n samples one is slower: n",
        is_log: true,
        lines: vec![Line {
            name: "ack",
            points: shown
                .distribution
                .iter()
                .map(|(quantile, us)| (-(1.0 - quantile).max(1e-9).log10(), *us))
                .collect(),
        }],
    };
    let json = serde_json::to_string_pretty(report)?;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>nova bench</title><style>{STYLE}</style>\n\
         <h1>nova bench</h1>\n<pre>{}</pre>\n",
        escaped(&shown.text)
    );
    for warning in shown.warnings {
        let _ = writeln!(page, "<p class=\"warn\">{}</p>", escaped(warning));
    }
    for plot in [rates, latencies, spread] {
        let _ = writeln!(page, "<h2>{}</h2>\n{plot}", escaped(plot.title));
    }
    let _ = writeln!(
        page,
        "<h2>All of it</h2>\n<details><summary>JSON</summary><pre>{}</pre></details>\n</html>",
        escaped(&json)
    );
    Ok(page)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{Histograms, csv, escaped};
    use crate::latency::Latencies;
    use crate::report::Second;

    #[test]
    fn a_row_a_second_with_blanks_where_samples_are_too_few() {
        let row = Second {
            at_s: 3,
            acks: 7,
            refusals: 1,
            late_sends: 2,
            lag_us_max: 1_500.0,
            p50_us: None,
            p99_us: None,
            p99_9_us: None,
            max_us: Some(81.25),
        };
        let text = csv(&[row]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "3,7,1,2,1500.0,,,,81.2");
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count());
        assert_eq!(escaped("a<b>&"), "a&lt;b&gt;&amp;");
    }

    #[test]
    fn a_log_of_histograms_is_read_back() {
        use hdrhistogram::serialization::Deserializer;
        use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.hlog");
        let mut log = Histograms::begin(&path).unwrap();
        for second in 0..40 {
            let mut latencies = Latencies::coarse();
            (0..=second).for_each(|at| latencies.record(1_000 * (at + 1)));
            log.add(second, &latencies).unwrap();
        }
        log.end().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut deserializer = Deserializer::new();
        let mut samples = Vec::new();
        for entry in IntervalLogIterator::new(&bytes) {
            if let LogEntry::Interval(interval) = entry.unwrap() {
                use base64::Engine as _;
                let histogram = base64::engine::general_purpose::STANDARD.decode(interval.encoded_histogram()).unwrap();
                let histogram: hdrhistogram::Histogram<u64> =
                    deserializer.deserialize(&mut std::io::Cursor::new(histogram)).unwrap();
                samples.push((interval.start_timestamp().as_secs(), histogram.len()));
            }
        }
        assert_eq!(samples, (0..40).map(|second| (second, second + 1)).collect::<Vec<_>>());
    }
}
