//! Which streams leave memory: those that nobody uses, that the index has, when there are more than there may be.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use wire::ids::StreamId;

use super::shard::Shard;

/// How long a stream stays that nobody uses.
const IDLE_SECONDS: u32 = 10;
/// Rows that are looked at in one turn.
const LOOKED_AT_MAX: usize = 4_096;
/// How soon the shard looks again when it has too many.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Rows that nobody uses, about in the order in which they were used last.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    queue: VecDeque<(u32, StreamId)>,
    due: Duration,
}

impl Shard {
    fn seconds(&self) -> u32 {
        u32::try_from(self.now.mono.as_secs()).unwrap_or(u32::MAX)
    }

    /// Notes that nobody uses a row any more.
    #[inline]
    pub(super) fn rest(&mut self, at: u32) {
        let seconds = self.seconds();
        let Some(row) = self.streams.row_mut(at) else { return };
        row.used_at_s = seconds;
        if !std::mem::replace(&mut row.is_resting, true) {
            self.idle.queue.push_back((at, row.stream_id));
        }
    }

    /// Notes that nobody uses any of the rows that recovery found.
    pub(super) fn rest_all(&mut self) {
        for (at, row) in self.streams.rows_mut() {
            row.is_resting = true;
            self.idle.queue.push_back((at, row.stream_id));
        }
    }

    /// When the shard is to look for rows to forget.
    pub(super) fn eviction_due(&self) -> Option<Duration> {
        (self.streams.len() > self.config.rows_max && !self.idle.queue.is_empty()).then_some(self.idle.due)
    }

    /// Forgets rows that nobody uses, as long as there are more than there may be.
    pub(super) fn evict(&mut self) {
        if self.eviction_due().is_none_or(|due| due > self.now.mono) {
            return;
        }
        self.idle.due = self.now.mono + LOOK_EVERY;
        let read: HashSet<u32> = self.readers.jobs.iter().map(|(_, job)| job.row).collect();
        for _ in 0..self.idle.queue.len().min(LOOKED_AT_MAX) {
            if self.streams.len() <= self.config.rows_max {
                return;
            }
            let Some((at, stream_id)) = self.idle.queue.pop_front() else { return };
            if self.streams.row(at).is_none_or(|row| row.stream_id != stream_id) {
                continue;
            }
            if self.live(at).is_some() {
                self.rouse(at);
            } else if read.contains(&at) || !self.may_go(at) {
                self.idle.queue.push_back((at, stream_id));
            } else {
                self.names.note_evicted(self.streams.bucket_of(at));
                self.streams.unname(at);
                self.streams.remove(at);
            }
        }
    }

    /// Notes that a row is in use: it comes back when it is used no more.
    fn rouse(&mut self, at: u32) {
        if let Some(row) = self.streams.row_mut(at) {
            row.is_resting = false;
        }
    }

    /// Whether the index tells all of a row, and has told it long enough.
    fn may_go(&self, at: u32) -> bool {
        let Some(row) = self.streams.row(at) else { return false };
        let has_rested = self.seconds() >= row.used_at_s.saturating_add(IDLE_SECONDS);
        has_rested && self.is_applied(row) && self.streams.tombstones.get(row.bucket, &row.key).is_none()
    }
}
