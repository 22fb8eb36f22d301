//! What can be said about settling and coming back?

use bench::append::AppendOptions;
use bench::recover::RecoverOptions;
use bench::settle::SettleOptions;
use bench::star::Star;
use clap::Args;
use tuning::units::{Bytes, Millis};
use wire::config::Class;

use super::super::args::Global;
use super::super::failure::Failure;
use super::append::class;
use super::star::StarArgs;
use super::{Watch, first, show};

#[derive(Debug, Args)]
pub(in crate::nova) struct SettleArgs {
    /// The bucket of the streams, made (express) when it is not there
    #[arg(long, value_name = "BUCKET", default_value = "bench")]
    bucket: String,
    /// Streams, each with one record that is waited for at a time
    #[arg(long, value_name = "N", default_value = "16")]
    streams: u32,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value = "256")]
    record_bytes: Bytes,
    /// Records a second at most
    #[arg(long, value_name = "N", default_value = "100")]
    rate: f64,
    /// How long to append
    #[arg(long, value_name = "TIME", default_value = "10s")]
    duration: Millis,
    /// How long the last records are waited for
    #[arg(long, value_name = "TIME", default_value = "1m")]
    wait_max: Millis,
}

impl SettleArgs {
    pub(super) fn options(self, global: &Global) -> SettleOptions {
        SettleOptions {
            addr: first(global),
            bucket: self.bucket,
            streams: self.streams,
            record_bytes: self.record_bytes.as_usize(),
            rate: self.rate,
            duration: self.duration.duration(),
            wait_max: self.wait_max.duration(),
        }
    }
}

#[derive(Debug, Args)]
pub(in crate::nova) struct RecoverArgs {
    /// How often the star is killed
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: u32,
    /// How long to append before each kill
    #[arg(long, value_name = "TIME", default_value = "5s")]
    duration: Millis,
    /// The class of the streams
    #[arg(long, value_name = "CLASS", default_value = "express", value_parser = class)]
    class: Class,
    /// Streams
    #[arg(long, value_name = "N", default_value = "1000")]
    streams: u32,
    /// Connections
    #[arg(long, value_name = "N", default_value = "16")]
    connections: u16,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value = "256")]
    record_bytes: Bytes,
    /// Records of an append
    #[arg(long, value_name = "N", default_value = "10")]
    records_per_batch: usize,
    #[command(flatten)]
    star: StarArgs,
}

impl RecoverArgs {
    pub(super) fn run(self, global: &Global, watch: &Watch) -> Result<(), Failure> {
        let Some(mut star) = self.star.start()? else {
            return Err(Failure::invalid("say --start --data DIR: only a star that this command started is killed"));
        };
        let options = RecoverOptions {
            load: AppendOptions {
                classes: vec![self.class],
                create: true,
                streams: self.streams,
                connections: self.connections,
                record_bytes: self.record_bytes.as_usize(),
                records_per_batch: self.records_per_batch,
                warm_up: std::time::Duration::ZERO,
                duration: self.duration.duration(),
                ..AppendOptions::default()
            },
            rounds: self.rounds,
            data: self.star.data().unwrap_or_default(),
            log: self.star.log(),
        };
        let outcome = bench::recover::run(&options, &mut star, &mut |progress| watch.see(progress));
        watch.end();
        let ended = Star::end(star);
        show(&outcome?, global.output)?;
        Ok(ended?)
    }
}
