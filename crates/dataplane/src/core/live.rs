//! What a stream has while it is in use: the assignment cursor, its sessions and subscriptions, what waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use wire::config::StreamConfig;
use wire::entry::{Effect, Numbered};
use wire::ids::{Lsn, Rev, SeqNum};
use wire::names::FencingToken;
use wire::terms::Terms;

use super::commit::To;
use super::lane::Lane;
use super::row::Row;

/// The state that the next admission is judged on: everything assigned, durable or not.
#[derive(Debug)]
pub(crate) struct Live {
    /// What the next record gets.
    pub(crate) next: SeqNum,
    /// The stamp of the last record assigned.
    pub(crate) last_ms: i64,
    /// The rev of the last entry assigned.
    pub(crate) rev: Rev,
    /// The token that stands; empty is none.
    pub(crate) token: FencingToken,
    /// The trim point that stands.
    pub(crate) trim_point: SeqNum,
    /// The configuration that stands.
    pub(crate) config: Arc<StreamConfig>,
    /// The LSN of the last entry assigned, in its lane; zero for none since the stream went into use.
    pub(crate) last_lsn: Lsn,
    /// The lane of the last entry assigned.
    pub(crate) lane: Lane,
    /// Entries that are not durable yet.
    pub(crate) in_flight: u32,
    /// Content that is not durable yet, in bytes.
    pub(crate) in_flight_bytes: u64,
    /// Records that are not durable yet.
    pub(crate) in_flight_records: u64,
    /// Answers without an entry of their own that wait for a lane.
    pub(crate) waiting: u32,
    /// It is on its way from one lane to the other: nothing enters.
    pub(crate) moving: Option<Moving>,
    /// Deleted, though maybe not durably so.
    pub(crate) deleted: bool,
    /// Open writer sessions.
    pub(crate) sessions: SmallVec<[u32; 2]>,
    /// Subscriptions that wait for what is committed next.
    pub(crate) subscriptions: SmallVec<[u32; 2]>,
    /// Batches that a bound of the stream holds back, in order.
    pub(crate) held: VecDeque<Held>,
    /// What the throughput bound allows now.
    pub(crate) allowance: Allowance,
    /// It stands in the queue of those to be forgotten once they owe nothing.
    pub(crate) is_cooling: bool,
}

/// How far a stream is on its way from one lane to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moving {
    /// What is in flight becomes durable, and settled if it goes to the standard store.
    Resting {
        /// Since then.
        since: Duration,
        /// Then nobody wants it any more.
        lapses: Duration,
        /// Control was told that somebody waits for the settling.
        has_flushed: bool,
    },
    /// Its entry is in flight.
    Entered,
}

/// A batch that is held back.
#[derive(Debug)]
pub(crate) struct Held {
    /// Who is answered.
    pub(crate) to: To,
    /// Who numbered it.
    pub(crate) numbered: Numbered,
    /// The expected sequence number.
    pub(crate) match_seq_num: Option<SeqNum>,
    /// On which terms.
    pub(crate) terms: Terms,
    /// The token presented.
    pub(crate) presented: FencingToken,
    /// The encoded batch.
    pub(crate) batch: Vec<u8>,
    /// Its CRC-32C.
    pub(crate) batch_crc: u32,
    /// When it is refused instead.
    pub(crate) deadline: Option<Duration>,
}

impl Live {
    /// The state of a stream in which nothing is in flight.
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            next: row.tail.seq_num,
            last_ms: row.tail.timestamp_ms,
            rev: row.rev,
            token: row.token(),
            trim_point: row.trim_point,
            config: Arc::clone(&row.config),
            last_lsn: Lsn::ZERO,
            lane: Lane::default(),
            in_flight: 0,
            in_flight_bytes: 0,
            in_flight_records: 0,
            waiting: 0,
            moving: None,
            deleted: false,
            sessions: SmallVec::new(),
            subscriptions: SmallVec::new(),
            held: VecDeque::new(),
            allowance: Allowance::default(),
            is_cooling: false,
        }
    }

    /// The stamp below which the next record's may not fall: nothing stands before the first.
    pub(crate) fn previous_ms(&self) -> i64 {
        if self.next == SeqNum::ZERO { i64::MIN } else { self.last_ms }
    }

    /// Takes in what applies with a batch that was just assigned.
    pub(crate) fn take_effect(&mut self, effect: &Effect) {
        if let Some(token) = effect.token() {
            self.token = token.clone();
        }
        if let Some(to) = effect.trim() {
            self.trim_point = self.trim_point.max(to).min(self.next);
        }
    }

    /// Whether nobody would miss it.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
            && self.waiting == 0
            && self.sessions.is_empty()
            && self.subscriptions.is_empty()
            && self.held.is_empty()
    }

    /// How long nothing enters because the stream moves to the other lane; no time at all when its end will be told.
    #[inline]
    pub(crate) fn held_for_move(&self, now: Duration) -> Option<Option<Duration>> {
        match self.moving? {
            Moving::Entered => Some(None),
            Moving::Resting { lapses, .. } if now < lapses => Some(Some(lapses - now)),
            Moving::Resting { .. } => None,
        }
    }

    /// Whether the leader has gathered as much from the stream as its batch bounds allow.
    pub(crate) fn has_gathered_enough(&self, content_bytes: u32, records: u16) -> bool {
        let batch = &self.config.batch;
        let over = |bound: u32, held: u64, more: u64| bound > 0 && held > 0 && held + more > u64::from(bound);
        over(batch.max_bytes, self.in_flight_bytes, u64::from(content_bytes))
            || over(batch.max_records, self.in_flight_records, u64::from(records))
    }
}

/// A token bucket with one second of burst; a batch is admitted while it is positive and may take it into debt.
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// Bytes left, in debt when negative; `None` is full.
    left: Option<f64>,
    filled_at: Duration,
}

impl Allowance {
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52 bytes a second")]
    fn refill(&mut self, bytes_per_second: u64, now: Duration) -> f64 {
        let rate = bytes_per_second as f64;
        let left = match self.left {
            Some(left) => (left + rate * now.saturating_sub(self.filled_at).as_secs_f64()).min(rate),
            None => rate,
        };
        (self.left, self.filled_at) = (Some(left), now);
        left
    }

    /// How long until a batch is admitted; `None` is now.
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52 bytes a second")]
    pub(crate) fn wait(&mut self, bytes_per_second: u64, now: Duration) -> Option<Duration> {
        if bytes_per_second == 0 {
            return None;
        }
        let left = self.refill(bytes_per_second, now);
        let debt = 1.0 - left;
        (debt > 0.0).then(|| Duration::from_secs_f64(debt / bytes_per_second as f64))
    }

    /// Takes what a batch needs.
    pub(crate) fn take(&mut self, content_bytes: u32) {
        if let Some(left) = &mut self.left {
            *left -= f64::from(content_bytes);
        }
    }

    /// Whether it owes nothing, so that forgetting it gives nothing away.
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52 bytes a second")]
    pub(crate) fn is_full(&mut self, bytes_per_second: u64, now: Duration) -> bool {
        bytes_per_second == 0 || self.refill(bytes_per_second, now) >= bytes_per_second as f64
    }
}
