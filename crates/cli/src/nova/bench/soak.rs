//! What can be said about a soak, and how is its star found or started?

use std::io::Write;
use std::path::PathBuf;

use bench::append::AppendOptions;
use bench::soak::{SoakOptions, Window};
use bench::star::Star;
use clap::Args;
use tuning::units::{Bytes, Millis};
use wire::config::Class;

use super::super::args::{Global, Output};
use super::super::failure::Failure;
use super::append::class;
use super::star::StarArgs;
use super::{first, show_all_the_same};

/// Windows between two lines of heads.
const HEADS_EVERY: usize = 20;

#[derive(Debug, Args)]
pub(in crate::nova) struct SoakArgs {
    /// How long it runs
    #[arg(long, value_name = "TIME", default_value = "2h")]
    duration: Millis,
    /// How long a window is
    #[arg(long, value_name = "TIME", default_value = "1m")]
    window: Millis,
    /// How long windows are told and not judged [default: four times the retention, at most a quarter of the duration]
    #[arg(long, value_name = "TIME")]
    warm_up: Option<Millis>,
    /// Age at which records are dropped: a default of the buckets
    #[arg(long, value_name = "TIME", default_value = "5m")]
    retention: Millis,
    /// Appends a second
    #[arg(long, value_name = "N", default_value = "2000")]
    rate: f64,
    /// Streams, shared out over the classes
    #[arg(long, value_name = "N", default_value = "1000")]
    streams: u32,
    /// Classes of the streams
    #[arg(long, value_name = "CLASS,…", value_delimiter = ',', default_value = "express,standard", value_parser = class)]
    class: Vec<Class>,
    /// Connections of the appends
    #[arg(long, value_name = "N", default_value = "8")]
    connections: u16,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value = "256")]
    record_bytes: Bytes,
    /// Records of an append
    #[arg(long, value_name = "N", default_value = "4")]
    records_per_batch: usize,
    /// Streams of each class that are read back record by record
    #[arg(long, value_name = "N", default_value = "8")]
    witnesses: u16,
    /// Reads a second
    #[arg(long, value_name = "N", default_value = "20")]
    reads: f64,
    /// Trims a second
    #[arg(long, value_name = "N", default_value = "5")]
    trims: f64,
    /// Streams a second that are made and deleted
    #[arg(long, value_name = "N", default_value = "2")]
    churn: f64,
    /// By how much memory, files and bytes may grow after the warm-up, in percent
    #[arg(long, value_name = "PERCENT", default_value = "10")]
    drift_max: f64,
    /// By how much p99 may grow after the warm-up, in percent
    #[arg(long, value_name = "PERCENT", default_value = "50")]
    p99_drift_max: f64,
    /// The process of a star that runs, for its memory and open files
    #[arg(long, value_name = "PID", conflicts_with = "start")]
    pid: Option<u32>,
    /// The store's directory [default: store below --data]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    #[command(flatten)]
    star: StarArgs,
}

impl SoakArgs {
    pub(super) fn run(&self, global: &Global) -> Result<(), Failure> {
        let star = self.star.start()?;
        let options = self.options(global, star.as_ref());
        let outcome = bench::soak::run(&options, None, &mut teller(global.output));
        let ended = star.map_or(Ok(()), Star::end);
        show_all_the_same(outcome, global.output)?;
        Ok(ended?)
    }

    fn options(&self, global: &Global, star: Option<&Star>) -> SoakOptions {
        let base = SoakOptions::default();
        let (duration, retention) = (self.duration.duration(), self.retention.duration());
        let addr = star.map_or_else(|| first(global), |star| star.addr().to_owned());
        SoakOptions {
            load: AppendOptions {
                addr,
                classes: self.class.clone(),
                create: true,
                streams: self.streams,
                connections: self.connections,
                record_bytes: self.record_bytes.as_usize(),
                records_per_batch: self.records_per_batch,
                rate: Some(self.rate),
                ..base.load
            },
            duration,
            window: self.window.duration(),
            warm_up: self.warm_up.map_or_else(|| (4 * retention).min(duration / 4), Millis::duration),
            retention,
            witnesses: self.witnesses,
            reads_per_s: self.reads,
            trims_per_s: self.trims,
            churn_per_s: self.churn,
            drift_percent_max: self.drift_max,
            p99_drift_percent_max: self.p99_drift_max,
            pid: star.map_or(self.pid, Star::pid),
            store: self.store.clone().or_else(|| self.star.data().map(|data| data.join("store"))),
            data: self.star.data(),
        }
    }
}

/// Tells each window as it ends: a line of a table, or an object a line.
fn teller(output: Output) -> impl FnMut(&Window) {
    let mut told = 0;
    move |window| {
        let mut out = std::io::stdout().lock();
        // A reader that has gone does not end a run of hours.
        let _gone = match output {
            Output::Json => serde_json::to_string(window).map(|line| writeln!(out, "{line}")).map(drop),
            Output::Text => {
                if told % HEADS_EVERY == 0 {
                    let _gone = writeln!(out, "{}", Window::HEADS);
                }
                let _gone = writeln!(out, "{window}");
                Ok(())
            }
        };
        let _gone = out.flush();
        told += 1;
    }
}
