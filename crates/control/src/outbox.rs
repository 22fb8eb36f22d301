//! What has a shard not been told yet, because its queue was full?

use std::collections::VecDeque;
use std::fmt;

use wire::handoff::{Full, ToShard};

/// Messages kept for one shard; past it control takes no more requests until the shard has caught up. A few more may gather
/// from requests that were taken before.
const KEPT_MAX: usize = 1_024;

/// Puts a message into a shard's queue, if it has room.
pub type ShardSink = Box<dyn Fn(ToShard) -> Result<(), Full> + Send>;

/// The way to one shard: in order, each message once, except that a table replaces an older one that was not taken yet.
pub(crate) struct Outbox {
    sink: ShardSink,
    kept: VecDeque<ToShard>,
}

impl Outbox {
    pub(crate) fn new(sink: ShardSink) -> Self {
        Self { sink, kept: VecDeque::new() }
    }

    pub(crate) fn send(&mut self, message: ToShard) {
        let is_table = |kept: &ToShard| matches!(kept, ToShard::Buckets(_));
        // In the older one's place it comes before the freezes behind that, as they need: a freeze waits for no later table
        // than the one that was newest when it was sent, and is answered before its bucket is thawed.
        match self.kept.iter_mut().find(|kept| is_table(kept)) {
            Some(older) if is_table(&message) => *older = message,
            _ => self.kept.push_back(message),
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

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
