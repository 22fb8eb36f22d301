//! Following a stream: what a subscriber asks for and what it holds.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::{Notify, mpsc};
use wire::ids::{SeqNum, StreamId};
use wire::message::Start;
use wire::names::Address;
use wire::reason::Reason;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::page::Page;

mod follow;

/// Bytes that a star may send ahead of the subscriber, when nothing else is asked for.
const CREDIT_BYTES_DEFAULT: u32 = 1 << 20;
/// The least that makes sense: a record's worth.
const CREDIT_BYTES_MIN: u32 = 64 << 10;
/// The most that a star lets stand; it bounds what is queued here.
const CREDIT_BYTES_MAX: u32 = 16 << 20;

/// From where to follow a stream, and how much may be under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// From where. A timestamp is resolved once, when the subscription opens.
    pub start: Start,
    /// Pulls a start below the trim point or past the tail into range instead of refusing it.
    pub clamp: bool,
    /// Bytes that the star may send ahead of what is taken from the subscription, 64 KiB to 16 MiB; 1 MiB by default. It
    /// bounds the memory a slow subscriber holds, and the rate over a long round trip.
    pub credit_bytes: u32,
    /// How long it keeps trying to come back after its connection broke; the client's own when `None`.
    pub retry_budget: Option<Duration>,
}

impl SubscribeOptions {
    fn at(start: Start) -> Self {
        Self { start, clamp: false, credit_bytes: CREDIT_BYTES_DEFAULT, retry_budget: None }
    }

    /// From a sequence number.
    #[must_use]
    pub fn from(seq_num: u64) -> Self {
        Self::at(Start::SeqNum(SeqNum::new(seq_num)))
    }

    /// From the first record stamped at or after it.
    #[must_use]
    pub fn from_ms(timestamp_ms: i64) -> Self {
        Self::at(Start::Timestamp(timestamp_ms))
    }

    /// From the last so many records.
    #[must_use]
    pub fn last(records: u64) -> Self {
        Self::at(Start::Last(records))
    }

    /// The same with the start pulled into range.
    #[must_use]
    pub fn clamp(mut self) -> Self {
        self.clamp = true;
        self
    }

    /// The same with another [`credit_bytes`](Self::credit_bytes).
    #[must_use]
    pub fn credit_bytes(mut self, bytes: u32) -> Self {
        self.credit_bytes = bytes;
        self
    }

    /// The same with another [`retry_budget`](Self::retry_budget).
    #[must_use]
    pub fn retry_budget(mut self, retry_budget: Duration) -> Self {
        self.retry_budget = Some(retry_budget);
        self
    }
}

impl Default for SubscribeOptions {
    /// From the first record.
    fn default() -> Self {
        Self::from(0)
    }
}

/// What a subscriber has taken, told to the task that holds the connection.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) bytes: AtomicU64,
    pub(crate) more: Notify,
}

/// A page and the bytes that it took of the credit.
pub(crate) type Delivery = Result<(Page, u64)>;
/// What whoever follows the stream holds: where deliveries go, and what is taken of them.
pub(crate) type Ends = (mpsc::UnboundedSender<Delivery>, Arc<Taken>);

/// The records of a stream from a start on, then as they commit.
///
/// Each item is a [`Page`] with at least one record, the next right after the one before. A broken connection is made
/// again and nothing of it shows. The end is an error (`trimmed`, `not_found`, or `unavailable` once the retry budget is
/// spent), then `None`. Dropping it ends it quietly.
#[derive(Debug)]
pub struct Subscription {
    deliveries: mpsc::UnboundedReceiver<Delivery>,
    taken: Arc<Taken>,
    stream_id: StreamId,
    start: SeqNum,
}

impl Subscription {
    /// The stream it is bound to; a stream made again at the same address is another.
    #[must_use]
    pub fn stream_id(&self) -> StreamId {
        self.stream_id
    }

    /// Where it started.
    #[must_use]
    pub fn start(&self) -> SeqNum {
        self.start
    }

    /// The next page; `None` after the end. May be dropped without losing a page.
    pub async fn next(&mut self) -> Option<Result<Page>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for Subscription {
    type Item = Result<Page>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Page>>> {
        self.deliveries.poll_recv(context).map(|delivery| {
            Some(delivery?.map(|(page, bytes)| {
                self.taken.bytes.fetch_add(bytes, Ordering::Relaxed);
                self.taken.more.notify_one();
                page
            }))
        })
    }
}

/// Subscriptions.
impl Client {
    /// Follows a stream on a connection of its own: all records from the start, then live as they commit.
    ///
    /// ```no_run
    /// # async fn f(client: client::Client) -> client::Result<()> {
    /// use client::SubscribeOptions;
    ///
    /// let address = "nova://demo/events".parse()?;
    /// let mut subscription = client.subscribe(&address, SubscribeOptions::from(0)).await?;
    /// while let Some(page) = subscription.next().await {
    ///     for record in page?.records {
    ///         println!("{} {:?}", record.seq_num, record.body);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `not_found`; without `clamp` also `trimmed` and `out_of_range`; `invalid` for a credit out of its range;
    /// `unavailable` when no star takes it within the connect budget.
    pub async fn subscribe(&self, address: &Address, options: SubscribeOptions) -> Result<Subscription> {
        let bytes = options.credit_bytes;
        if !(CREDIT_BYTES_MIN..=CREDIT_BYTES_MAX).contains(&bytes) {
            let message = format!("a credit of {bytes} bytes: it must be {CREDIT_BYTES_MIN} to {CREDIT_BYTES_MAX}");
            return Err(Error::harmless(Reason::Invalid, message));
        }
        let (sender, deliveries) = mpsc::unbounded_channel();
        let taken = Arc::new(Taken::default());
        if let Some(plane) = &self.inner.plane {
            let ends = (sender, Arc::clone(&taken));
            let (stream_id, start) = crate::http::follow(self, plane, address, options, ends).await?;
            return Ok(Subscription { deliveries, taken, stream_id, start });
        }
        let (stream_id, start) = follow::start(&self.inner, address, options, (sender, Arc::clone(&taken))).await?;
        Ok(Subscription { deliveries, taken, stream_id, start })
    }
}

#[cfg(test)]
mod tests;
