//! How is a stream followed over HTTP? By reads that wait at the tail, each where the one before ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use wire::ids::{SeqNum, StreamId};
use wire::message::Start;
use wire::names::Address;
use wire::reason::Reason;

use super::Plane;
use super::verbs::Http;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::page::Page;
use crate::read::ReadOptions;
use crate::search::{Search, spent};
use crate::subscribe::{Ends, SubscribeOptions};

/// How long one read waits for what comes; less than what proxies cut off.
const WAIT: Duration = Duration::from_secs(20);

struct Follow {
    client: Client,
    plane: Arc<Plane>,
    address: Address,
    stream_id: StreamId,
    next: SeqNum,
    delivered: u64,
    credit_bytes: u64,
    retry_budget: Duration,
    ends: Ends,
}

/// Finds the start, and leaves the rest to a task.
pub(crate) async fn start(
    client: &Client,
    plane: &Arc<Plane>,
    address: &Address,
    options: SubscribeOptions,
    ends: Ends,
) -> Result<(StreamId, SeqNum)> {
    let http = Http { client, plane };
    let first = ReadOptions { start: options.start, clamp: options.clamp, ..ReadOptions::default() };
    let page = http.read(address, first, Duration::ZERO).await?;
    let stream_id = match page.stream_id {
        Some(stream_id) => stream_id,
        None => http.get_stream(address).await?.stream_id,
    };
    let start = page.start;
    let mut follow = Follow {
        client: client.clone(),
        plane: Arc::clone(plane),
        address: address.clone(),
        stream_id,
        next: page.start,
        delivered: 0,
        credit_bytes: u64::from(options.credit_bytes),
        retry_budget: options.retry_budget.unwrap_or(client.inner.options.retry_budget),
        ends,
    };
    follow.deliver(page);
    tokio::spawn(follow.run());
    Ok((stream_id, start))
}

impl Follow {
    async fn run(mut self) {
        let deliveries: mpsc::UnboundedSender<_> = self.ends.0.clone();
        let error = tokio::select! {
            error = self.follow() => error,
            () = deliveries.closed() => return,
        };
        let _dropped = deliveries.send(Err(error));
    }

    /// Delivers until it can't go on, and answers why.
    async fn follow(&mut self) -> Error {
        let mut search: Option<Search> = None;
        loop {
            self.room().await;
            let error = match self.read().await {
                Ok(page) => {
                    search = None;
                    self.deliver(page);
                    continue;
                }
                Err(error) if error.retryable() => error,
                Err(error) => return error,
            };
            tracing::debug!(address = %self.address, next = %self.next, %error, "a subscription asks again");
            let search = search.get_or_insert_with(|| Search::new(&self.client.inner, self.retry_budget));
            if let Err(last) = search.missed(error).await {
                return spent(last);
            }
        }
    }

    async fn read(&self) -> Result<Page> {
        let http = Http { client: &self.client, plane: &self.plane };
        let options = ReadOptions { start: Start::SeqNum(self.next), ..ReadOptions::default() };
        let page = match http.read(&self.address, options, WAIT).await {
            // A stream made again is shorter than the one before: which one is there tells.
            Err(error) if error.reason() == Reason::OutOfRange => {
                let found = http.get_stream(&self.address).await?.stream_id;
                return Err(if found == self.stream_id { error } else { self.gone() });
            }
            page => page?,
        };
        match page.stream_id {
            Some(found) if found != self.stream_id => Err(self.gone()),
            _ => Ok(page),
        }
    }

    fn gone(&self) -> Error {
        let message = format!("stream {} of {} was deleted", self.stream_id, self.address);
        Error::harmless(Reason::NotFound, message)
    }

    /// Waits until the subscriber has taken enough.
    async fn room(&self) {
        let taken = &self.ends.1;
        while self.delivered - taken.bytes.load(Ordering::Relaxed) >= self.credit_bytes {
            taken.more.notified().await;
        }
    }

    fn deliver(&mut self, page: Page) {
        self.next = page.end;
        if page.records.is_empty() {
            return;
        }
        let bytes = page.records.iter().map(crate::record::Record::content_bytes).sum();
        self.delivered += bytes;
        // A subscriber that is gone is noticed where it is waited for.
        let _dropped = self.ends.0.send(Ok((page, bytes)));
    }
}
