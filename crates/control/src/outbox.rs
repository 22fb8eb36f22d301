//! What has a shard not been told yet, because its queue was full?

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::handoff::{Full, ToShard};
use wire::ids::ShardId;

/// Messages kept for one shard; past it control takes no more requests until the shard has caught up. A few more may gather
/// from requests that were taken before.
const KEPT_MAX: usize = 1_024;

/// Puts a message into a shard's queue, if it has room.
pub type ShardSink = Box<dyn Fn(ToShard) -> Result<(), Full> + Send>;

/// The way to one shard: in order, each message once, except that what only tells how far something has come replaces an
/// older message of its kind that was not taken yet.
pub(crate) struct Outbox {
    sink: ShardSink,
    kept: VecDeque<ToShard>,
}

impl Outbox {
    pub(crate) fn new(sink: ShardSink) -> Self {
        Self { sink, kept: VecDeque::new() }
    }

    pub(crate) fn send(&mut self, message: ToShard) {
        // In the older one's place a table comes before the freezes behind that, as they need: a freeze waits for no later table
        // than the one that was newest when it was sent, and is answered before its bucket is thawed.
        let is_commit = |kept: &ToShard| matches!(kept, ToShard::Committed { .. });
        let from = match message {
            // What is applied is told after it is committed.
            ToShard::Applied { .. } => self.kept.iter().rposition(is_commit).unwrap_or(0),
            _ => 0,
        };
        match self.kept.iter_mut().skip(from).find(|kept| replaces(&message, kept)) {
            Some(older) => *older = message,
            None => self.kept.push_back(message),
        }
        self.flush();
    }

    /// Hands over what the queue takes.
    pub(crate) fn flush(&mut self) {
        while self.kept.front().is_some_and(|message| (self.sink)(message.clone()).is_ok()) {
            self.kept.pop_front();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.kept.len() >= KEPT_MAX
    }
}

/// Whether a message makes an older one needless.
fn replaces(message: &ToShard, older: &ToShard) -> bool {
    match (message, older) {
        (ToShard::Buckets(_), ToShard::Buckets(_))
        | (ToShard::Committed { .. }, ToShard::Committed { .. })
        | (ToShard::Applied { .. }, ToShard::Applied { .. })
        | (ToShard::Stall { .. }, ToShard::Stall { .. })
        | (ToShard::Counters(_), ToShard::Counters(_)) => true,
        (ToShard::Settled { log, .. }, ToShard::Settled { log: older, .. }) => log == older,
        _ => false,
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

/// The ways to all shards, for every task of control.
#[derive(Debug)]
pub(crate) struct Outboxes(Vec<Mutex<Outbox>>);

impl Outboxes {
    pub(crate) fn new(sinks: Vec<ShardSink>) -> Self {
        Self(sinks.into_iter().map(|sink| Mutex::new(Outbox::new(sink))).collect())
    }

    fn boxes(&self) -> impl Iterator<Item = MutexGuard<'_, Outbox>> {
        self.0.iter().map(|outbox| outbox.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn send(&self, shard: ShardId, message: ToShard) {
        match self.0.get(usize::from(shard.get())) {
            Some(outbox) => outbox.lock().unwrap_or_else(PoisonError::into_inner).send(message),
            None => tracing::error!(%shard, ?message, "a message for a shard that there is not"),
        }
    }

    pub(crate) fn send_all(&self, message: &ToShard) {
        self.boxes().for_each(|mut outbox| outbox.send(message.clone()));
    }

    pub(crate) fn flush(&self) {
        self.boxes().for_each(|mut outbox| outbox.flush());
    }

    /// Whether there is nothing that a shard was not told.
    pub(crate) fn are_empty(&self) -> bool {
        self.boxes().all(|outbox| outbox.is_empty())
    }

    /// Whether a shard was not told so much that no more requests are taken.
    pub(crate) fn is_any_full(&self) -> bool {
        self.boxes().any(|outbox| outbox.is_full())
    }
}

#[cfg(test)]
mod tests;
