//! The task that holds a subscription's connection: it asks, decodes, gives credit and comes back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use wire::frame::Kind;
use wire::hot::RecordsHead;
use wire::ids::{SeqNum, StreamId};
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{Credit, Refused, Start, Subscribe, Subscribed, SubscriptionEnded, Unsubscribe};
use wire::names::Address;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::{Delivery, Ends, SubscribeOptions, Taken};
use crate::client::Inner;
use crate::error::{Error, Result};
use crate::link::{Broken, Inbound, Link, framed};
use crate::page;
use crate::search::{Search, may_pass, open, open_anywhere, spent};

/// The handle of the one subscription of a connection.
const HANDLE: u32 = 1;
/// A connection that held for so long is taken for a good one, though nothing came over it.
const GOOD_AFTER: Duration = Duration::from_secs(1);

struct Follow {
    inner: Arc<Inner>,
    address: Address,
    link: Link,
    linked_at: Instant,
    stream_id: StreamId,
    /// The next record to deliver.
    next: SeqNum,
    credit_bytes: u64,
    /// Bytes delivered in all.
    delivered: u64,
    /// Bytes allowed in all, counted as `delivered` is.
    allowed: u64,
    retry_budget: Duration,
    deliveries: mpsc::UnboundedSender<Delivery>,
    taken: Arc<Taken>,
}

/// Why a connection's part of a subscription is over.
enum Halt {
    /// Nobody listens.
    Dropped,
    /// For good.
    Ended(Error),
    /// It may be taken up again.
    Again(Error),
}

/// Opens a subscription and leaves it to a task of its own.
pub(super) async fn start(
    inner: &Arc<Inner>,
    address: &Address,
    options: SubscribeOptions,
    (deliveries, taken): Ends,
) -> Result<(StreamId, SeqNum)> {
    let request = Subscribe {
        address: address.clone(),
        start: options.start,
        clamp: options.clamp,
        subscription: HANDLE,
        credit_bytes: options.credit_bytes,
        resume: None,
    };
    let (link, subscribed): (_, Subscribed) = open_anywhere(inner, &request).await?;
    let credit_bytes = u64::from(options.credit_bytes);
    let follow = Follow {
        inner: Arc::clone(inner),
        address: address.clone(),
        link,
        linked_at: Instant::now(),
        stream_id: subscribed.stream_id,
        next: subscribed.start,
        credit_bytes,
        delivered: 0,
        allowed: credit_bytes,
        retry_budget: options.retry_budget.unwrap_or(inner.options.retry_budget),
        deliveries,
        taken,
    };
    tokio::spawn(follow.run());
    Ok((subscribed.stream_id, subscribed.start))
}

impl Follow {
    async fn run(mut self) {
        let mut search = None;
        loop {
            let before = self.next;
            let error = match self.serve().await {
                Halt::Dropped => return,
                Halt::Ended(error) => return self.end(error),
                Halt::Again(error) => error,
            };
            if self.next > before || self.linked_at.elapsed() >= GOOD_AFTER {
                search = None;
            }
            tracing::debug!(address = %self.address, next = %self.next, %error, "a subscription reconnects");
            let fresh = search.is_none();
            let search = search.get_or_insert_with(|| Search::new(&self.inner, self.retry_budget));
            match self.resume(search, error, fresh).await {
                Ok(()) => {}
                Err(Halt::Dropped) => return,
                Err(Halt::Ended(error) | Halt::Again(error)) => return self.end(error),
            }
        }
    }

    fn end(&self, error: Error) {
        let _ = self.deliveries.send(Err(error));
    }

    /// Delivers until the connection is of no more use.
    async fn serve(&mut self) -> Halt {
        let halt = loop {
            self.give_credit();
            let heard = tokio::select! {
                biased;
                frame = self.link.next() => frame.map_err(|broken| self.broken(&broken)).and_then(|frame| self.on_frame(&frame)),
                () = self.taken.more.notified() => Ok(()),
                () = self.deliveries.closed() => Err(Halt::Dropped),
            };
            if let Err(halt) = heard {
                break halt;
            }
        };
        if matches!(halt, Halt::Dropped) {
            self.link.send(framed(self.inner.next_correlation(), &Unsubscribe { subscription: HANDLE }));
            let by = Instant::now() + Duration::from_millis(100);
            // Saying goodbye is a courtesy: closing the connection ends the subscription as well.
            let _ = timeout_at(by, self.until_done()).await;
        }
        halt
    }

    async fn until_done(&mut self) {
        while self.link.next().await.is_ok_and(|frame| frame.kind != Kind::Done) {}
    }

    fn broken(&self, broken: &Broken) -> Halt {
        let message = format!("the connection to {} broke: {broken}", self.link.addr());
        Halt::Again(Error::harmless(Reason::Unavailable, message))
    }

    /// What is delivered and not yet taken.
    fn queued(&self) -> u64 {
        self.delivered - self.taken.bytes.load(Ordering::Relaxed)
    }

    /// Lets the star send as much more as was taken, once that is worth a frame.
    fn give_credit(&mut self) {
        let due = (self.delivered + self.credit_bytes - self.queued()).saturating_sub(self.allowed);
        if due >= self.credit_bytes / 4 {
            let bytes = u32::try_from(due).unwrap_or(u32::MAX);
            self.allowed += u64::from(bytes);
            self.link.send(framed(0, &Credit { subscription: HANDLE, bytes }));
        }
    }

    fn on_frame(&mut self, frame: &Inbound) -> Result<(), Halt> {
        match frame.kind {
            Kind::Records => self.on_records(frame).map_err(|broken| self.broken(&broken)),
            Kind::SubscriptionEnded => {
                let ended: SubscriptionEnded = frame.message().map_err(|broken| self.broken(&broken))?;
                Err(halted(ended.refusal))
            }
            Kind::GoAway => Err(Halt::Again(Error::harmless(Reason::Unavailable, "the star asked to reconnect"))),
            Kind::Refused => {
                let Refused { refusal } = frame.message().map_err(|broken| self.broken(&broken))?;
                Err(self.broken(&Broken::Refused(refusal)))
            }
            _ => Ok(()),
        }
    }

    fn on_records(&mut self, frame: &Inbound) -> Result<(), Broken> {
        let head = RecordsHead::decode(&frame.head).map_err(Broken::protocol)?;
        if head.subscription != HANDLE {
            return Err(Broken::protocol(format!("records of subscription {}", head.subscription)));
        }
        let bytes = frame.payload.len() as u64;
        if self.delivered + bytes > self.allowed + FRAME_BODY_BYTES_MAX as u64 {
            return Err(Broken::protocol(format!("it sent {bytes} bytes past the credit")));
        }
        let page = page::decode(&head, self.next, &frame.payload, Some(self.stream_id)).map_err(Broken::protocol)?;
        self.next = page.end;
        self.delivered += bytes;
        if page.records.is_empty() {
            self.taken.bytes.fetch_add(bytes, Ordering::Relaxed);
        } else {
            let _ = self.deliveries.send(Ok((page, bytes)));
        }
        Ok(())
    }

    /// Takes the subscription up again where it stands, as long as the search goes on.
    async fn resume(&mut self, search: &mut Search, error: Error, fresh: bool) -> Result<(), Halt> {
        let mut error = Some(error).filter(|error| !fresh || error.leader().is_some());
        loop {
            if let Some(error) = error.take() {
                tokio::select! {
                    missed = search.missed(error) => missed.map_err(|last| Halt::Ended(spent(last)))?,
                    () = self.deliveries.closed() => return Err(Halt::Dropped),
                }
            }
            let credit = self.credit_bytes.saturating_sub(self.queued());
            let request = Subscribe {
                address: self.address.clone(),
                start: Start::SeqNum(self.next),
                clamp: false,
                subscription: HANDLE,
                credit_bytes: u32::try_from(credit).unwrap_or(u32::MAX),
                resume: Some(self.stream_id),
            };
            match open(&self.inner, &search.target(), &request, search.attempt_by()).await {
                Ok((_, Subscribed { stream_id, .. })) if stream_id != self.stream_id => {
                    let message = format!("stream {} of {} was deleted", self.stream_id, self.address);
                    return Err(Halt::Ended(Error::harmless(Reason::NotFound, message)));
                }
                Ok((link, _)) => {
                    self.link = link;
                    self.linked_at = Instant::now();
                    self.allowed = self.delivered + credit;
                    return Ok(());
                }
                Err(failed) if may_pass(&failed) => error = Some(failed),
                Err(failed) => return Err(Halt::Ended(failed)),
            }
        }
    }
}

fn halted(refusal: Refusal) -> Halt {
    let again = refusal.reason.retryable();
    let error = Error::refused(refusal, false);
    if again { Halt::Again(error) } else { Halt::Ended(error) }
}
