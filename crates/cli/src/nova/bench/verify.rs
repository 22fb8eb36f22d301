//! What can be said about a check of promises?

use std::path::PathBuf;

use bench::star::Star;
use bench::verify::VerifyOptions;
use clap::Args;
use tuning::units::{Bytes, Millis};
use wire::config::Class;

use super::super::args::Global;
use super::super::failure::Failure;
use super::append::class;
use super::star::StarArgs;
use super::{Watch, first, show_all_the_same};

#[derive(Debug, Args)]
pub(in crate::nova) struct VerifyArgs {
    /// Where acks are noted, each on the disk before it counts; a directory that holds a journal goes on with it
    #[arg(long, value_name = "DIR")]
    journal: PathBuf,
    /// How long to write; 0 only checks what an earlier run wrote
    #[arg(long, value_name = "TIME", default_value = "30s")]
    duration: Millis,
    /// The class of the streams
    #[arg(long, value_name = "CLASS", default_value = "express", value_parser = class)]
    class: Class,
    /// The bucket of the streams, made when it is not there [default: bench, with --class standard bench-standard]
    #[arg(long, value_name = "BUCKET")]
    bucket: Option<String>,
    /// Streams
    #[arg(long, value_name = "N", default_value = "16")]
    streams: u32,
    /// Writers, each with a thread and two connections
    #[arg(long, value_name = "N", default_value = "8")]
    writers: u16,
    /// Bytes of a record
    #[arg(long, value_name = "BYTES", default_value = "256")]
    record_bytes: Bytes,
    /// Records of an append
    #[arg(long, value_name = "N", default_value = "4")]
    records_per_batch: usize,
    /// How long the server may be away
    #[arg(long, value_name = "TIME", default_value = "2m")]
    outage_max: Millis,
    /// Kill the star that was started this often, and start it again
    #[arg(long, value_name = "TIME", requires = "start")]
    kill_every: Option<Millis>,
    #[command(flatten)]
    star: StarArgs,
}

impl VerifyArgs {
    pub(super) fn run(self, global: &Global, watch: &Watch) -> Result<(), Failure> {
        let log = self.star.log();
        let mut star = self.star.start()?;
        let addr = star.as_ref().map_or_else(|| first(global), |star| star.addr().to_owned());
        let options = VerifyOptions {
            addr,
            bucket: self.bucket,
            class: self.class,
            streams: self.streams,
            writers: self.writers,
            record_bytes: self.record_bytes.as_usize(),
            records_per_batch: self.records_per_batch,
            duration: self.duration.duration(),
            journal: self.journal,
            outage_max: self.outage_max.duration(),
        };
        let mut kill = || match &mut star {
            Some(star) => star.restart(log.as_deref()).map(drop),
            None => Ok(()),
        };
        let kill = self.kill_every.map(Millis::duration).zip(Some(&mut kill as bench::verify::Kill<'_>));
        let outcome = bench::verify::run(&options, kill, &mut |progress| watch.see(progress));
        watch.end();
        let shown = show_all_the_same(outcome, global.output);
        let ended = star.map_or(Ok(()), Star::end);
        shown?;
        Ok(ended?)
    }
}
