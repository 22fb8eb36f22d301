//! When do chunks go, and whole channels?
//!
//! Chunks of this channel go from its start on, as far as neither a row that is durable nor a replay needs them; how far that is, is
//! published first, and a grace waited for. The last chunk stays: it says how far head logs are settled. The chunks of an earlier channel
//! go once every slot has all of it and the cluster has forgotten it. Its fence stays for ever.

use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;
use wire::ids::Epoch;

use super::{SettleError, Settler};
use crate::channel::{ChunkId, PriorChannel, chunk_name};

/// Objects that are deleted at a time.
pub(super) const DELETES_AT_A_TIME: usize = 16;

/// What a step has deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deleted {
    /// Chunks that went.
    pub chunks: usize,
    /// Whether more could go at once.
    pub has_more: bool,
}

/// The chunks of a channel that may go after the grace.
#[derive(Debug)]
struct Free {
    incarnation: Epoch,
    /// The first that is still there.
    from: u64,
    to: u64,
    since: Instant,
}

/// How far chunks are deleted.
#[derive(Debug)]
pub(super) struct Frees {
    own: Epoch,
    /// Before this all of the own channel went.
    own_from: u64,
    prior: Vec<PriorChannel>,
    /// What nobody needs any more.
    free: Vec<Free>,
}

impl Frees {
    pub(super) fn new(own: Epoch, prior: &[PriorChannel]) -> Self {
        Self { own, own_from: 0, prior: prior.to_vec(), free: Vec::new() }
    }

    /// Whether a channel is one of those that this says what becomes of.
    pub(super) fn covers(&self, incarnation: Epoch) -> bool {
        incarnation == self.own
            || self.prior.iter().any(|prior| prior.incarnation == incarnation)
            || self.free.iter().any(|free| free.incarnation == incarnation)
    }
}

impl Settler {
    /// Publishes how far chunks are needed by no one, and deletes those of which that was said long enough ago.
    ///
    /// # Errors
    /// [`SettleError`]; what was not deleted stays.
    pub async fn delete_step(&self) -> Result<Deleted, SettleError> {
        let mut frees = self.frees.lock().await;
        self.free_own(&mut frees).await?;
        self.free_prior(&mut frees).await?;
        let mut room = self.options.deletes_max;
        let mut deleted = Deleted::default();
        let Frees { own, own_from, free, .. } = &mut *frees;
        for free in free.iter_mut().filter(|free| free.since.elapsed() >= self.options.grace) {
            let chunks = self.delete_free(free, room).await?;
            room -= chunks;
            deleted.chunks += chunks;
            if free.incarnation == *own {
                *own_from = free.from;
            }
            deleted.has_more |= free.from < free.to;
        }
        free.retain(|free| free.from < free.to);
        Ok(deleted)
    }

    /// One stretch of the own channel after the other: what is found free meanwhile is part of the next.
    async fn free_own(&self, frees: &mut Frees) -> Result<(), SettleError> {
        let own = frees.own;
        if frees.free.iter().any(|free| free.incarnation == own) {
            return Ok(());
        }
        let (low, last) = (self.index.chunk_low(own).await?, self.index.checkpointed(own));
        let Some(to) = low.zip(last).map(|(low, last)| low.min(last)).filter(|to| *to > frees.own_from) else {
            return Ok(());
        };
        self.channel.publish_low(to).await?;
        frees.free.push(Free { incarnation: own, from: frees.own_from, to, since: Instant::now() });
        Ok(())
    }

    /// Channels of which every slot has everything durably are forgotten, the oldest first.
    async fn free_prior(&self, frees: &mut Frees) -> Result<(), SettleError> {
        // What the last chunk of an earlier channel says of head logs, a chunk of this one must say by then.
        if self.index.checkpointed(frees.own).is_none_or(|last| last == 0) {
            return Ok(());
        }
        while let Some(PriorChannel { incarnation, low, end }) = frees.prior.first().copied() {
            let has_all = self.index.checkpointed(incarnation).is_some_and(|last| last.saturating_add(1) >= end);
            if !has_all || self.index.chunk_low(incarnation).await?.is_none_or(|low| low < end) {
                return Ok(());
            }
            self.channel.forget_prior(incarnation).await?;
            frees.prior.remove(0);
            frees.free.push(Free { incarnation, from: low, to: end, since: Instant::now() });
        }
        Ok(())
    }

    /// Deletes in order, at most so many; answers how many went.
    async fn delete_free(&self, free: &mut Free, room: usize) -> Result<usize, SettleError> {
        let incarnation = free.incarnation;
        let delete = |position| async move { self.store.delete(&chunk_name(ChunkId { incarnation, position })).await };
        let deletes = stream::iter(free.from..free.to).take(room).map(delete);
        let mut deletes = Box::pin(deletes.buffered(DELETES_AT_A_TIME));
        let mut count = 0;
        while let Some(deleted) = deletes.next().await {
            deleted?;
            free.from += 1;
            count += 1;
            self.counted().chunks_deleted += 1;
        }
        Ok(count)
    }
}
