//! When do chunks go, and whole channels?
//!
//! Chunks of this channel go from its start on, as far as neither a row that is durable nor a replay needs them. What they say of streams
//! is put into [snapshots](crate::index::Index::snapshot) first, then how far they may go is published, and a grace waited for. The
//! last chunk stays: it says how far head logs are settled. The chunks of an earlier channel go once every slot has all of it, the
//! grace is over and the cluster has forgotten it, so that a start in between finds it as it was. Those that nothing points to when
//! a star starts have no reader that could still come and need no grace: they go also where no star lives for as long as that.
//! The fence of a channel stays for ever.

use std::collections::BTreeMap;

use failpoints::{Point, hit};
use futures_util::stream::{self, StreamExt};
use tokio::time::Instant;
use wire::ids::Epoch;

use super::orphans::{chunk_of, prefix};
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
    /// Since when; `None`: for long enough.
    since: Option<Instant>,
}

/// How far chunks are deleted.
#[derive(Debug)]
pub(super) struct Frees {
    own: Epoch,
    /// Before this all of the own channel went.
    own_from: u64,
    prior: Vec<PriorChannel>,
    /// Those of them that nobody needs any more, and since when; `None`: from the start on.
    unneeded: BTreeMap<Epoch, Option<Instant>>,
    /// What nobody needs any more.
    free: Vec<Free>,
}

impl Frees {
    pub(super) fn new(own: Epoch, prior: &[PriorChannel]) -> Self {
        Self { own, own_from: 0, prior: prior.to_vec(), unneeded: BTreeMap::new(), free: Vec::new() }
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
        for free in free.iter_mut().filter(|free| self.is_over(free.since)) {
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
        // What only these chunks say of streams is in the store otherwise before they may go.
        self.index.snapshot(&frees.prior).await?;
        hit(Point::LowPublish);
        self.channel.publish_low(to).await?;
        hit(Point::LowPublished);
        let since = Some(Instant::now());
        frees.free.push(Free { incarnation: own, from: frees.own_from, to, since });
        Ok(())
    }

    /// Whether the grace that began then is over.
    fn is_over(&self, since: Option<Instant>) -> bool {
        since.is_none_or(|since| since.elapsed() >= self.grace())
    }

    /// Notes which earlier channels nothing points to before anything moves in this run: none of its reads can ask for them.
    pub(super) async fn note_unneeded(&self) -> Result<(), SettleError> {
        let mut frees = self.frees.lock().await;
        self.look_at_prior(&mut frees, None).await
    }

    /// Notes the earlier channels of which every slot has everything durably, and to which nothing points, the oldest first.
    async fn look_at_prior(&self, frees: &mut Frees, since: Option<Instant>) -> Result<(), SettleError> {
        let Frees { prior, unneeded, .. } = frees;
        for PriorChannel { incarnation, end, .. } in prior.iter().copied() {
            if unneeded.contains_key(&incarnation) {
                continue;
            }
            let has_all = self.index.checkpointed(incarnation).is_some_and(|last| last.saturating_add(1) >= end);
            if !has_all || self.index.chunk_low(incarnation).await?.is_none_or(|low| low < end) {
                return Ok(());
            }
            unneeded.insert(incarnation, since);
        }
        Ok(())
    }

    /// Channels that nobody has needed for the time of grace are forgotten, the oldest first.
    async fn free_prior(&self, frees: &mut Frees) -> Result<(), SettleError> {
        self.look_at_prior(frees, Some(Instant::now())).await?;
        // What the last chunk of an earlier channel says of head logs, a chunk of this one must say by then.
        if self.index.checkpointed(frees.own).is_none_or(|last| last == 0) {
            return Ok(());
        }
        while let Some(PriorChannel { incarnation, low, end }) = frees.prior.first().copied() {
            let Some(since) = frees.unneeded.get(&incarnation).copied().filter(|since| self.is_over(*since)) else {
                return Ok(());
            };
            let from = self.first_of(incarnation).await?.map_or(low, |first| first.min(low));
            self.index.snapshot(&frees.prior).await?;
            hit(Point::PriorForget);
            self.channel.forget_prior(incarnation).await?;
            hit(Point::PriorForgotten);
            frees.prior.remove(0);
            frees.unneeded.remove(&incarnation);
            frees.free.push(Free { incarnation, from, to: end, since });
        }
        Ok(())
    }

    /// The first object of a channel: its star may have published how far it is needed, and have died before it deleted.
    async fn first_of(&self, incarnation: Epoch) -> Result<Option<u64>, SettleError> {
        let channel = prefix(&format!("c/{:016x}/", incarnation.get()));
        let listed = self.store.list(&channel, None, 1).await?;
        Ok(listed.objects.first().and_then(|listed| chunk_of(&listed.name)).map(|chunk| chunk.position))
    }

    /// Deletes in order, at most so many; answers how many went.
    async fn delete_free(&self, free: &mut Free, room: usize) -> Result<usize, SettleError> {
        let incarnation = free.incarnation;
        let delete = |position| async move {
            hit(Point::ChunkDelete);
            self.store.delete(&chunk_name(ChunkId { incarnation, position })).await
        };
        let deletes = stream::iter(free.from..free.to).take(room).map(delete);
        let mut deletes = Box::pin(deletes.buffered(DELETES_AT_A_TIME));
        let mut count = 0;
        while let Some(deleted) = deletes.next().await {
            deleted?;
            hit(Point::ChunkDeleted);
            free.from += 1;
            count += 1;
            self.counted().chunks_deleted += 1;
        }
        Ok(count)
    }
}
