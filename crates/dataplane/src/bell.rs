//! How does one task of a shard tell others that there is something to do?

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use slab::Slab;

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

/// Tasks that all go on at the same event; one that comes after it waits for the next.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    events: Cell<u64>,
    waiting: RefCell<Slab<Waker>>,
}

/// One wait; dropped, it leaves nothing behind.
#[derive(Debug)]
struct Waiting<'a> {
    waiters: &'a Waiters,
    /// How many events there were before.
    events: u64,
    place: Option<usize>,
}

impl Waiters {
    /// Waits for the next event.
    pub(crate) fn wait(&self) -> impl Future<Output = ()> {
        Waiting { waiters: self, events: self.events.get(), place: None }
    }

    /// Lets everyone go on who waits.
    pub(crate) fn wake_all(&self) {
        self.events.set(self.events.get() + 1);
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Future for Waiting<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.waiters.events.get() != self.events {
            return Poll::Ready(());
        }
        let mut waiting = self.waiters.waiting.borrow_mut();
        match self.place.and_then(|place| waiting.get_mut(place)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => {
                let place = waiting.insert(context.waker().clone());
                drop(waiting);
                self.place = Some(place);
            }
        }
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // After an event the place is another's.
        if let Some(place) = self.place
            && self.waiters.events.get() == self.events
        {
            self.waiters.waiting.borrow_mut().try_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_lite::future::{block_on, poll_once};

    use super::*;

    #[test]
    fn everyone_who_waits_goes_on_and_who_comes_later_waits_for_the_next_event() {
        let waiters = Waiters::default();
        let (mut first, mut second) = (Box::pin(waiters.wait()), Box::pin(waiters.wait()));
        assert_eq!(block_on(poll_once(&mut first)), None);
        waiters.wake_all();
        let mut later = Box::pin(waiters.wait());
        assert_eq!(block_on(poll_once(&mut first)), Some(()));
        assert_eq!(block_on(poll_once(&mut second)), Some(()), "it came before the event");
        assert_eq!(block_on(poll_once(&mut later)), None);
    }

    #[test]
    fn a_wait_that_is_given_up_takes_no_place_of_another() {
        let waiters = Waiters::default();
        let mut given_up = Box::pin(waiters.wait());
        assert_eq!(block_on(poll_once(&mut given_up)), None);
        waiters.wake_all();
        let mut next = Box::pin(waiters.wait());
        assert_eq!(block_on(poll_once(&mut next)), None);
        drop(given_up);
        assert_eq!(waiters.waiting.borrow().len(), 1);
        drop(next);
        assert!(waiters.waiting.borrow().is_empty());
    }
}
