//! Which streams leave memory: those that nobody uses, that the index has, when there are more than there may be.
//!
//! With half as many more than there may be, new ones wait until others have left.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use wire::ids::StreamId;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::outage::STALLED_RETRY_AFTER_MS;
use super::shard::Shard;
use crate::planted::{Planted, is_planted};

/// How long a stream stays that nobody uses.
const IDLE_SECONDS: u32 = 10;
/// How long it does once there are a quarter more than there may be.
const IDLE_SECONDS_MIN: u32 = 1;
/// Rows that are looked at in one turn.
const LOOKED_AT_MAX: usize = 1_024;
/// Rows of the queue that are looked at for each that comes to it, while most of them are out of it.
const SIFTED_AT_ONCE: usize = 4;
/// How soon the shard looks again when it has too many, and most that it looked at are out of the queue.
const LOOK_ON_AFTER: Duration = Duration::from_millis(4);
/// How soon it does when most of them stayed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long those who want to make a stream wait until one leaves.
const AWAITED_MAX: Duration = Duration::from_secs(10);

/// A row that nobody uses.
#[derive(Debug)]
struct Resting {
    row: u32,
    stream_id: StreamId,
    /// Since when, in seconds since the process started.
    since_s: u32,
}

/// Rows that nobody uses, about in the order in which they were used last.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    /// Those of the front that were looked at already, while stale ones are sorted out.
    sifted: VecDeque<Resting>,
    /// The others.
    queue: VecDeque<Resting>,
    due: Duration,
    /// Since when somebody waits for room to make a stream and none has left.
    awaited_since: Option<Duration>,
}

impl Idle {
    fn len(&self) -> usize {
        self.sifted.len() + self.queue.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push(&mut self, resting: Resting) {
        self.queue.push_back(resting);
    }

    fn pop(&mut self) -> Option<Resting> {
        self.sifted.pop_front().or_else(|| self.queue.pop_front())
    }

    /// Puts the first one back.
    fn put_back(&mut self, resting: Resting) {
        self.sifted.push_front(resting);
    }

    /// Drops of the next few those that do not rest. Their order stays.
    fn sift(&mut self, rests: impl Fn(&Resting) -> bool) {
        for _ in 0..SIFTED_AT_ONCE {
            let Some(resting) = self.queue.pop_front() else {
                std::mem::swap(&mut self.queue, &mut self.sifted);
                return;
            };
            if rests(&resting) {
                self.sifted.push_back(resting);
            }
        }
    }
}

/// What becomes of a row that nobody uses.
enum Fate {
    /// It leaves.
    Leaves,
    /// It is used after all, or gone.
    IsUsed,
    /// It goes to the end of the queue.
    StaysBehind,
    /// It stays, and so do those behind it.
    Stays,
}

impl Shard {
    fn seconds(&self) -> u32 {
        u32::try_from(self.now.mono.as_secs()).unwrap_or(u32::MAX)
    }

    /// Notes that nobody uses a row any more.
    #[inline]
    pub(super) fn rest(&mut self, at: u32) {
        let since_s = self.seconds();
        let Some(row) = self.streams.row_mut(at) else { return };
        row.used_at_s = since_s;
        if !std::mem::replace(&mut row.is_resting, true) {
            self.idle.push(Resting { row: at, stream_id: row.stream_id, since_s });
            self.drop_stale();
        }
    }

    /// Drops what the queue has of rows that are gone or in use, once that is more than half of it: a little of it for each row that
    /// comes, for the queue may be as long as there are streams.
    fn drop_stale(&mut self) {
        if self.idle.len() <= 2 * self.streams.len() + LOOKED_AT_MAX {
            return;
        }
        let streams = &self.streams;
        let rests = |resting: &Resting| {
            streams.row(resting.row).is_some_and(|row| row.stream_id == resting.stream_id && row.is_resting)
        };
        self.idle.sift(rests);
    }

    /// Notes that nobody uses any of the rows that recovery found.
    pub(super) fn rest_all(&mut self) {
        for (at, row) in self.streams.rows_mut() {
            row.is_resting = true;
            self.idle.push(Resting { row: at, stream_id: row.stream_id, since_s: row.used_at_s });
        }
    }

    /// When the shard is to look for rows to forget.
    pub(super) fn eviction_due(&self) -> Option<Duration> {
        (self.streams.len() > self.config.rows_max && !self.idle.is_empty()).then_some(self.idle.due)
    }

    /// Whether there are more rows than there may be by one part in `parts` of those.
    fn has_more_by(&self, parts: usize) -> bool {
        let rows_max = self.config.rows_max.max(LOOKED_AT_MAX);
        self.streams.len() > rows_max.saturating_add(rows_max / parts)
    }

    /// Whether a stream may be made now; if not, who asked is offered again once others have left.
    ///
    /// # Errors
    /// `resource_exhausted` when none can leave: the store takes nothing, or all of them are in use, or none has left for a while.
    pub(super) fn has_room_for_rows(&mut self) -> Result<bool, Refusal> {
        if !self.has_more_by(2) {
            return Ok(true);
        }
        let in_flight = self.pending.len() + self.standard.pending.len();
        let why = match (self.is_stalled(), self.idle.is_empty() && in_flight == 0) {
            (true, _) => "that the standard store doesn't have yet",
            (false, true) => "that are in use",
            (false, false) if self.now.mono < *self.idle.awaited_since.get_or_insert(self.now.mono) + AWAITED_MAX => {
                return Ok(false);
            }
            (false, false) => "that are in use, or that the standard store doesn't have yet",
        };
        let message = format!("the shard has {} streams in memory {why}", self.streams.len());
        Err(Refusal::new(Reason::ResourceExhausted, message).with_retry_after_ms(STALLED_RETRY_AFTER_MS))
    }

    /// Forgets rows that nobody uses, as long as there are more than there may be.
    pub(super) fn evict(&mut self) {
        if self.eviction_due().is_none_or(|due| due > self.now.mono) {
            return;
        }
        let read: HashSet<u32> = self.readers.jobs.iter().map(|(_, job)| job.row).collect();
        let (mut looked_at, mut gone, mut left) = (0, 0, 0);
        while looked_at < LOOKED_AT_MAX && self.streams.len() > self.config.rows_max {
            let Some(resting) = self.idle.pop() else { break };
            looked_at += 1;
            match self.fate(&resting, &read) {
                Fate::Leaves => {
                    self.leave(resting.row);
                    (gone, left) = (gone + 1, left + 1);
                }
                Fate::IsUsed => gone += 1,
                Fate::StaysBehind => {
                    let since_s = self.streams.row(resting.row).map_or(resting.since_s, |row| row.used_at_s);
                    self.idle.push(Resting { since_s, ..resting });
                }
                Fate::Stays => {
                    self.idle.put_back(resting);
                    break;
                }
            }
        }
        self.idle.due = self.now.mono + if 2 * gone > LOOKED_AT_MAX { LOOK_ON_AFTER } else { LOOK_EVERY };
        if left > 0 && self.idle.awaited_since.take().is_some() {
            self.names.note_room();
        }
    }

    fn leave(&mut self, at: u32) {
        let bucket = self.streams.bucket_of(at);
        if let Some(row) = self.streams.row(at) {
            self.names.note_left(bucket, &row.key);
        }
        self.streams.unname(at);
        self.streams.remove(at);
    }

    fn fate(&mut self, resting: &Resting, read: &HashSet<u32>) -> Fate {
        let Resting { row: at, stream_id, since_s } = *resting;
        let idle_s = if self.has_more_by(4) { IDLE_SECONDS_MIN } else { IDLE_SECONDS };
        let Some(row) = self.streams.row(at).filter(|row| row.stream_id == stream_id) else { return Fate::IsUsed };
        if row.live.is_some() {
            self.rouse(at);
            return Fate::IsUsed;
        }
        let is_buried = self.streams.tombstones.get(row.bucket, &row.key).is_some();
        if row.used_at_s > since_s || is_buried || read.contains(&at) {
            return Fate::StaysBehind;
        }
        // What is behind it rests for less long.
        let has_rested = self.seconds() >= row.used_at_s.saturating_add(idle_s);
        let is_applied = self.is_applied(row) || is_planted(Planted::EvictedUnsettled);
        match (has_rested, is_applied) {
            (true, true) => Fate::Leaves,
            (true, false) => Fate::StaysBehind,
            (false, _) => Fate::Stays,
        }
    }

    /// Notes that a row is in use: it comes back when it is used no more.
    fn rouse(&mut self, at: u32) {
        if let Some(row) = self.streams.row_mut(at) {
            row.is_resting = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_rows_leave_the_queue_little_by_little_and_the_others_keep_their_order() {
        let mut idle = Idle::default();
        let resting = |row| Resting { row, stream_id: StreamId::default(), since_s: row };
        (0..40).for_each(|row| idle.push(resting(row)));
        assert_eq!(idle.pop().map(|first| first.row), Some(0));
        idle.put_back(resting(0));
        for row in 40..60 {
            let before = idle.len();
            idle.sift(|resting| resting.row % 2 == 0);
            assert!(before - idle.len() <= SIFTED_AT_ONCE);
            idle.push(resting(row));
        }
        idle.queue.retain(|resting| resting.row % 2 == 0);
        let left: Vec<u32> = std::iter::from_fn(|| idle.pop()).map(|resting| resting.row).collect();
        assert_eq!(left, (0..60).step_by(2).collect::<Vec<_>>());
    }
}
