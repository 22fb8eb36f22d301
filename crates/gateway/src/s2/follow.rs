//! Which records does a read get, and when does it end?
//!
//! A read starts at a record that is there or at the tail. It goes on to where the tail was when it started, or, when it may
//! follow, from there on as records commit. Records below the trim point are passed over in silence, as S2 does.

use std::collections::VecDeque;
use std::time::Duration;

use client::{Address, Client, Page, Position, ReadOptions, Reason, Record, SubscribeOptions, Subscription};
use http::HeaderMap;
use tokio::time::{Instant, sleep_until};

use super::facade::Facade;
use super::failure::{Code, Failure, Result};
use super::query::{From, Reading};
use super::record::{METERED_BYTES_MAX, metered_record, timestamp};
use super::streams::On;

/// Most records of a batch.
const BATCH_RECORDS_MAX: usize = 1_000;
/// A sign of life comes between these, in milliseconds.
const HEARTBEAT_MS: (u64, u64) = (5_000, 15_000);

/// What a read may still take.
#[derive(Debug, Clone, Copy)]
struct Budget {
    count: u64,
    bytes: u64,
    until: u64,
}

impl Budget {
    fn of(reading: &Reading) -> Self {
        let or_all = |bound: Option<u64>| bound.unwrap_or(u64::MAX);
        Self { count: or_all(reading.count), bytes: or_all(reading.bytes), until: or_all(reading.until) }
    }

    fn is_spent(&self) -> bool {
        self.count == 0 || self.bytes == 0
    }

    /// Takes what it can of a record; false when it can't.
    fn takes(&mut self, record: &Record) -> bool {
        let bytes = metered_record(record) as u64;
        // No stamp reaches the highest `until`, so that it stands for none.
        let is_before = timestamp(record.timestamp_ms) < self.until;
        if self.count == 0 || bytes > self.bytes || !is_before {
            return false;
        }
        self.count -= 1;
        self.bytes -= bytes;
        true
    }
}

/// A delivery.
#[derive(Debug)]
pub(super) enum Event {
    /// Nothing yet; the tail.
    Heartbeat(Position),
    /// Records, and the tail when it was just looked at.
    Batch(Vec<Record>, Option<Position>),
}

/// A read that is under way.
#[derive(Debug)]
pub(super) struct Follow {
    client: Client,
    address: Address,
    next: u64,
    /// Where the tail was when it was last heard of.
    tail: Position,
    budget: Budget,
    wait: Option<Duration>,
    follows: bool,
    credit_bytes: u32,
    subscription: Option<Subscription>,
    /// Whether it has caught up and waits.
    is_live: bool,
    deadline: Option<Instant>,
    heartbeat_at: Instant,
    ready: VecDeque<Event>,
    ended: bool,
}

impl Facade {
    /// Finds where a read starts.
    ///
    /// # Errors
    /// `stream_not_found`, `basin_not_found`; the tail, when the start is past it, or at it and the read may not wait.
    pub(super) async fn follow(&self, address: &Address, reading: &Reading, headers: &HeaderMap) -> Result<Follow> {
        let tail = self.tail_or_new(address, headers).await?;
        let start = self.start(address, reading, tail).await?;
        if start == tail.seq_num.get() && !reading.may_follow() && !Budget::of(reading).is_spent() {
            return Err(Failure::Unwritten(tail));
        }
        Ok(Follow {
            client: self.client.clone(),
            address: address.clone(),
            next: start,
            tail,
            budget: Budget::of(reading),
            wait: reading.wait,
            follows: reading.may_follow(),
            credit_bytes: self.credit_bytes(),
            subscription: None,
            is_live: false,
            deadline: None,
            heartbeat_at: Instant::now(),
            ready: VecDeque::new(),
            ended: false,
        })
    }

    /// The tail of a stream, which is made when it is not there and its basin says that reads do so.
    ///
    /// # Errors
    /// `stream_not_found`, `basin_not_found`.
    pub(super) async fn tail_or_new(&self, address: &Address, headers: &HeaderMap) -> Result<Position> {
        match self.client.check_tail(address).await {
            Ok(tail) => return Ok(tail),
            Err(error) if error.reason() == Reason::NotFound => {}
            Err(error) => return Err(Failure::of(&error, Code::StreamNotFound)),
        }
        let stream = self.stream_or_new(address, On::Read, headers).await?;
        Ok(stream.map(|stream| stream.tail).unwrap_or_default())
    }

    async fn start(&self, address: &Address, reading: &Reading, tail: Position) -> Result<u64> {
        let tail_seq_num = tail.seq_num.get();
        let (start, is_past) = match reading.from {
            From::SeqNum(seq_num) => (Some(seq_num), seq_num > tail_seq_num),
            From::TailOffset(offset) => (Some(tail_seq_num.saturating_sub(offset)), false),
            From::Timestamp(from) => (None, from > timestamp(tail.timestamp_ms)),
        };
        match (start, is_past) {
            (_, true) if reading.clamp => Ok(tail_seq_num),
            (_, true) if Budget::of(reading).is_spent() => Ok(tail_seq_num),
            (_, true) => Err(Failure::Unwritten(tail)),
            (Some(start), false) => Ok(start),
            (None, false) => self.first_at(address, reading, tail).await,
        }
    }

    /// The first record stamped at or after a moment.
    async fn first_at(&self, address: &Address, reading: &Reading, tail: Position) -> Result<u64> {
        let From::Timestamp(from) = reading.from else { unreachable!("only a timestamp is looked for") };
        let from_ms = i64::try_from(from).unwrap_or(i64::MAX);
        let options = ReadOptions::from_ms(from_ms).limit(1).clamp();
        match self.client.read(address, options).await {
            Ok(page) => Ok(page.records.first().map_or(tail.seq_num, |record| record.seq_num).get()),
            Err(error) => Err(self.refused(&address.bucket, &error).await),
        }
    }

    /// A read that is answered at once, as one batch: what is there, or else what comes first within the wait.
    pub(super) async fn read_batch(
        &self,
        address: &Address,
        reading: &Reading,
        headers: &HeaderMap,
    ) -> Result<(Vec<Record>, Option<Position>)> {
        let mut follow = self.follow(address, reading, headers).await?;
        let records = follow.read_there().await?;
        if !records.is_empty() || follow.ended || !follow.follows {
            let tail = Some(follow.tail).filter(|tail| follow.next >= tail.seq_num.get());
            return Ok((records, tail));
        }
        while let Some(event) = follow.next().await? {
            if let Event::Batch(records, tail) = event {
                return Ok((records, tail));
            }
        }
        Ok((Vec::new(), Some(follow.tail)))
    }
}

impl Follow {
    /// All that is there up to the tail, within the budget.
    async fn read_there(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        while !self.ended && !self.budget.is_spent() && self.next < self.tail.seq_num.get() {
            let limit = u32::try_from(self.budget.count).unwrap_or(u32::MAX);
            let options = ReadOptions::from(self.next).limit(limit).clamp();
            let page = self.client.read(&self.address, options).await.map_err(|error| gone(&error))?;
            if page.records.is_empty() && page.end.get() <= self.next {
                break;
            }
            self.take(page, &mut records);
        }
        self.ended |= self.budget.is_spent();
        Ok(records)
    }

    /// Takes what is asked for of a page; notes when that is not all.
    fn take(&mut self, page: Page, records: &mut Vec<Record>) {
        self.tail = page.tail;
        for record in page.records {
            if record.seq_num.get() < self.next {
                continue;
            }
            if !self.budget.takes(&record) {
                self.ended = true;
                return;
            }
            self.next = record.seq_num.get() + 1;
            records.push(record);
        }
        self.next = self.next.max(page.end.get());
    }

    /// The next delivery; `None` at the end. Nothing is lost when it is dropped.
    ///
    /// # Errors
    /// What ended it; it ends after that.
    pub(super) async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.ended || self.budget.is_spent() {
                return Ok(None);
            }
            if self.next >= self.tail.seq_num.get() && !self.is_live {
                return Ok(self.go_live());
            }
            if self.subscription.is_none() {
                let options = SubscribeOptions::from(self.next).clamp().credit_bytes(self.credit_bytes);
                let subscribed = self.client.subscribe(&self.address, options).await;
                self.subscription = Some(subscribed.map_err(|error| gone(&error))?);
            }
            if let Some(event) = self.wait().await? {
                return Ok(Some(event));
            }
        }
    }

    /// It has caught up: it waits from now on, and says so, unless it may not or has no time to.
    fn go_live(&mut self) -> Option<Event> {
        let now = Instant::now();
        self.is_live = true;
        self.heartbeat_at = now + heartbeat_in();
        // Only a delivery gives more time.
        self.deadline = self.deadline.or_else(|| self.wait.map(|wait| now + wait));
        self.ended = !self.follows || self.deadline.is_some_and(|deadline| deadline <= now);
        (!self.ended).then_some(Event::Heartbeat(self.tail))
    }

    /// Waits for a page, for the next sign of life, or for the end.
    async fn wait(&mut self) -> Result<Option<Event>> {
        let Some(subscription) = &mut self.subscription else { return Ok(None) };
        let far = Instant::now() + Duration::from_secs(3_600);
        tokio::select! {
            biased;
            page = subscription.next() => match page {
                Some(Ok(page)) => self.deliver(page),
                // What it would get next was trimmed: it goes on with what is there.
                Some(Err(error)) if error.reason() == Reason::Trimmed => self.subscription = None,
                Some(Err(error)) => return Err(gone(&error)),
                None => return Err(Failure::new(Code::Unavailable, "the subscription ended")),
            },
            () = sleep_until(self.heartbeat_at), if self.is_live => {
                self.heartbeat_at = Instant::now() + heartbeat_in();
                return Ok(Some(Event::Heartbeat(self.tail)));
            }
            () = sleep_until(self.deadline.unwrap_or(far)), if self.is_live && self.deadline.is_some() => {
                self.ended = true;
            }
        }
        Ok(None)
    }

    /// Cuts a page into batches.
    fn deliver(&mut self, page: Page) {
        let mut records = Vec::new();
        self.take(page, &mut records);
        let now = Instant::now();
        if !records.is_empty() {
            self.deadline = self.wait.map(|wait| now + wait);
            self.heartbeat_at = now + heartbeat_in();
        }
        let at_tail = self.next >= self.tail.seq_num.get();
        if !self.is_live && at_tail && !self.follows {
            self.ended = true;
        }
        let mut batch = Vec::new();
        let mut bytes = 0;
        for record in records {
            let more = metered_record(&record);
            if batch.len() == BATCH_RECORDS_MAX || bytes + more > METERED_BYTES_MAX && !batch.is_empty() {
                self.ready.push_back(Event::Batch(std::mem::take(&mut batch), None));
                bytes = 0;
            }
            bytes += more;
            batch.push(record);
        }
        if !batch.is_empty() {
            self.ready.push_back(Event::Batch(batch, Some(self.tail).filter(|_| at_tail)));
        }
    }

    /// The tail as it was last heard of.
    pub(super) fn tail(&self) -> Position {
        self.tail
    }
}

fn gone(error: &client::Error) -> Failure {
    Failure::of(error, Code::StreamNotFound)
}

/// When the next sign of life is due, so that those of many sessions don't come together.
fn heartbeat_in() -> Duration {
    let (least, most) = HEARTBEAT_MS;
    let random = getrandom::u32().map_or(0, u64::from);
    Duration::from_millis(least + random % (most - least))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use client::SeqNum;

    use super::*;

    fn record(seq_num: u64, timestamp_ms: i64, body_bytes: usize) -> Record {
        let body = Bytes::from(vec![0; body_bytes]);
        Record { seq_num: SeqNum::new(seq_num), timestamp_ms, headers: Vec::new(), body }
    }

    fn follow(budget: Budget, follows: bool) -> Follow {
        Follow {
            client: Client::new(client::Options::default()).unwrap(),
            address: Address::new("a-basin-of-tests", "s").unwrap(),
            next: 3,
            tail: Position::new(SeqNum::new(9), 0),
            budget,
            wait: None,
            follows,
            credit_bytes: 1 << 20,
            subscription: None,
            is_live: false,
            deadline: None,
            heartbeat_at: Instant::now(),
            ready: VecDeque::new(),
            ended: false,
        }
    }

    fn page(records: Vec<Record>, tail: u64) -> Page {
        let end = records.last().map_or(SeqNum::ZERO, |record| record.seq_num.after(1));
        Page { records, end, tail: Position::new(SeqNum::new(tail), 0), ..Page::default() }
    }

    const ALL: Budget = Budget { count: u64::MAX, bytes: u64::MAX, until: u64::MAX };

    fn batches(follow: &mut Follow) -> Vec<(u64, usize, bool)> {
        follow
            .ready
            .drain(..)
            .map(|event| match event {
                Event::Batch(records, tail) => (records[0].seq_num.get(), records.len(), tail.is_some()),
                Event::Heartbeat(_) => panic!("no batch"),
            })
            .collect()
    }

    #[test]
    fn a_read_ends_at_the_first_record_that_breaks_a_bound() {
        let records = || (3..7).map(|seq_num| record(seq_num, i64::try_from(seq_num).unwrap(), 2)).collect::<Vec<_>>();
        for (budget, taken) in [
            (Budget { count: 2, ..ALL }, 2),
            (Budget { bytes: 29, ..ALL }, 2),
            (Budget { bytes: 9, ..ALL }, 0),
            (Budget { until: 6, ..ALL }, 3),
            (ALL, 4),
        ] {
            let mut follow = follow(budget, true);
            let mut found = Vec::new();
            follow.take(page(records(), 9), &mut found);
            assert_eq!((found.len(), follow.ended), (taken, taken < 4), "{budget:?}");
            assert_eq!(follow.next, 3 + taken as u64);
        }
    }

    #[test]
    fn pages_are_cut_into_batches_and_the_last_one_tells_the_tail() {
        let mut live = follow(ALL, true);
        live.deliver(page((0..1_500).map(|seq_num| record(seq_num, 0, 0)).collect(), 1_500));
        assert_eq!(batches(&mut live), [(3, 1_000, false), (1_003, 497, true)]);
        live.deliver(page((1_500..1_503).map(|seq_num| record(seq_num, 0, 600_000)).collect(), 2_000));
        assert_eq!(batches(&mut live), [(1_500, 1, false), (1_501, 1, false), (1_502, 1, false)]);
        assert!(!live.ended);
        let mut bounded = follow(ALL, false);
        bounded.deliver(page(vec![record(3, 0, 1)], 4));
        assert!(bounded.ended, "it has reached the tail and may not wait");
    }
}
