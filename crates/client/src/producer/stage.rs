//! What waits to be sent: how calls merge into batches, and how callers wait for room.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time::Instant;
use wire::batch::{BatchBuilder, check_record, check_totals};
use wire::ids::SeqNum;
use wire::limits::{BATCH_CONTENT_BYTES_MAX, BATCH_RECORDS_MAX};
use wire::message::Appended;
use wire::reason::Reason;
use wire::terms::Terms;

use super::ProducerOptions;
use crate::error::{Error, Result};
use crate::record::AppendRecord;

/// Content that is staged before callers wait.
pub(super) const STAGED_BYTES_MAX: usize = 1 << 20;
/// What a record counts at least, so that empty ones are bounded too.
const RECORD_BYTES_MIN: usize = 32;

pub(super) type Answer = oneshot::Sender<Result<Appended>>;

/// Which records of a call have stamps. Calls of different kinds never share a batch, see [`super::Producer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamps {
    None,
    All,
    Some,
}

/// The records of one call, each within its bounds and all of them within those of a batch.
#[derive(Debug)]
pub(super) struct Call {
    match_seq_num: Option<SeqNum>,
    /// None are the default ones.
    terms: Option<Box<Terms>>,
    records: Vec<AppendRecord>,
    content_bytes: usize,
    stamps: Stamps,
}

impl Call {
    pub(super) fn new(match_seq_num: Option<SeqNum>, records: Vec<AppendRecord>) -> Result<Self> {
        let mut content_bytes = 0;
        for (at, record) in records.iter().enumerate() {
            content_bytes += check_record(at, record.timestamp_ms, &record.headers, &record.body)?;
        }
        check_totals(records.len(), content_bytes)?;
        let stamped = records.iter().filter(|record| record.timestamp_ms.is_some()).count();
        let stamps = match stamped {
            0 => Stamps::None,
            _ if stamped == records.len() => Stamps::All,
            _ => Stamps::Some,
        };
        Ok(Self { match_seq_num, terms: None, records, content_bytes, stamps })
    }

    /// The same on terms.
    pub(super) fn on(self, terms: Terms) -> Self {
        let terms = (terms != Terms::default()).then(|| Box::new(terms));
        Self { terms, ..self }
    }

    /// Room that it takes while it is staged.
    fn room(&self) -> u32 {
        let bytes = self.content_bytes.max(self.records.len() * RECORD_BYTES_MIN);
        u32::try_from(bytes.min(STAGED_BYTES_MAX)).unwrap_or(u32::MAX)
    }

    fn shares(&self) -> bool {
        self.match_seq_num.is_none()
            && self.stamps != Stamps::Some
            && self.terms.as_ref().is_none_or(|terms| terms.may_share())
    }
}

/// One of the callers whose records ride in a batch.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) records: u64,
    /// The highest stamp sent in the batch up to this caller's first record, and up to its last.
    pub(super) stamps_max: (i64, i64),
    pub(super) answer: Answer,
}

/// A batch that is still open for more.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) match_seq_num: Option<SeqNum>,
    pub(super) terms: Option<Box<Terms>>,
    pub(super) builder: BatchBuilder,
    pub(super) callers: Vec<Caller>,
    stamps: Stamps,
    shares: bool,
    stamps_max: i64,
    room: u32,
    since: Option<Instant>,
}

impl Staged {
    fn takes(&self, call: &Call, bytes_max: usize) -> bool {
        self.shares
            && call.shares()
            && self.stamps == call.stamps
            && self.terms == call.terms
            && self.builder.records() + call.records.len() <= BATCH_RECORDS_MAX
            && self.builder.content_bytes() + call.content_bytes <= bytes_max
    }

    fn add(&mut self, call: Call, answer: Answer) {
        self.room += call.room();
        let records = call.records.len() as u64;
        let mut first_max = None;
        for record in call.records {
            let stamp = record.timestamp_ms.unwrap_or(i64::MIN);
            self.stamps_max = self.stamps_max.max(stamp);
            first_max.get_or_insert(self.stamps_max);
            let pushed = self.builder.push(record.timestamp_ms, &record.headers, &record.body);
            assert!(pushed.is_ok(), "a call and its place in the batch have been checked");
        }
        let stamps_max = (first_max.unwrap_or(i64::MIN), self.stamps_max);
        self.callers.push(Caller { records, stamps_max, answer });
    }

    fn is_full(&self, bytes_max: usize) -> bool {
        !self.shares || self.builder.records() == BATCH_RECORDS_MAX || self.builder.content_bytes() >= bytes_max
    }
}

/// What the session may send next.
pub(super) enum Due {
    Batch(Staged),
    /// Nothing before this moment, at which the linger of the oldest ends.
    At(Instant),
    Nothing,
}

#[derive(Debug, Default)]
struct Stage {
    batches: VecDeque<Staged>,
    /// A builder whose memory is used again.
    spare: Option<BatchBuilder>,
    /// Whether the session waits to be told of a call.
    parked: bool,
    closing: bool,
    /// Why the session takes no more, once it doesn't.
    ended: Option<Error>,
}

/// What a producer's handles and its session share.
#[derive(Debug)]
pub(super) struct Shared {
    stage: Mutex<Stage>,
    room: Semaphore,
    /// Tells the session that there is something to do.
    pub(super) wake: Notify,
    done: watch::Sender<bool>,
    linger: Duration,
    batch_bytes_max: usize,
}

fn closed() -> Error {
    Error::harmless(Reason::FailedPrecondition, "the producer is closed")
}

impl Shared {
    pub(super) fn new(options: &ProducerOptions) -> Arc<Self> {
        Arc::new(Self {
            stage: Mutex::default(),
            room: Semaphore::new(STAGED_BYTES_MAX),
            wake: Notify::new(),
            done: watch::Sender::new(false),
            linger: options.linger,
            batch_bytes_max: options.batch_bytes_max.min(BATCH_CONTENT_BYTES_MAX),
        })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stages a call once there is room.
    pub(super) async fn put(&self, call: Call) -> Result<oneshot::Receiver<Result<Appended>>> {
        match self.room.acquire_many(call.room()).await {
            Ok(room) => room.forget(),
            Err(_) => return Err(self.stage().ended.clone().unwrap_or_else(closed)),
        }
        let (answer, answered) = oneshot::channel();
        let mut stage = self.stage();
        if stage.closing || stage.ended.is_some() {
            return Err(stage.ended.clone().unwrap_or_else(closed));
        }
        let bytes_max = self.batch_bytes_max;
        match stage.batches.back_mut().filter(|back| back.takes(&call, bytes_max)) {
            Some(back) => back.add(call, answer),
            None => {
                let mut staged = Staged {
                    match_seq_num: call.match_seq_num,
                    terms: call.terms.clone(),
                    builder: stage.spare.take().unwrap_or_default(),
                    callers: Vec::new(),
                    stamps: call.stamps,
                    shares: call.shares(),
                    stamps_max: i64::MIN,
                    room: 0,
                    since: (!self.linger.is_zero()).then(Instant::now),
                };
                staged.add(call, answer);
                stage.batches.push_back(staged);
            }
        }
        if std::mem::take(&mut stage.parked) {
            drop(stage);
            self.wake.notify_one();
        }
        Ok(answered)
    }

    /// The next batch for a free place in the window; its room is given back. With none to send, the session is told of
    /// the next call through `wake`.
    pub(super) fn take(&self) -> Due {
        let mut stage = self.stage();
        let Some(front) = stage.batches.front() else {
            stage.parked = true;
            return Due::Nothing;
        };
        let waits_until = front
            .since
            .filter(|_| stage.batches.len() == 1 && !stage.closing && !front.is_full(self.batch_bytes_max))
            .map(|since| since + self.linger)
            .filter(|until| *until > Instant::now());
        if let Some(until) = waits_until {
            stage.parked = true;
            return Due::At(until);
        }
        let Some(staged) = stage.batches.pop_front() else { return Due::Nothing };
        drop(stage);
        self.room.add_permits(staged.room as usize);
        Due::Batch(staged)
    }

    /// Gives the memory of a builder back that was sent.
    pub(super) fn give_back(&self, builder: BatchBuilder) {
        self.stage().spare.get_or_insert(builder);
    }

    /// Whether all is to be sent and the session to end; and whether nothing is staged.
    pub(super) fn is_closing(&self) -> (bool, bool) {
        let stage = self.stage();
        (stage.closing, stage.batches.is_empty())
    }

    /// Takes no more calls, and tells the session to finish.
    pub(super) fn close(&self) {
        self.stage().closing = true;
        self.room.close();
        self.wake.notify_one();
    }

    /// Waits for the session to end.
    pub(super) async fn closed(&self) -> Result<()> {
        let mut done = self.done.subscribe();
        // The sender lives in `self`, so the wait can only end well.
        let _ = done.wait_for(|done| *done).await;
        self.stage().ended.clone().map_or(Ok(()), Err)
    }

    /// Ends it, the first time: what is staged, and every later call, gets `error`; with none, later calls learn that it
    /// is closed.
    pub(super) fn end(&self, error: Option<Error>) {
        let mut stage = self.stage();
        if *self.done.borrow() {
            return;
        }
        stage.closing = true;
        stage.ended = error.clone();
        let staged = std::mem::take(&mut stage.batches);
        drop(stage);
        self.room.close();
        let error = error.unwrap_or_else(closed).about_batch(false);
        for caller in staged.into_iter().flat_map(|staged| staged.callers) {
            let _ = caller.answer.send(Err(error.clone()));
        }
        self.done.send_replace(true);
    }
}
