//! The producer: how a writer opens, appends and closes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use wire::ids::{Position, SeqNum, StreamId};
use wire::limits::{BATCH_CONTENT_BYTES_MAX, LINGER_MS_MAX};
use wire::message::Appended;
use wire::names::{Address, FencingToken};
use wire::reason::Reason;
use wire::terms::Terms;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::http::wire_only;
use crate::record::AppendRecord;

mod session;
mod stage;
mod window;

use stage::{Call, Shared};

/// How a producer writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerOptions {
    /// The token presented at open; empty is not presenting.
    pub fencing_token: FencingToken,
    /// How long a batch may wait for more to ride with it, at most 1 s; zero by default. It trades latency for fuller
    /// batches; without it a batch fills only while the window is full.
    pub linger: Duration,
    /// Most content of a merged batch, in bytes, 1 to 1 MiB; the latter by default. One call's records always ride
    /// together, whatever this says.
    pub batch_bytes_max: usize,
    /// How long the producer keeps trying to come back after its connection broke; the client's own when `None`.
    pub retry_budget: Option<Duration>,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            fencing_token: FencingToken::default(),
            linger: Duration::ZERO,
            batch_bytes_max: BATCH_CONTENT_BYTES_MAX,
            retry_budget: None,
        }
    }
}

impl ProducerOptions {
    /// The same presenting a token.
    #[must_use]
    pub fn fencing_token(mut self, fencing_token: FencingToken) -> Self {
        self.fencing_token = fencing_token;
        self
    }

    /// The same with another [`linger`](Self::linger).
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// The same with another [`batch_bytes_max`](Self::batch_bytes_max).
    #[must_use]
    pub fn batch_bytes_max(mut self, bytes: usize) -> Self {
        self.batch_bytes_max = bytes;
        self
    }

    /// The same with another [`retry_budget`](Self::retry_budget).
    #[must_use]
    pub fn retry_budget(mut self, retry_budget: Duration) -> Self {
        self.retry_budget = Some(retry_budget);
        self
    }

    fn check(&self) -> Result<()> {
        let linger_ms = self.linger.as_millis();
        if linger_ms > u128::from(LINGER_MS_MAX) {
            let message = format!("a linger of {linger_ms} ms: at most {LINGER_MS_MAX} ms are allowed");
            return Err(Error::harmless(Reason::Invalid, message));
        }
        let bytes = self.batch_bytes_max;
        if bytes == 0 || bytes > BATCH_CONTENT_BYTES_MAX {
            let message = format!("a batch size of {bytes} bytes: it must be 1 to {BATCH_CONTENT_BYTES_MAX}");
            return Err(Error::harmless(Reason::Invalid, message));
        }
        Ok(())
    }
}

/// A writer session of one stream, on a connection of its own.
///
/// Cheap to clone; all clones feed the same session, in the order in which their records are staged. Once the last clone is
/// dropped the session ends as by [`close`](Producer::close), unobserved.
///
/// # Batches
/// An append that finds a free place in the window leaves at once. While the window is full, what arrives is staged, and each
/// place that frees takes one batch of it, up to 1 MiB or 1 000 records; every caller gets the range of its own records. Up to
/// 1 MiB is staged, then callers wait. A conditional append never shares a batch; nor does one in which some records have
/// stamps and others none, and calls with stamps don't mix with calls without. That is what makes the stamps in each
/// caller's [`Appended`] exact: a star acks a batch with its first and last stamp, and those in between follow from these two
/// and from the stamps that were sent.
///
/// # Broken connections
/// The session reconnects, resumes and sends again what is not acked, in order, within its retry budget. The leader
/// remembers the numbers of recent batches, so that a batch that landed before is not stored twice but gets its first answer;
/// beyond what it remembers a plain append is stored at least once. A conditional append is judged again, so it is stored at
/// most once; see [`Error::resent`].
///
/// ```no_run
/// # async fn f(client: client::Client) -> client::Result<()> {
/// use client::{AppendRecord, ProducerOptions};
///
/// let producer = client.open(&"nova://demo/orders".parse()?, ProducerOptions::default()).await?;
/// // One at a time: durable when it answers.
/// let appended = producer.append(["first"]).await?;
/// // Many in flight: the tickets answer in order.
/// let mut tickets = Vec::new();
/// for id in 0..1000 {
///     tickets.push(producer.submit([AppendRecord::from(format!("{{\"id\":{id}}}"))]).await?);
/// }
/// for ticket in tickets {
///     println!("{}", ticket.await?.start.seq_num);
/// }
/// producer.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Producer {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    address: Address,
    stream_id: StreamId,
    opened_at: Position,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("address", &self.handle.address)
            .field("stream_id", &self.handle.stream_id)
            .finish_non_exhaustive()
    }
}

/// The answer of an append that is on its way; dropping it takes nothing back.
#[derive(Debug)]
#[must_use = "whether the records are durable is known when the ticket answers"]
pub struct Ticket {
    answer: oneshot::Receiver<Result<Appended>>,
}

impl Future for Ticket {
    type Output = Result<Appended>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Appended>> {
        Pin::new(&mut self.answer).poll(context).map(|answer| {
            answer.unwrap_or_else(|_| {
                let message = "the runtime that the producer ran on is gone";
                Err(Error::ambiguous(Reason::Unavailable, message))
            })
        })
    }
}

impl Producer {
    /// Appends records as one batch or as part of one, and waits until they are durable.
    ///
    /// # Errors
    /// `invalid` and `too_large` for records that break a bound (a call over the bounds of a batch is refused, not split);
    /// `fenced_out`, `superseded` and `not_found`, which end the producer; `unavailable` once the retry budget is spent;
    /// `failed_precondition` after a close.
    pub async fn append<R: Into<AppendRecord>>(&self, records: impl IntoIterator<Item = R>) -> Result<Appended> {
        self.submit(records).await?.await
    }

    /// Appends records as one batch of their own if the first of them gets this sequence number.
    ///
    /// A miss leaves the producer as it is, and what was submitted after it too.
    ///
    /// # Errors
    /// As [`Producer::append`], and `sequence_mismatch` with the tail. Without [`Error::resent`] nothing was appended; with
    /// it an earlier attempt may have landed: read back to decide.
    pub async fn append_match<R: Into<AppendRecord>>(
        &self,
        match_seq_num: SeqNum,
        records: impl IntoIterator<Item = R>,
    ) -> Result<Appended> {
        self.submit_match(match_seq_num, records).await?.await
    }

    /// Stages records and answers at once with a ticket; waits only while 1 MiB is staged already.
    ///
    /// Nothing is staged when it is dropped before it answers.
    ///
    /// # Errors
    /// As [`Producer::append`], as far as it is known by then.
    pub async fn submit<R: Into<AppendRecord>>(&self, records: impl IntoIterator<Item = R>) -> Result<Ticket> {
        let call = Call::new(None, records.into_iter().map(Into::into).collect())?;
        self.stage(call).await
    }

    /// As [`Producer::submit`], for a conditional append; a chain of them may be in flight, each after the one before.
    ///
    /// # Errors
    /// As [`Producer::append`], as far as it is known by then.
    pub async fn submit_match<R: Into<AppendRecord>>(
        &self,
        match_seq_num: SeqNum,
        records: impl IntoIterator<Item = R>,
    ) -> Result<Ticket> {
        let call = Call::new(Some(match_seq_num), records.into_iter().map(Into::into).collect())?;
        self.stage(call).await
    }

    /// As [`Producer::submit`] and [`Producer::submit_match`], on terms. Batches that ask for a token or have an effect share
    /// with no other. The first refusal of a chained one ends the producer: what was submitted after it was not
    /// appended, unless its error says that it may have been.
    ///
    /// # Errors
    /// As [`Producer::append`], as far as it is known by then.
    pub async fn submit_on<R: Into<AppendRecord>>(
        &self,
        terms: Terms,
        match_seq_num: Option<SeqNum>,
        records: impl IntoIterator<Item = R>,
    ) -> Result<Ticket> {
        let call = Call::new(match_seq_num, records.into_iter().map(Into::into).collect())?.on(terms);
        self.stage(call).await
    }

    async fn stage(&self, call: Call) -> Result<Ticket> {
        let answer = self.handle.shared.put(call).await?;
        Ok(Ticket { answer })
    }

    /// Sends what is staged without waiting on a linger, waits for all that is in flight, and gives the writer role up.
    ///
    /// No further append is taken, and callers that wait for room are refused. Bound it with a timeout where a star that is
    /// away must not hold the program up; the drain goes on in the background.
    ///
    /// # Errors
    /// What ended the producer before, when something did; each append's own outcome is its ticket's.
    pub async fn close(&self) -> Result<()> {
        self.handle.shared.close();
        self.handle.shared.closed().await
    }

    /// The stream it writes to.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.handle.address
    }

    /// The stream it is bound to; a stream made again at the same address is another.
    #[must_use]
    pub fn stream_id(&self) -> StreamId {
        self.handle.stream_id
    }

    /// The committed tail when it was opened.
    #[must_use]
    pub fn opened_at(&self) -> Position {
        self.handle.opened_at
    }
}

/// Producers.
impl Client {
    /// Takes a stream's writer role, and creates the stream first if its bucket says so.
    ///
    /// # Errors
    /// `not_found`; `writer_held` while another session holds a fenced stream; `fenced_out` when another token is installed;
    /// `invalid` for options out of their bounds; `unavailable` when no star takes it within the connect budget;
    /// `wire_only` over HTTP.
    pub async fn open(&self, address: &Address, options: ProducerOptions) -> Result<Producer> {
        options.check()?;
        if self.inner.plane.is_some() {
            return Err(wire_only("a writer session"));
        }
        let (shared, opened) = session::start(&self.inner, address, options).await?;
        let handle = Handle { shared, address: address.clone(), stream_id: opened.stream_id, opened_at: opened.tail };
        Ok(Producer { handle: Arc::new(handle) })
    }
}

#[cfg(test)]
mod tests;
