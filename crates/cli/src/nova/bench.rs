//! How are the measurements of `bench` asked for, watched and shown?

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use bench::append::AppendOptions;
use bench::disk::DiskOptions;
use bench::error::BenchError;
use bench::net::NetOptions;
use bench::progress::{Progress, Step};
use bench::subscribe::SubscribeOptions;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tuning::units::{Bytes, Millis};
use wire::refusal::Refusal;

use super::args::{Global, Output};
use super::failure::Failure;
use super::help;

#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    /// How many appends a second a star takes, and how long each waits for its ack
    #[command(after_help = help::BENCH_APPEND)]
    Append(AppendArgs),
    /// How long a durable write takes on this disk: the floor under every ack
    #[command(after_help = help::BENCH_DISK)]
    Disk(DiskArgs),
    /// How long a round trip takes with nothing to make durable: the floor under every call
    #[command(after_help = help::BENCH_NET)]
    Net(NetArgs),
    /// How long a record takes from a producer to a live subscriber
    #[command(after_help = help::BENCH_SUBSCRIBE)]
    Subscribe(SubscribeArgs),
}

/// The shape of a load.
#[derive(Debug, Args)]
pub(super) struct LoadArgs {
    /// Connections [default: 1]
    #[arg(long, value_name = "N")]
    connections: Option<u16>,
    /// Appends in flight on a connection [default: 16, of net 1]
    #[arg(long, value_name = "N")]
    window: Option<u32>,
    /// Bytes of a record [default: 256]
    #[arg(long, value_name = "BYTES")]
    record_bytes: Option<Bytes>,
    /// Records of an append [default: 1]
    #[arg(long, value_name = "N")]
    records_per_batch: Option<usize>,
    /// How long to run before measuring [default: 2s, of net 500ms]
    #[arg(long, value_name = "TIME")]
    warm_up: Option<Millis>,
    /// How long to measure [default: 10s, of net 3s]
    #[arg(long, value_name = "TIME")]
    duration: Option<Millis>,
    /// Threads of the generator [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<u16>,
    /// CPUs for the generator's threads, in turn
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    cpus: Vec<usize>,
}

#[derive(Debug, Args)]
pub(super) struct AppendArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// The bucket of the streams, made (express) when it is not there
    #[arg(long, value_name = "BUCKET", default_value = "bench")]
    bucket: String,
    /// Don't make the bucket
    #[arg(long)]
    no_create: bool,
    /// What the streams' keys start with
    #[arg(long, value_name = "TEXT", default_value = "bench")]
    key_prefix: String,
    /// Streams
    #[arg(long, value_name = "N", default_value = "1")]
    streams: u32,
    /// Appends a second, evenly spaced; without it the next append goes when an ack frees its place
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// One append to each stream outside of any session, then end
    #[arg(long)]
    one_shot: bool,
    /// What the records' bytes are drawn from
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Measure disk (in this directory) and network right before, and compare
    #[arg(long, value_name = "DIR")]
    with_floors: Option<PathBuf>,
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

#[derive(Debug, Args)]
pub(super) struct NetArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// CPU of the echo
    #[arg(long, value_name = "CPU")]
    server_cpu: Option<usize>,
}

#[derive(Debug, Args)]
pub(super) struct SubscribeArgs {
    /// The bucket of the stream, made (express) when it is not there
    #[arg(long, value_name = "BUCKET", default_value = "bench")]
    bucket: String,
    /// Don't make the bucket
    #[arg(long)]
    no_create: bool,
    /// What the stream's key starts with
    #[arg(long, value_name = "TEXT", default_value = "bench-live")]
    key_prefix: String,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value = "256")]
    record_bytes: Bytes,
    /// Records a second, one an append
    #[arg(long, value_name = "N", default_value = "500")]
    rate: f64,
    /// How long to run before measuring
    #[arg(long, value_name = "TIME", default_value = "1s")]
    warm_up: Millis,
    /// How long to measure
    #[arg(long, value_name = "TIME", default_value = "10s")]
    duration: Millis,
    /// CPUs for producer and subscriber, in turn
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    cpus: Vec<usize>,
}

pub(super) fn run(command: BenchCommand, global: &Global) -> Result<(), Failure> {
    let watch = Watch::start(global.output);
    let mut on_progress = |progress: &Progress| watch.see(progress);
    match command {
        BenchCommand::Append(args) => {
            let outcome = bench::append::run(&args.options(global), &mut on_progress);
            watch.end();
            match outcome {
                Err(BenchError::Violations { ref report, .. }) => {
                    show(&**report, global.output)?;
                    outcome.map(drop).map_err(Failure::from)
                }
                outcome => show(&outcome?, global.output),
            }
        }
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
        BenchCommand::Subscribe(args) => {
            let outcome = bench::subscribe::run(&args.options(global), &mut on_progress);
            watch.end();
            show(&outcome?, global.output)
        }
    }
}

impl AppendArgs {
    fn options(self, global: &Global) -> AppendOptions {
        let defaults = AppendOptions::default();
        let load = self.load;
        AppendOptions {
            addr: first(global),
            bucket: self.bucket,
            create: !self.no_create,
            key_prefix: self.key_prefix,
            streams: self.streams,
            connections: load.connections.unwrap_or(defaults.connections),
            window: load.window.unwrap_or(defaults.window),
            record_bytes: load.record_bytes.map_or(defaults.record_bytes, Bytes::as_usize),
            records_per_batch: load.records_per_batch.unwrap_or(defaults.records_per_batch),
            rate: self.rate,
            one_shot: self.one_shot,
            warm_up: load.warm_up.map_or(defaults.warm_up, Millis::duration),
            duration: load.duration.map_or(defaults.duration, Millis::duration),
            threads: load.threads.unwrap_or(defaults.threads),
            cpus: load.cpus,
            seed: self.seed,
            with_floors: self.with_floors,
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

impl NetArgs {
    fn options(self) -> NetOptions {
        let defaults = NetOptions::default();
        let load = self.load;
        NetOptions {
            connections: load.connections.unwrap_or(defaults.connections),
            window: load.window.unwrap_or(defaults.window),
            record_bytes: load.record_bytes.map_or(defaults.record_bytes, Bytes::as_usize),
            records_per_batch: load.records_per_batch.unwrap_or(defaults.records_per_batch),
            warm_up: load.warm_up.map_or(defaults.warm_up, Millis::duration),
            duration: load.duration.map_or(defaults.duration, Millis::duration),
            threads: load.threads.unwrap_or(defaults.threads),
            cpus: load.cpus,
            server_cpu: self.server_cpu,
        }
    }
}

impl SubscribeArgs {
    fn options(self, global: &Global) -> SubscribeOptions {
        SubscribeOptions {
            addr: first(global),
            bucket: self.bucket,
            create: !self.no_create,
            key_prefix: self.key_prefix,
            record_bytes: self.record_bytes.as_usize(),
            rate: self.rate,
            warm_up: self.warm_up.duration(),
            duration: self.duration.duration(),
            cpus: self.cpus,
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
