//! How do all readers of a stream share one live subscription?
//!
//! A feed follows one stream at its tail and keeps the newest records, each round of them encoded once for all. A reader
//! who is further behind than what is kept reads for itself until it is there.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use client::json::Coding;
use client::{Address, Client, Error, Record, SeqNum, StreamId, SubscribeOptions, Subscription};
use futures_util::FutureExt;
use tokio::sync::{Notify, OnceCell, watch};
use tokio::time::{Instant, sleep_until, timeout_at};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::bounds::{FEED_BYTES_MAX, FEED_LINGER, FEEDS_MAX, ROUND_MAX, ROUND_PER_READER};
use super::events;
use super::failure::HttpRefusal;

/// All feeds of a gateway, by the address of their stream.
#[derive(Debug)]
pub(super) struct Feeds {
    client: Client,
    open: Arc<Mutex<HashMap<Address, Arc<Feed>>>>,
}

#[derive(Debug)]
struct Feed {
    readers: AtomicUsize,
    /// A reader left.
    left: Notify,
    stream: OnceCell<StreamId>,
    kept: Mutex<Kept>,
    /// How many rounds there were; what wakes the readers.
    rounds: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    rounds: VecDeque<Arc<Round>>,
    bytes: usize,
    /// One past the newest record that the feed has seen.
    end: SeqNum,
    ended: Option<Error>,
}

/// Records that came together, and what they look like on the way out.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) start: SeqNum,
    pub(super) end: SeqNum,
    records: Vec<Record>,
    bytes: usize,
    utf8: OnceLock<Result<Bytes, Refusal>>,
    base64: OnceLock<Result<Bytes, Refusal>>,
}

impl Round {
    /// The events of all its records, encoded when the first reader asks.
    pub(super) fn events(&self, coding: Coding) -> Result<Bytes, Refusal> {
        let slot = if coding == Coding::Base64 { &self.base64 } else { &self.utf8 };
        slot.get_or_init(|| events::encode(&self.records, coding).map(Bytes::from)).clone()
    }

    /// Its records from one on.
    pub(super) fn records_from(&self, next: SeqNum) -> &[Record] {
        let at = self.records.partition_point(|record| record.seq_num < next);
        &self.records[at..]
    }
}

/// What a feed has for a reader.
#[derive(Debug)]
pub(super) enum Found {
    /// The round with the next record, or the next after a gap.
    Round(Arc<Round>),
    /// The next record is older than what is kept.
    Behind,
    /// The next record is not there yet.
    Nothing,
    /// No more will come.
    Ended(Error),
}

/// A reader's part in a feed; it leaves when it is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    feed: Arc<Feed>,
    rounds: watch::Receiver<u64>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.feed.readers.fetch_sub(1, Ordering::Relaxed);
        self.feed.left.notify_one();
    }
}

impl Reader {
    /// The stream that the feed follows.
    pub(super) fn stream_id(&self) -> StreamId {
        self.feed.stream.get().copied().unwrap_or_default()
    }

    /// One past the newest record that the feed has seen.
    pub(super) fn end(&self) -> SeqNum {
        self.feed.kept().end
    }

    /// What there is at `next`; the round that is waited for is the one after what is told here.
    pub(super) fn find(&mut self, next: SeqNum) -> Found {
        self.rounds.mark_unchanged();
        let kept = self.feed.kept();
        let oldest = kept.rounds.front().map_or(kept.end, |round| round.start);
        if next < oldest {
            return Found::Behind;
        }
        let at = kept.rounds.partition_point(|round| round.end <= next);
        match (kept.rounds.get(at), &kept.ended) {
            (Some(round), _) => Found::Round(Arc::clone(round)),
            (None, Some(error)) => Found::Ended(error.clone()),
            (None, None) => Found::Nothing,
        }
    }

    /// Why no more will come, if so.
    pub(super) fn ended(&self) -> Option<Error> {
        self.feed.kept().ended.clone()
    }

    /// Waits for a round that was not there at the last look.
    pub(super) async fn more(&mut self) {
        // The sender lives as long as the feed, which this holds.
        let _changed = self.rounds.changed().await;
    }
}

impl Feed {
    fn new() -> Self {
        Self {
            readers: AtomicUsize::new(0),
            left: Notify::new(),
            stream: OnceCell::new(),
            kept: Mutex::default(),
            rounds: watch::Sender::new(0),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, records: Vec<Record>, start: SeqNum, end: SeqNum) {
        let bytes = records.iter().map(content_bytes).sum();
        let round = Round { start, end, records, bytes, utf8: OnceLock::new(), base64: OnceLock::new() };
        {
            let mut kept = self.kept();
            kept.end = end;
            kept.bytes += bytes;
            kept.rounds.push_back(Arc::new(round));
            // The newest stays, however large it is.
            while kept.bytes > FEED_BYTES_MAX && kept.rounds.len() > 1 {
                kept.bytes -= kept.rounds.pop_front().map_or(0, |round| round.bytes);
            }
        }
        self.rounds.send_modify(|rounds| *rounds += 1);
    }

    fn end(&self, error: Error) {
        self.kept().ended = Some(error);
        self.rounds.send_modify(|rounds| *rounds += 1);
    }

    /// Time to the next round, so that waking many readers leaves room for the rest.
    fn pause(&self) -> std::time::Duration {
        let readers = u32::try_from(self.readers.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        ROUND_PER_READER.saturating_mul(readers.saturating_sub(1)).min(ROUND_MAX)
    }
}

/// What a record takes of what is kept, in bytes: its content, and that it is there.
fn content_bytes(record: &Record) -> usize {
    let headers = record.headers.iter().map(|(name, value)| name.len() + value.len() + 64);
    size_of::<Record>() + record.body.len() + headers.sum::<usize>()
}

type Open = Mutex<HashMap<Address, Arc<Feed>>>;

fn locked(open: &Open) -> MutexGuard<'_, HashMap<Address, Arc<Feed>>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Feeds {
    pub(super) fn new(client: Client) -> Self {
        Self { client, open: Arc::default() }
    }

    /// How many streams are followed, and by how many readers.
    pub(super) fn counts(&self) -> (usize, usize) {
        let open = locked(&self.open);
        (open.len(), open.values().map(|feed| feed.readers.load(Ordering::Relaxed)).sum())
    }

    /// Joins those who follow a stream; the first one opens the subscription.
    ///
    /// # Errors
    /// `resource_exhausted` when too many streams are followed; those of [`Client::subscribe`].
    pub(super) async fn join(&self, address: &Address) -> Result<Reader, HttpRefusal> {
        let feed = self.enter(address)?;
        let reader = Reader { rounds: feed.rounds.subscribe(), feed };
        let opened = reader.feed.stream.get_or_try_init(|| self.open(address, &reader.feed)).await;
        match opened {
            Ok(_) => Ok(reader),
            Err(error) => {
                drop(reader);
                self.forget_unopened(address);
                Err(error.into())
            }
        }
    }

    fn enter(&self, address: &Address) -> Result<Arc<Feed>, HttpRefusal> {
        let mut open = locked(&self.open);
        if open.len() >= FEEDS_MAX && !open.contains_key(address) {
            let message = format!("{FEEDS_MAX} streams are followed through this gateway already");
            let refusal = Refusal::new(Reason::ResourceExhausted, message).with_retry_after_ms(5_000);
            return Err(HttpRefusal::from(refusal));
        }
        let feed = Arc::clone(open.entry(address.clone()).or_insert_with(|| Arc::new(Feed::new())));
        feed.readers.fetch_add(1, Ordering::Relaxed);
        Ok(feed)
    }

    fn forget_unopened(&self, address: &Address) {
        let mut open = locked(&self.open);
        let is_idle = |feed: &Arc<Feed>| !feed.stream.initialized() && feed.readers.load(Ordering::Relaxed) == 0;
        if open.get(address).is_some_and(is_idle) {
            open.remove(address);
        }
    }

    async fn open(&self, address: &Address, feed: &Arc<Feed>) -> Result<StreamId, Error> {
        let options = SubscribeOptions::last(0).credit_bytes(256 << 10);
        let subscription = self.client.subscribe(address, options).await?;
        let stream_id = subscription.stream_id();
        feed.kept().end = subscription.start();
        let follow = Follow {
            open: Arc::clone(&self.open),
            address: address.clone(),
            feed: Arc::clone(feed),
            subscription,
            round_at: Instant::now(),
            idle_until: None,
        };
        tokio::spawn(follow.run());
        Ok(stream_id)
    }
}

/// The task of a feed.
struct Follow {
    open: Arc<Open>,
    address: Address,
    feed: Arc<Feed>,
    subscription: Subscription,
    /// When the readers may be told next.
    round_at: Instant,
    /// When it is over if nobody reads until then.
    idle_until: Option<Instant>,
}

impl Follow {
    async fn run(mut self) {
        loop {
            let idle_until = self.idle_until.unwrap_or_else(Instant::now);
            let page = tokio::select! {
                page = self.subscription.next() => page,
                () = self.feed.left.notified() => {
                    self.idle_until = (!self.has_readers()).then(|| Instant::now() + FEED_LINGER);
                    continue;
                }
                () = sleep_until(idle_until), if self.idle_until.is_some() => {
                    if self.is_forgotten() {
                        return;
                    }
                    self.idle_until = None;
                    continue;
                }
            };
            let outcome = match page {
                Some(Ok(page)) => self.round(page).await,
                Some(Err(error)) => Err(error),
                None => return,
            };
            if let Err(error) = outcome {
                return self.end(error);
            }
        }
    }

    /// Gathers what comes until the readers may be told, as much as is kept at most, then tells them.
    async fn round(&mut self, page: client::Page) -> Result<(), Error> {
        let (start, mut end) = (page.start, page.end);
        let mut records = page.records;
        let mut bytes: usize = records.iter().map(content_bytes).sum();
        let mut outcome = Ok(());
        while bytes < FEED_BYTES_MAX / 2 {
            let more = match self.subscription.next().now_or_never() {
                Some(more) => more,
                None => match timeout_at(self.round_at, self.subscription.next()).await {
                    Ok(more) => more,
                    Err(_) => break,
                },
            };
            match more {
                Some(Ok(page)) => {
                    bytes += page.records.iter().map(content_bytes).sum::<usize>();
                    end = page.end;
                    records.extend(page.records);
                }
                Some(Err(error)) => {
                    outcome = Err(error);
                    break;
                }
                None => break,
            }
        }
        self.feed.keep(records, start, end);
        self.round_at = Instant::now() + self.feed.pause();
        outcome
    }

    fn has_readers(&self) -> bool {
        self.feed.readers.load(Ordering::Relaxed) > 0
    }

    /// Forgets the feed unless somebody reads; readers enter under the same lock.
    fn is_forgotten(&self) -> bool {
        let mut open = locked(&self.open);
        if self.has_readers() {
            return false;
        }
        self.forget(&mut open);
        true
    }

    fn end(&self, error: Error) {
        tracing::debug!(address = %self.address, %error, "a feed ended");
        // Whoever comes from here on opens another.
        self.forget(&mut locked(&self.open));
        self.feed.end(error);
    }

    fn forget(&self, open: &mut HashMap<Address, Arc<Feed>>) {
        if open.get(&self.address).is_some_and(|feed| Arc::ptr_eq(feed, &self.feed)) {
            open.remove(&self.address);
        }
    }
}
