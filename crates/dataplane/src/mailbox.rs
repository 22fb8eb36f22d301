//! How do values get from any thread to the one task that takes them?

use std::fmt;
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use crossbeam_queue::ArrayQueue;

/// A bounded queue into one task of a shard.
pub(crate) struct Lane<T> {
    queue: ArrayQueue<T>,
    taker: AtomicWaker,
}

impl<T> fmt::Debug for Lane<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waiting, most) = (self.queue.len(), self.queue.capacity());
        f.debug_struct("Lane").field("waiting", &waiting).field("most", &most).finish_non_exhaustive()
    }
}

impl<T> Lane<T> {
    /// A lane in which at most `most` values wait.
    pub(crate) fn new(most: usize) -> Self {
        Self { queue: ArrayQueue::new(most.max(1)), taker: AtomicWaker::new() }
    }

    /// Puts a value at the end and wakes the taker.
    ///
    /// # Errors
    /// The value, when as many as may wait already.
    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        self.queue.push(value)?;
        self.taker.wake();
        Ok(())
    }

    /// Wakes the taker without a value.
    pub(crate) fn wake(&self) {
        self.taker.wake();
    }

    /// The value that waited longest.
    pub(crate) fn pop(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Ready as soon as something waits. Of one task only.
    pub(crate) fn poll_waiting(&self, context: &Context<'_>) -> Poll<()> {
        if !self.is_empty() {
            return Poll::Ready(());
        }
        self.taker.register(context.waker());
        // A value that came before the waker was there has woken nobody.
        if self.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }
}

#[cfg(test)]
mod tests;
