//! What can be said about reading, live and behind?

use bench::read::{Mode, ReadOptions};
use bench::subscribe::SubscribeOptions;
use clap::{Args, ValueEnum};
use tuning::units::{Bytes, Millis};

use super::super::args::Global;
use super::append::class;
use super::first;
use wire::config::Class;

/// How records are asked for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(in crate::nova) enum Asking {
    /// One page after another.
    Pages,
    /// A subscription from the start.
    Subscription,
}

#[derive(Debug, Args)]
pub(in crate::nova) struct ReadArgs {
    /// The bucket of the streams [default: bench, with --class standard bench-standard]
    #[arg(long, value_name = "BUCKET")]
    bucket: Option<String>,
    /// The class of the streams, as it was said to the append that made them: chooses the bucket
    #[arg(long, value_name = "CLASS", default_value = "express", value_parser = class)]
    class: Class,
    /// What the streams' keys start with
    #[arg(long, value_name = "TEXT", default_value = "bench")]
    key_prefix: String,
    /// Streams
    #[arg(long, value_name = "N", default_value = "1")]
    streams: u32,
    /// Readers, each with a connection of its own; they share the streams out
    #[arg(long, alias = "connections", value_name = "N", default_value = "1")]
    readers: u16,
    /// How records are asked for
    #[arg(long, value_enum, value_name = "HOW", default_value = "subscription")]
    by: Asking,
    /// The sequence number to start at
    #[arg(long, value_name = "SEQ", default_value = "0")]
    from: u64,
    /// Content of a page at most [default: the server's bound]
    #[arg(long, value_name = "BYTES", default_value = "0", hide_default_value = true)]
    page_bytes: Bytes,
    /// Credit of a subscription
    #[arg(long, value_name = "BYTES", default_value = "8MiB")]
    credit: Bytes,
    /// Go around again until this time is over; without it every stream is read once, to the tail it then has
    #[arg(long, value_name = "TIME")]
    duration: Option<Millis>,
    /// More readers, which go slowly and are left out of the numbers
    #[arg(long, alias = "slow-reader", value_name = "N", default_value = "0")]
    slow_readers: u16,
    /// Records a second that each slow reader takes
    #[arg(long, value_name = "N", default_value = "100")]
    slow_rate: f64,
    /// CPUs for the readers, in turn
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    cpus: Vec<usize>,
}

impl ReadArgs {
    pub(super) fn options(self, global: &Global) -> ReadOptions {
        ReadOptions {
            addr: first(global),
            bucket: self.bucket.unwrap_or_else(|| bench::append::bucket_of(self.class)),
            key_prefix: self.key_prefix,
            streams: self.streams,
            readers: self.readers,
            mode: match self.by {
                Asking::Pages => Mode::Pages,
                Asking::Subscription => Mode::Subscription,
            },
            from: self.from,
            page_bytes: u32::try_from(self.page_bytes.get()).unwrap_or(u32::MAX),
            credit_bytes: u32::try_from(self.credit.get()).unwrap_or(u32::MAX),
            duration: self.duration.map(Millis::duration),
            slow_readers: self.slow_readers,
            slow_rate: self.slow_rate,
            cpus: self.cpus,
        }
    }
}

#[derive(Debug, Args)]
pub(in crate::nova) struct SubscribeArgs {
    /// The bucket of the stream, made when it is not there [default: bench, with --class standard bench-standard]
    #[arg(long, value_name = "BUCKET")]
    bucket: Option<String>,
    /// The class of the bucket's streams
    #[arg(long, value_name = "CLASS", default_value = "express", value_parser = class)]
    class: Class,
    /// Don't make the bucket
    #[arg(long)]
    no_create: bool,
    /// What the stream's key starts with
    #[arg(long, value_name = "TEXT", default_value = "bench-live")]
    key_prefix: String,
    /// Subscribers, each on a connection of its own
    #[arg(long, value_name = "N", default_value = "1")]
    subscribers: u32,
    /// Follow by server-sent events of the HTTP surface there, not over the wire; records are appended over the wire all the same
    #[arg(long, value_name = "HOST:PORT")]
    sse: Option<String>,
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
    /// CPUs for producer and subscribers, in turn
    #[arg(long, value_name = "CPU,…", value_delimiter = ',')]
    cpus: Vec<usize>,
}

impl SubscribeArgs {
    pub(super) fn options(self, global: &Global) -> SubscribeOptions {
        SubscribeOptions {
            addr: first(global),
            bucket: self.bucket.unwrap_or_else(|| bench::append::bucket_of(self.class)),
            class: self.class,
            create: !self.no_create,
            key_prefix: self.key_prefix,
            sse: self.sse,
            subscribers: self.subscribers,
            record_bytes: self.record_bytes.as_usize(),
            rate: self.rate,
            warm_up: self.warm_up.duration(),
            duration: self.duration.duration(),
            cpus: self.cpus,
        }
    }
}
