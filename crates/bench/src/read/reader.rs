//! How does one reader go through its streams?

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use wire::frame::{Frame, Kind};
use wire::ids::SeqNum;
use wire::message::{CheckTail, Credit, Done, Read, Refused, Start, Subscribe, Subscribed, Tail, Unsubscribe};
use wire::names::Address;

use super::pages::{Held, held};
use super::{Mode, ReadOptions, Shared, Took};
use crate::dial::{ANSWER_MAX, Dialled, decoded};
use crate::error::BenchError;
use crate::load::nanoseconds;
use crate::places::Places;

/// Credit of a slow reader, so that little waits for it in between.
const SLOW_CREDIT_BYTES: u32 = 16 << 10;
/// Records of a slow reader's page.
const SLOW_PAGE_RECORDS: u32 = 10;
/// A slow reader looks at least this often whether it is over, and answers pings.
const SLOW_LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs reader `number`; from `options.readers` on they are slow ones.
pub(super) fn run(options: &ReadOptions, places: &Places, shared: &Shared, number: u16) -> Result<Took, BenchError> {
    if !options.cpus.is_empty() {
        crate::cpu::pin(options.cpus[usize::from(number) % options.cpus.len()])?;
    }
    let is_slow = number >= options.readers;
    let dialled = Dialled::connect(&options.addr)?;
    let mut reader = Reader { options, shared, dialled, is_slow, took: Took::new(), subscriptions: 0 };
    let place = if is_slow { number - options.readers } else { number };
    let began = Instant::now();
    loop {
        let first = u32::from(place) % places.streams();
        let step = usize::from(if is_slow { options.slow_readers } else { options.readers });
        for stream in (first..places.streams()).step_by(step) {
            if reader.is_over() {
                break;
            }
            let address = places.address(stream)?;
            match options.mode {
                Mode::Pages => reader.by_pages(&address)?,
                Mode::Subscription => reader.by_subscription(&address)?,
            }
        }
        let goes_around = is_slow || options.duration.is_some();
        if !goes_around || reader.is_over() {
            break;
        }
    }
    reader.took.elapsed = began.elapsed();
    Ok(reader.took)
}

struct Reader<'a> {
    options: &'a ReadOptions,
    shared: &'a Shared,
    dialled: Dialled,
    is_slow: bool,
    took: Took,
    subscriptions: u32,
}

impl Reader<'_> {
    fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Relaxed)
    }

    fn tail(&mut self, address: &Address) -> Result<SeqNum, BenchError> {
        let Tail { tail } = self.dialled.call("asking for the tail", &CheckTail { address: address.clone() })?;
        Ok(tail.seq_num)
    }

    fn by_pages(&mut self, address: &Address) -> Result<(), BenchError> {
        let end = self.tail(address)?;
        let mut next = SeqNum::new(self.options.from);
        while next < end && !self.is_over() {
            let asked = Instant::now();
            self.dialled.send(&Read {
                address: address.clone(),
                start: Start::SeqNum(next),
                clamp: true,
                limit: if self.is_slow { SLOW_PAGE_RECORDS } else { 0 },
                max_bytes: self.options.page_bytes,
                until_ms: None,
            })?;
            let page = self.dialled.next(|frame| of_kind(frame, Kind::Page, next))?;
            self.took.first.record(nanoseconds(asked.elapsed()));
            next = self.take(page, None)?;
        }
        self.took.streams += u64::from(next >= end);
        Ok(())
    }

    fn by_subscription(&mut self, address: &Address) -> Result<(), BenchError> {
        let end = self.tail(address)?;
        let asked = Instant::now();
        self.subscriptions += 1;
        let subscription = self.subscriptions;
        let subscribed: Subscribed = self.dialled.call(
            "subscribing",
            &Subscribe {
                address: address.clone(),
                start: Start::SeqNum(SeqNum::new(self.options.from)),
                clamp: true,
                subscription,
                credit_bytes: if self.is_slow { SLOW_CREDIT_BYTES } else { self.options.credit_bytes },
                resume: None,
            },
        )?;
        let mut next = subscribed.start;
        let mut is_first = true;
        while next < end && !self.is_over() {
            let page = self.dialled.next(|frame| of_kind(frame, Kind::Records, next))?;
            if std::mem::take(&mut is_first) {
                self.took.first.record(nanoseconds(asked.elapsed()));
            }
            next = self.take(page, Some(subscription))?;
        }
        self.took.streams += u64::from(next >= end);
        self.unsubscribe(subscription)
    }

    /// Ends a subscription; records that are under way are passed over.
    fn unsubscribe(&mut self, subscription: u32) -> Result<(), BenchError> {
        self.dialled.send(&Unsubscribe { subscription })?;
        let mut is_done = false;
        while !is_done {
            is_done = self.dialled.next(|frame| match frame.kind {
                Kind::Records => Ok(false),
                _ => decoded::<Done>(frame, "ending a subscription").map(|Done {}| true),
            })?;
        }
        Ok(())
    }

    /// Counts records; a slow reader then waits as long as they are worth, and only then gives credit for more. Answers where the
    /// next ones begin.
    fn take(&mut self, mut page: Held, subscription: Option<u32>) -> Result<SeqNum, BenchError> {
        self.count(&page);
        if self.is_slow {
            page = self.linger(page)?;
        }
        if let Some(subscription) = subscription.filter(|_| page.payload_bytes > 0) {
            self.dialled.send(&Credit { subscription, bytes: page.payload_bytes })?;
        }
        Ok(page.end)
    }

    fn count(&mut self, page: &Held) {
        self.took.records += page.records;
        self.took.bytes += page.content_bytes;
        if !self.is_slow {
            self.shared.records.fetch_add(page.records, Ordering::Relaxed);
        }
    }

    /// Waits as long as records are worth, or until the run is over, and answers pings meanwhile. What comes within the credit that
    /// is out counts too, and is waited for as well.
    fn linger(&mut self, mut page: Held) -> Result<Held, BenchError> {
        let rate = self.options.slow_rate;
        let worth = |records: u64| Duration::from_secs_f64(crate::progress::as_f64(records) / rate);
        let mut until = Instant::now() + worth(page.records);
        loop {
            let left = until.saturating_duration_since(Instant::now()).min(SLOW_LOOK_EVERY);
            if left.is_zero() || self.is_over() {
                self.dialled.set_answer_max(ANSWER_MAX)?;
                return Ok(page);
            }
            self.dialled.set_answer_max(left)?;
            if let Some(more) = self.dialled.next_in_time(|frame| of_kind(frame, Kind::Records, page.end))? {
                self.count(&more);
                until += worth(more.records);
                page = Held { payload_bytes: page.payload_bytes.saturating_add(more.payload_bytes), ..more };
            }
        }
    }
}

fn of_kind(frame: &Frame<'_>, kind: Kind, next: SeqNum) -> Result<Held, BenchError> {
    if frame.kind == Kind::Refused {
        let Refused { refusal } = decoded(frame, "reading")?;
        return Err(BenchError::Refused { request: "reading", refusal });
    }
    if frame.kind != kind {
        return Err(BenchError::Unexpected { found: frame.kind, awaited: "records were due" });
    }
    held(frame, next)
}
