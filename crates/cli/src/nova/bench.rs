//! How are the measurements of `bench` asked for, watched and shown?

mod append;
mod compare;
mod read;
mod recover;
mod soak;
mod star;
mod store;
mod verify;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use bench::disk::DiskOptions;
use bench::error::BenchError;
use bench::progress::{Progress, Step};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tuning::units::{Bytes, Millis};
use wire::refusal::Refusal;

use super::args::{Global, Output};
use super::failure::Failure;
use super::help;
use append::{AppendArgs, NetArgs};
use compare::{CompareArgs, FindMaxArgs, MergeArgs, PeerArgs};
use read::{ReadArgs, SubscribeArgs};
use recover::{RecoverArgs, SettleArgs};
use soak::SoakArgs;
pub(super) use store::OfStore;
use store::StoreBenchArgs;
use verify::VerifyArgs;

#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    /// How many appends a second a star takes, and how long each waits for its ack
    #[command(after_help = help::BENCH_APPEND)]
    Append(AppendArgs),
    /// Whether a second run is worse than a first by more than it may be
    #[command(after_help = help::BENCH_COMPARE)]
    Compare(CompareArgs),
    /// How long a durable write takes on this disk: the floor under every ack
    #[command(after_help = help::BENCH_DISK)]
    Disk(DiskArgs),
    /// The highest rate of appends at which p99 stays under a bound
    #[command(after_help = help::BENCH_FIND_MAX)]
    FindMax(FindMaxArgs),
    /// One report of those that generators on several hosts made, which began together
    #[command(after_help = help::BENCH_MERGE)]
    Merge(MergeArgs),
    /// How long a round trip takes with nothing to make durable: the floor under every call
    #[command(after_help = help::BENCH_NET)]
    Net(NetArgs),
    /// The same appends to another server that you have started: redis, nats or s2-lite
    #[command(after_help = help::BENCH_PEER)]
    Peer(PeerArgs),
    /// How fast a star reads back what it holds, by readers that are behind
    #[command(after_help = help::BENCH_READ)]
    Read(ReadArgs),
    /// How long a star takes to come back after a kill
    #[command(after_help = help::BENCH_RECOVER)]
    Recover(RecoverArgs),
    /// How long an acked record takes until the standard store holds it
    #[command(after_help = help::BENCH_SETTLE)]
    Settle(SettleArgs),
    /// Whether a star stays as it is under a mixed load, for hours
    #[command(after_help = help::BENCH_SOAK)]
    Soak(SoakArgs),
    /// How long a put and a get of an object take: the floor under Standard acks and reads of settled records
    #[command(after_help = help::BENCH_STORE)]
    Store(StoreBenchArgs),
    /// How long a record takes from a producer to live subscribers
    #[command(after_help = help::BENCH_SUBSCRIBE)]
    Subscribe(SubscribeArgs),
    /// Whether a star keeps what it acks, across kills of the star and of this command
    #[command(after_help = help::BENCH_VERIFY)]
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub(super) struct DiskArgs {
    /// Where the file is made, and removed
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Sizes of the writes [default: 4KiB to 1MiB in powers of two]
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',')]
    sizes: Vec<Bytes>,
    /// How long each method is measured at each size [default: 500ms]
    #[arg(long, value_name = "TIME")]
    duration: Option<Millis>,
    /// Size of the file [default: 64MiB]
    #[arg(long, value_name = "BYTES")]
    file_bytes: Option<Bytes>,
    /// CPU of the writer
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
}

pub(super) fn run(command: BenchCommand, global: &Global) -> Result<(), Failure> {
    let watch = Watch::start(global.output);
    let mut on_progress = |progress: &Progress| watch.see(progress);
    match command {
        BenchCommand::Append(args) => {
            let options = args.options(global);
            let store = args.store_floor(&options, &watch)?;
            let outcome = bench::append::run(&options, store.as_ref(), &mut on_progress);
            watch.end();
            show_all_the_same(outcome, global.output)
        }
        BenchCommand::Compare(args) => {
            watch.end();
            args.run(global.output)
        }
        BenchCommand::Merge(args) => {
            watch.end();
            args.run(global.output)
        }
        BenchCommand::FindMax(args) => {
            let outcome = bench::find_max::run(&args.options(global), &mut on_progress);
            watch.end();
            show(&outcome?, global.output)
        }
        BenchCommand::Peer(args) => {
            let outcome = bench::peer::run(&args.options(global), &mut on_progress);
            watch.end();
            show_all_the_same(outcome, global.output)
        }
        BenchCommand::Verify(args) => args.run(global, &watch),
        BenchCommand::Disk(args) => {
            let outcome = bench::disk::run(&args.options(), &mut on_progress);
            watch.end();
            show(&outcome?, global.output)
        }
        BenchCommand::Net(args) => {
            let outcome = bench::net::run(&args.options(), &mut on_progress);
            watch.end();
            show(&outcome?, global.output)
        }
        BenchCommand::Read(args) => {
            let outcome = bench::read::run(&args.options(global), &mut on_progress);
            watch.end();
            show(&outcome?, global.output)
        }
        BenchCommand::Recover(args) => args.run(global, &watch),
        BenchCommand::Settle(args) => {
            let outcome = bench::settle::run(&args.options(global), &mut on_progress);
            watch.end();
            show(&outcome?, global.output)
        }
        BenchCommand::Soak(args) => {
            watch.end();
            args.run(global)
        }
        BenchCommand::Store(args) => {
            let outcome = args.store.measure(args.ladder, &watch);
            watch.end();
            show(&outcome?, global.output)
        }
        BenchCommand::Subscribe(args) => {
            let outcome = bench::subscribe::run(&args.options(global), &mut on_progress);
            watch.end();
            show(&outcome?, global.output)
        }
    }
}

impl DiskArgs {
    fn options(self) -> DiskOptions {
        let ladder = DiskOptions::ladder(self.dir);
        DiskOptions {
            sizes: if self.sizes.is_empty() {
                ladder.sizes
            } else {
                self.sizes.into_iter().map(Bytes::as_usize).collect()
            },
            rung: self.duration.map_or(ladder.rung, Millis::duration),
            file_bytes: self.file_bytes.map_or(ladder.file_bytes, Bytes::get),
            cpu: self.cpu,
            ..ladder
        }
    }
}

/// A measurement is of one star.
fn first(global: &Global) -> String {
    global.addr.first().cloned().unwrap_or_default()
}

fn show(report: &(impl Serialize + Display), output: Output) -> Result<(), Failure> {
    let mut out = super::stdout();
    match output {
        Output::Json => {
            serde_json::to_writer(&mut out, report).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Output::Text => writeln!(out, "{}", report.to_string().trim_end())?,
    }
    Ok(out.flush()?)
}

/// Shows a report, also one that an error carries, and then fails with it.
fn show_all_the_same(outcome: Result<impl Serialize + Display, BenchError>, output: Output) -> Result<(), Failure> {
    match &outcome {
        Ok(report) => show(report, output)?,
        Err(BenchError::Violations { report, .. }) => show(&**report, output)?,
        Err(BenchError::Soak { report, .. }) => show(&**report, output)?,
        Err(BenchError::Unkept { report, .. } | BenchError::Unchecked { report, .. }) => show(&**report, output)?,
        Err(_) => {}
    }
    outcome.map(drop).map_err(Failure::from)
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Refused { refusal, .. } | BenchError::Ended { refusal, .. } => refusal.into(),
            error => Refusal::new(error.reason(), error.to_string()).into(),
        }
    }
}

/// A line on a terminal that follows a measurement, or nothing.
struct Watch(Option<ProgressBar>);

impl Watch {
    fn start(output: Output) -> Self {
        let shows = io::stderr().is_terminal() && output == Output::Text;
        Self(shows.then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(ProgressStyle::default_spinner());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        }))
    }

    fn see(&self, progress: &Progress) {
        let Some(bar) = &self.0 else { return };
        let step = match progress.step {
            Step::Opening => "opening",
            Step::WarmUp => "warming up",
            Step::Measuring => "measuring",
            Step::Draining => "waiting for the last answers",
            Step::Floor => "measuring the floor",
        };
        let percent = progress.percent.map_or_else(String::new, |percent| format!(" {percent:.0} %"));
        bar.set_message(format!(
            "{step}{percent}, {} answers, {:.0} a second",
            progress.answers, progress.answers_per_s
        ));
    }

    fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
