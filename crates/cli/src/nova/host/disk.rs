//! How quick are durable writes where the data are, and where is that kept?

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bench::disk::{DiskOptions, DiskReport};
use clap::Args;
use serde_json::json;
use tuning::host::{cpus_allowed, nearest_directory};
use tuning::measured::{CommitMethod, DiskId, Measurement, Timed, kept_at, method};
use tuning::plan::Plan;
use tuning::units::Millis;

use super::super::args::Output;
use super::super::failure::Failure;
use super::super::stdout;
use super::look::NovadFlags;

#[derive(Debug, Args)]
pub(in crate::nova) struct DiskArgs {
    /// How long each method is measured at each size
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    duration: Millis,
    #[command(flatten)]
    novad: NovadFlags,
}

impl DiskArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let settings = self.novad.settings()?;
        let data = &settings.data;
        let plan = Plan::new(settings.shards, &cpus_allowed());
        let ladder = DiskOptions::commits(nearest_directory(data));
        let options = DiskOptions { rung: self.duration.duration(), cpu: plan.shard_cpus().first().copied(), ..ladder };
        if output == Output::Text {
            let seconds = options.rung.as_secs_f64() * options.steps().len() as f64;
            writeln!(io::stderr(), "measuring for about {:.0} s", seconds.max(1.0))?;
        }
        let report = bench::disk::run(&options, &mut |_| ())?;
        let Some(best) = judge(&report) else {
            return Err(Failure::Local("nothing was measured that commits could be made by".to_owned()));
        };
        let unkept = |error| Failure::Local(format!("{} can't be written: {error}", kept_at(data).display()));
        let kept = keep(&report, data).map_err(unkept)?;
        show(&report, &best, &kept, output)
    }
}

fn show(report: &DiskReport, best: &CommitMethod, kept: &Path, output: Output) -> Result<(), Failure> {
    let CommitMethod { sync, inline_commit, commits_in_flight, how } = best;
    let mut out = stdout();
    match output {
        Output::Json => {
            let value = json!({
                "sync": sync.to_string(),
                "inline_commit": inline_commit,
                "commits_in_flight": commits_in_flight,
                "how": how,
                "kept": kept,
                "ladder": report,
            });
            writeln!(out, "{value}")?;
        }
        Output::Text => {
            writeln!(out, "{}\n", report.to_string().trim_end())?;
            for (setting, value) in CommitMethod::SETTINGS.iter().zip(best.values()) {
                writeln!(out, "{setting} = {value}")?;
            }
            writeln!(out, "for {how}")?;
            writeln!(out, "kept in {}: novad goes by it where these are not set", kept.display())?;
        }
    }
    Ok(out.flush()?)
}

/// Keeps what was found beside a data directory; answers the file.
fn keep(report: &DiskReport, data: &Path) -> io::Result<PathBuf> {
    let disk = DiskId::below(&report.settings.directory)?;
    let (at_ms, kernel) = (report.made.started_at_ms, report.made.host.kernel.clone());
    Measurement::new(at_ms, kernel, disk, report.is_direct, writes(report)).keep(data)
}

/// What was timed, without what only people read.
fn writes(report: &DiskReport) -> Vec<Timed> {
    let timed = report.rungs.iter().filter_map(|rung| {
        let latency = rung.latency_us;
        Some(Timed {
            write_bytes: rung.write_bytes as u64,
            method: rung.method,
            depth: u16::try_from(rung.depth).ok()?,
            p50_us: latency.p50.or(latency.max)?,
            p99_us: latency.p99,
            bytes_per_s: rung.bytes_per_s,
        })
    });
    timed.collect()
}

/// How commits are best made by what was measured beside this data directory; none when nothing was, or nothing that may be gone by,
/// which is told.
pub(super) fn measured(data: &Path) -> io::Result<Option<CommitMethod>> {
    match method(data, SystemTime::now()) {
        Ok(method) => Ok(method),
        Err(doubt) => {
            let kept = kept_at(data);
            writeln!(io::stderr(), "{} is left out: {doubt}; `nova host disk` makes it anew", kept.display())?;
            Ok(None)
        }
    }
}

/// How commits are best made by a report; none when it says nothing about them.
pub(super) fn judge(report: &DiskReport) -> Option<CommitMethod> {
    CommitMethod::judge(&writes(report))
}
