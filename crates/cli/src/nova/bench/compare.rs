//! What can be said about reports that are compared or merged, a search and a peer?

use std::path::{Path, PathBuf};

use bench::compare::{Comparison, Thresholds};
use bench::find_max::FindMaxOptions;
use bench::merge::Part;
use bench::peer::{Peer, PeerOptions};
use clap::Args;
use tuning::units::Millis;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::super::args::{Global, Output};
use super::super::failure::Failure;
use super::append::AppendArgs;
use super::show;

#[derive(Debug, Args)]
pub(in crate::nova) struct CompareArgs {
    /// The JSON report of the first run
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The JSON report of the second run
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// How much lower rates may be, in percent
    #[arg(long, value_name = "PERCENT", default_value = "5")]
    rate_max: f64,
    /// How much longer p50 and p90 may be, in percent
    #[arg(long, value_name = "PERCENT", default_value = "10")]
    p50_max: f64,
    /// How much longer p99 may be, in percent
    #[arg(long, value_name = "PERCENT", default_value = "20")]
    p99_max: f64,
    /// How much longer p99.9 may be, in percent
    #[arg(long, value_name = "PERCENT", default_value = "50")]
    p99_9_max: f64,
}

impl CompareArgs {
    pub(super) fn run(&self, output: Output) -> Result<(), Failure> {
        let thresholds = Thresholds {
            rate_percent: self.rate_max,
            p50_percent: self.p50_max,
            p99_percent: self.p99_max,
            p99_9_percent: self.p99_9_max,
        };
        let comparison: Comparison =
            bench::compare::compare(&report(&self.before)?, &report(&self.after)?, &thresholds)?;
        show(&comparison, output)?;
        match comparison.too_bad()[..] {
            [] => Ok(()),
            ref measures => {
                let why = format!("{} is worse by more than it may be: {}", self.after.display(), measures.join(", "));
                Err(Refusal::new(Reason::FailedPrecondition, why).into())
            }
        }
    }
}

#[derive(Debug, Args)]
pub(in crate::nova) struct MergeArgs {
    /// JSON reports of `nova bench append` with one --start-at, a generator each
    #[arg(value_name = "REPORT", num_args = 2.., required = true)]
    reports: Vec<PathBuf>,
    /// Write the merged report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write it as one page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl MergeArgs {
    pub(super) fn run(&self, output: Output) -> Result<(), Failure> {
        let read = |path: &PathBuf| Ok(Part { name: path.display().to_string(), report: report(path)? });
        let parts = self.reports.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
        let merged = bench::merge::merge(&parts)?;
        merged.write(self.json.as_ref(), self.html.as_ref())?;
        show(&merged, output)
    }
}

fn report(path: &Path) -> Result<serde_json::Value, Failure> {
    let invalid = |error: &dyn std::fmt::Display| Failure::invalid(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| invalid(&error))?;
    serde_json::from_str(&text).map_err(|error| invalid(&error))
}

#[derive(Debug, Args)]
pub(in crate::nova) struct FindMaxArgs {
    /// Longest p99 of acks, from when they were due
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    p99_max: Millis,
    #[command(flatten)]
    load: AppendArgs,
}

impl FindMaxArgs {
    pub(super) fn options(&self, global: &Global) -> FindMaxOptions {
        let mut load = self.load.options(global);
        // Where the search begins, if nobody says.
        load.rate = load.rate.or(Some(1_000.0));
        FindMaxOptions { load, p99_max: self.p99_max.duration() }
    }
}

#[derive(Debug, Args)]
pub(in crate::nova) struct PeerArgs {
    /// The server that you have started: redis, nats or s2-lite
    #[arg(value_name = "PEER")]
    peer: Peer,
    /// Where it listens [default: 127.0.0.1 and the peer's own port]
    #[arg(long, value_name = "HOST:PORT")]
    at: Option<String>,
    #[command(flatten)]
    load: AppendArgs,
}

impl PeerArgs {
    pub(super) fn options(&self, global: &Global) -> PeerOptions {
        let mut load = self.load.options(global);
        load.addr = self.at.clone().unwrap_or_else(|| self.peer.addr().to_owned());
        PeerOptions { peer: self.peer, load, says: String::new() }
    }
}
