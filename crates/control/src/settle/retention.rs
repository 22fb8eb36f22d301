//! Which records are too old, or too many?
//!
//! Streams are asked to trim them, as a client would: only what they commit takes effect.

use futures_util::stream::{self, StreamExt};
use wire::chunk::entries;
use wire::entry::Entry;
use wire::handoff::{HistoryFrom, ToShard};
use wire::ids::SeqNum;
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use super::{SettleError, Settler};
use crate::core::settle_clock::ClockLook;
use crate::index::Due;

/// Streams that one step asks to trim what is too old.
const DUE_MAX: usize = 256;
/// Of these, how many are looked at in the store at a time.
const READS_AT_A_TIME: usize = 16;
/// Bytes that are read to find the first record that stays.
const READ_BYTES: u32 = 64 << 10;

impl Settler {
    /// Takes a look at the clocks, and asks streams to trim what is too old, if these can be believed, and what is too much. Answers how
    /// many were asked.
    ///
    /// # Errors
    /// [`SettleError`]; streams that were not asked are asked later.
    pub async fn retention_step(
        &self,
        look: ClockLook,
        trims: &(impl Fn(Slot, ToShard) + Send + Sync),
    ) -> Result<usize, SettleError> {
        let believed = self.watch_clock(look).await;
        let over = self.index.take_over_bytes().await?;
        let mut count = over.iter().filter(|(row, to)| ask(row, *to, trims)).count();
        self.counted().trims_asked += count as u64;
        if !believed? {
            return Ok(count);
        }
        let due = self.index.due_by_age(look.wall_ms, DUE_MAX).await?;
        let first = |due: Due| async move {
            let to = self.first_to_stay(&due).await;
            (due.row, to)
        };
        let mut firsts = Box::pin(stream::iter(due).map(first).buffer_unordered(READS_AT_A_TIME));
        while let Some((row, to)) = firsts.next().await {
            let is_asked = ask(&row, to, trims);
            count += usize::from(is_asked);
            self.counted().trims_asked += u64::from(is_asked);
        }
        Ok(count)
    }

    /// The first record of the first batch that is not too old; as far as extents tell when it can't be read.
    async fn first_to_stay(&self, due: &Due) -> SeqNum {
        let (slot, stream_id) = (due.row.slot(), due.row.stream_id);
        let from = HistoryFrom::Timestamp(due.cutoff_ms);
        match self.history.read(slot, stream_id, from, READ_BYTES).await {
            Ok(span) => first_since(&span.bytes, due.cutoff_ms).map_or(due.to, |first| first.max(due.to)),
            Err(error) => {
                tracing::warn!(%stream_id, %error, "the first record to keep is taken from the index");
                due.to
            }
        }
    }
}

/// The first record of the first batch whose last is stamped at or after this.
fn first_since(span: &[u8], cutoff_ms: i64) -> Option<SeqNum> {
    entries(span).map_while(Result::ok).find_map(|(entry, _)| match entry {
        Entry::Batch { head, .. } if head.last_ms >= cutoff_ms => Some(head.first),
        _ => None,
    })
}

/// Asks a stream to trim, unless it has.
fn ask(row: &StreamRow, to: SeqNum, trims: &impl Fn(Slot, ToShard)) -> bool {
    if to <= row.trim_point {
        return false;
    }
    let (bucket, key, stream_id) = (row.bucket, row.key.clone(), row.stream_id);
    trims(row.slot(), ToShard::TrimTo { bucket, key, stream_id, to });
    true
}
