//! What was committed and not yet durable in the index?
//!
//! At a start that is read from the channels that ended, from the last checkpoint on.

use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use wire::chunk::{Footer, ObjectError, Settles, check_extent};
use wire::handoff::SettledLogs;
use wire::ids::{Epoch, Lsn};

use super::slot::OpenSlot;
use super::{Index, IndexError, apply, parts};
use crate::channel::{ChunkId, PriorChannel, read_chunk};

/// Chunks that are read ahead of those that are applied.
const AHEAD: usize = 16;
/// Bytes of chunks that are applied together, but for the last of them.
const TOGETHER_BYTES: usize = 64 << 20;
/// What a small chunk counts as, so that no more than a thousand are applied together.
const CHUNK_BYTES_MIN: usize = 64 << 10;

/// A chunk that was read.
type Read = (ChunkId, Bytes, Footer);

/// What a replay found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// How far head logs are settled.
    pub settled: SettledLogs,
    /// Chunks that were read.
    pub chunks: u64,
}

impl Replayed {
    fn note(&mut self, footer: &Footer) {
        self.chunks += 1;
        for Settles { log, to, .. } in &footer.settles {
            // One past the last entry; nothing is settled of a log whose first is still to come.
            let Some(upto) = to.get().checked_sub(1).map(Lsn::new) else { continue };
            let known = self.settled.entry(*log).or_insert(upto);
            *known = upto.max(*known);
        }
    }
}

/// Checks the sums of all extents.
pub(super) fn check_extents(bytes: &[u8], footer: &Footer) -> Result<(), ObjectError> {
    footer.extents.iter().try_for_each(|extent| {
        let start = extent.offset as usize;
        let end = start.saturating_add(extent.bytes as usize).min(bytes.len());
        check_extent(extent, bytes.get(start..end).unwrap_or_default())
    })
}

/// Reads chunks until there are so many bytes; when there are no more, or one can't be read, how it ended.
async fn read_together(
    chunks: &mut (impl Stream<Item = Result<Read, IndexError>> + Unpin),
    bytes_max: usize,
) -> (Vec<Read>, Option<Result<(), IndexError>>) {
    let (mut together, mut bytes) = (Vec::new(), 0);
    while bytes < bytes_max {
        match chunks.try_next().await {
            Ok(Some(read)) => {
                bytes += read.1.len().max(CHUNK_BYTES_MIN);
                together.push(read);
            }
            Ok(None) => return (together, Some(Ok(()))),
            Err(error) => return (together, Some(Err(error))),
        }
    }
    (together, None)
}

impl Index {
    /// Applies what channels that have ended hold past the last checkpoint, in the order of their incarnations. What was applied
    /// changes nothing, so a replay that failed may be repeated.
    ///
    /// # Errors
    /// [`IndexError`] at the first chunk that can't be read or applied.
    pub async fn replay(&self, prior: &[PriorChannel]) -> Result<Replayed, IndexError> {
        self.replay_by(prior, TOGETHER_BYTES).await
    }

    /// As [`Index::replay`], with so many bytes of chunks applied together.
    pub(super) async fn replay_by(&self, prior: &[PriorChannel], bytes: usize) -> Result<Replayed, IndexError> {
        let mut channels: BTreeMap<Epoch, PriorChannel> = BTreeMap::new();
        channels.extend(prior.iter().map(|channel| (channel.incarnation, *channel)));
        let mut replayed = Replayed::default();
        for PriorChannel { incarnation, low, end, .. } in channels.into_values() {
            if low > end {
                return Err(IndexError::Channel { incarnation, low, end });
            }
            let next = self.checkpointed(incarnation).map_or(0, |position| position + 1);
            // The last chunk restates how far each head log is settled, and is read in any case.
            let from = next.max(low).min(end.saturating_sub(1).max(low));
            self.apply_read(self.chunks(incarnation, from..end), bytes, &mut replayed).await?;
        }
        Ok(replayed)
    }

    /// Applies chunks as they are read, many of them together: each slot is gone to once for all of them then. Those before one that can't be
    /// read are applied.
    async fn apply_read(
        &self,
        chunks: impl Stream<Item = Result<Read, IndexError>> + Send,
        bytes_max: usize,
        replayed: &mut Replayed,
    ) -> Result<(), IndexError> {
        let mut chunks = pin!(chunks);
        loop {
            let (together, ended) = read_together(&mut chunks, bytes_max).await;
            together.iter().for_each(|(.., footer)| replayed.note(footer));
            self.apply_replayed(&together).await?;
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// Applies chunks of a channel, but for those that are applied durably: of these the last alone is read.
    async fn apply_replayed(&self, chunks: &[Read]) -> Result<(), IndexError> {
        let mut fresh = Vec::with_capacity(chunks.len());
        for (at, bytes, footer) in chunks {
            if self.checkpointed(at.incarnation).is_some_and(|position| at.position <= position) {
                self.progress().applied.note(*at);
            } else {
                fresh.push((*at, bytes, footer));
            }
        }
        self.apply_chunks(&fresh).await
    }

    /// The chunks that are applied, or are being applied, and would be replayed after a crash.
    fn uncheckpointed(&self) -> Vec<(Epoch, Range<u64>)> {
        let progress = self.progress();
        let mut begun = progress.applied.clone();
        begun.merge(&progress.applying);
        let range = |(incarnation, applied): (Epoch, u64)| {
            let first = progress.first.get(&incarnation).copied().unwrap_or(applied);
            let from = progress.checkpointed.of(incarnation).map_or(first, |position| position + 1);
            (incarnation, from..applied + 1)
        };
        begun.channels().map(range).filter(|(_, positions)| !positions.is_empty()).collect()
    }

    fn chunks(&self, incarnation: Epoch, positions: Range<u64>) -> impl Stream<Item = Result<Read, IndexError>> + Send {
        let store = Arc::clone(&self.store);
        let read = move |position| {
            let store = Arc::clone(&store);
            async move {
                let at = ChunkId { incarnation, position };
                let (bytes, footer) = read_chunk(&*store, at).await?;
                check_extents(&bytes, &footer).map_err(|source| IndexError::Chunk { at, source })?;
                Ok((at, bytes, footer))
            }
        };
        stream::iter(positions).map(read).buffered(AHEAD)
    }

    /// Applies to one slot what every other slot has and a crash of its database took.
    pub(super) async fn catch_up(&self, open: &OpenSlot) -> Result<(), IndexError> {
        let channels = stream::iter(self.uncheckpointed());
        let chunks = channels.map(|(incarnation, positions)| self.chunks(incarnation, positions)).flatten();
        let mut chunks = Box::pin(chunks);
        while let Some((at, bytes, footer)) = chunks.try_next().await? {
            let of_slot = parts(at, &bytes, &footer)?.into_iter().find(|(slot, _)| *slot == open.slot);
            let Some((_, part)) = of_slot else { continue };
            apply::apply(open, &[part], &self.options).await?;
        }
        Ok(())
    }
}
