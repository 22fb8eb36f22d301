//! Which streams may have lost records with a head log, and from where on?
//!
//! The store does not know which log a stream wrote to. Each Express stream that it has of an earlier tenure may have had more in
//! the one that is lost. Streams that only the lost log knew are gone, name and all, and nothing is left to tell of them.

use wire::bucket::Bucket;
use wire::config::Class;
use wire::ids::{Epoch, SeqNum, StreamId};
use wire::names::{Address, BucketName};
use wire::stream_row::StreamRow;

use crate::index::{Index, IndexError};

/// Streams that are named one by one.
const NAMED_MAX: usize = 20;
/// Streams that are looked at; a star with more starts without a look at the rest.
const LOOKED_AT_MAX: u64 = 100_000;
/// Streams asked for at once.
const PAGE: usize = 1_000;

/// A stream that may have lost what followed what the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LossyStream {
    /// Where it is.
    pub address: Address,
    /// Which.
    pub stream_id: StreamId,
    /// The first sequence number that may be lost.
    pub from: SeqNum,
}

/// The streams that may have lost records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The first of them, by bucket and key.
    pub named: Vec<LossyStream>,
    /// How many there are among those that were looked at.
    pub streams: u64,
    /// There are streams that were not looked at.
    pub has_more: bool,
}

/// Looks for them in the index.
pub(crate) async fn survey(
    index: &Index,
    buckets: impl Iterator<Item = &Bucket>,
    loss_epoch: Epoch,
) -> Result<Losses, IndexError> {
    let (mut losses, mut looked_at) = (Losses::default(), 0);
    for bucket in buckets {
        let mut after = String::new();
        loop {
            let rows = index.list(bucket.id, &after, PAGE).await?;
            let Some(last) = rows.last() else { break };
            last.key.as_str().clone_into(&mut after);
            looked_at += rows.len() as u64;
            let is_lossy = |row: &&StreamRow| row.config.class == Class::Express && row.epoch < loss_epoch;
            rows.iter().filter(is_lossy).for_each(|row| losses.add(&bucket.name, row));
            if looked_at >= LOOKED_AT_MAX {
                losses.has_more = true;
                return Ok(losses);
            }
        }
    }
    Ok(losses)
}

impl Losses {
    fn add(&mut self, bucket: &BucketName, row: &StreamRow) {
        self.streams += 1;
        if self.named.len() < NAMED_MAX {
            let address = Address { bucket: bucket.clone(), key: row.key.clone() };
            self.named.push(LossyStream { address, stream_id: row.stream_id, from: row.tail.seq_num });
        }
    }
}
