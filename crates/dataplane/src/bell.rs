//! How does one task of a shard tell another that there is something to do?

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// What one task waits for and any other of the same shard rings; rings before the wait are kept, as one.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Bell {
    /// Wakes the waiting task, now or when it comes to wait.
    pub(crate) fn ring(&self) {
        if self.rung.replace(true) {
            return;
        }
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// Waits until it is rung. Of one task only.
    pub(crate) async fn wait(&self) {
        poll_fn(|context| {
            if self.rung.replace(false) {
                return Poll::Ready(());
            }
            self.waiting.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}
