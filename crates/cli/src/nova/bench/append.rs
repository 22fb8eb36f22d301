//! What can be said about a load of appends?

use std::path::PathBuf;

use bench::append::AppendOptions;
use bench::arrivals::Arrivals;
use bench::files::Files;
use bench::net::NetOptions;
use bench::shape::{Sizes, Spread};
use bench::start_at::StartAt;
use bench::store::StoreReport;
use clap::Args;
use tuning::units::{Bytes, Millis};
use wire::config::Class;

use super::super::args::Global;
use super::super::failure::Failure;
use super::store::{Ladder, StoreArgs};
use super::{Watch, first};

/// The shape of a load.
#[derive(Debug, Args)]
pub(in crate::nova) struct LoadArgs {
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
pub(in crate::nova) struct AppendArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// The class of the streams: express, standard, or both, which share the streams out evenly
    #[arg(long, value_name = "CLASS,…", value_delimiter = ',', default_value = "express", value_parser = class)]
    class: Vec<Class>,
    /// The bucket of the streams, made when it is not there; with two classes, two whose names end in -express and -standard
    /// [default: bench, of Standard streams bench-standard]
    #[arg(long, value_name = "BUCKET")]
    bucket: Option<String>,
    /// Don't make the bucket
    #[arg(long)]
    no_create: bool,
    /// What the streams' keys start with
    #[arg(long, value_name = "TEXT", default_value = "bench")]
    key_prefix: String,
    /// Streams there are
    #[arg(long, value_name = "N", default_value = "1")]
    streams: u32,
    /// Share of the streams that is appended to, evenly spread
    #[arg(long, value_name = "SHARE", default_value = "1")]
    active_share: f64,
    /// Appends a second; without it the next append goes when an ack frees its place
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// How they are spread: constant, poisson, step:RATE@TIME, ramp:RATE or burst:RATE/TIME/EVERY
    #[arg(long, value_name = "HOW", default_value = "constant")]
    arrivals: Arrivals,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a row a second to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a histogram a second to this file, as an HdrHistogram log
    #[arg(long, value_name = "FILE")]
    hlog: Option<PathBuf>,
    /// Write the report as one page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Sizes of the records in place of --record-bytes: uniform:LOW..HIGH, exp:MEAN or lines:FILE
    #[arg(long, value_name = "SIZES", default_value = "fixed", hide_default_value = true)]
    sizes: Sizes,
    /// How the appends of a connection are shared out over its streams: uniform, zipf:EXPONENT or hot:SHARE
    #[arg(long, value_name = "HOW", default_value = "uniform")]
    spread: Spread,
    /// Each append says which sequence number it must get
    #[arg(long)]
    conditional: bool,
    /// One append to each stream outside of any session, then end
    #[arg(long)]
    one_shot: bool,
    /// What the records' bytes are drawn from
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// When to start, for generators on several hosts that begin together: such as 2026-12-01T10:00:00Z, or seconds since 1970
    #[arg(long, value_name = "TIME")]
    start_at: Option<StartAt>,
    /// Measure disk (in this directory) and network right before, and the store when --store names one, and compare
    #[arg(long, value_name = "DIR")]
    with_floors: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Args)]
pub(in crate::nova) struct NetArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// CPU of the echo
    #[arg(long, value_name = "CPU")]
    server_cpu: Option<usize>,
}

/// The class of a word.
pub(super) fn class(word: &str) -> Result<Class, String> {
    word.parse().map_err(|error: wire::config::ConfigError| error.to_string())
}

impl AppendArgs {
    pub(super) fn options(&self, global: &Global) -> AppendOptions {
        let defaults = AppendOptions::default();
        let load = &self.load;
        AppendOptions {
            addr: first(global),
            bucket: self.bucket.clone(),
            classes: self.class.clone(),
            create: !self.no_create,
            key_prefix: self.key_prefix.clone(),
            streams: self.streams,
            active_share: self.active_share,
            connections: load.connections.unwrap_or(defaults.connections),
            window: load.window.unwrap_or(defaults.window),
            record_bytes: load.record_bytes.map_or(defaults.record_bytes, Bytes::as_usize),
            records_per_batch: load.records_per_batch.unwrap_or(defaults.records_per_batch),
            rate: self.rate,
            arrivals: self.arrivals,
            files: Files {
                json: self.json.clone(),
                csv: self.csv.clone(),
                hlog: self.hlog.clone(),
                html: self.html.clone(),
            },
            one_shot: self.one_shot,
            start_at: self.start_at,
            sizes: self.sizes.clone(),
            spread: self.spread,
            conditional: self.conditional,
            warm_up: load.warm_up.map_or(defaults.warm_up, Millis::duration),
            duration: load.duration.map_or(defaults.duration, Millis::duration),
            threads: load.threads.unwrap_or(defaults.threads),
            cpus: load.cpus.clone(),
            seed: self.seed,
            with_floors: self.with_floors.clone(),
        }
    }

    /// What the store does at the sizes that matter, if floors are wanted and a store is named.
    pub(super) fn store_floor(&self, options: &AppendOptions, watch: &Watch) -> Result<Option<StoreReport>, Failure> {
        if self.with_floors.is_none() || !self.store.is_said() {
            return Ok(None);
        }
        let sizes = bench::floors::chunk_sizes(options).into_iter().map(|bytes| Bytes::new(bytes as u64)).collect();
        let ladder = Ladder { sizes, depths: vec![1, 8], duration: Some(Millis::seconds(1)), rung_bytes_max: None };
        self.store.measure(ladder, watch).map(Some)
    }
}

impl NetArgs {
    pub(super) fn options(self) -> NetOptions {
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
