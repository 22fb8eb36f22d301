//! What retention trims and deletes: control says what, the shard enters it among the stream's other entries.

use std::collections::VecDeque;
use std::time::Duration;

use express_log::RoomClass;
use wire::entry::Verb;
use wire::ids::{BucketId, Rev, SeqNum, StreamId};
use wire::names::Key;
use wire::refusal::Refusal;

use super::append::live_of;
use super::commit::Applying;
use super::names::Named;
use super::shard::Shard;
use super::verbs::Entering;
use super::world::{Flow, World};

/// Trims that wait; with as many the oldest is dropped, for retention asks again.
const WANTED_MAX: usize = 4_096;
/// Trims that are looked at in one turn.
const TURN_MAX: usize = 64;
/// How soon a trim that could not be entered is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What retention wants of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    /// It keeps nothing below this.
    Trim(SeqNum),
    /// It goes, if this is its last entry and it holds no record.
    DeleteEmpty(Rev),
}

/// A stream of which retention wants something.
#[derive(Debug)]
pub(super) struct Expired {
    pub(super) bucket: BucketId,
    pub(super) key: Key,
    pub(super) stream_id: StreamId,
    pub(super) what: Expiry,
}

/// Trims that are wanted.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    wanted: VecDeque<Expired>,
    due: Duration,
}

impl Shard {
    /// Retention wants something of a stream.
    pub(super) fn on_expired(&mut self, expired: Expired, world: &mut impl World) {
        if self.retention.wanted.len() >= WANTED_MAX {
            self.retention.wanted.pop_front();
        }
        self.retention.wanted.push_back(expired);
        self.trim_wanted(world);
    }

    /// When the trims that wait are to be looked at.
    pub(super) fn trims_due(&self) -> Option<Duration> {
        (!self.retention.wanted.is_empty()).then_some(self.retention.due)
    }

    /// Enters what can be entered now.
    pub(super) fn trim_wanted(&mut self, world: &mut impl World) {
        self.retention.due = self.now.mono + LOOK_EVERY;
        for _ in 0..self.retention.wanted.len().min(TURN_MAX) {
            let Some(expired) = self.retention.wanted.pop_front() else { return };
            if self.expire(&expired, world) == Flow::Blocked {
                self.retention.wanted.push_back(expired);
            }
        }
    }

    /// One that can't be entered for another reason than that it has to wait is dropped: retention asks again.
    fn expire(&mut self, expired: &Expired, world: &mut impl World) -> Flow {
        let row = match self.look_up(expired.bucket, &expired.key, world) {
            Ok(Named::Row(row)) => row,
            Ok(Named::Unknown) => return Flow::Blocked,
            Ok(Named::Nothing) | Err(_) => return Flow::Done,
        };
        let Some(state) = self.streams.row_mut(row).filter(|state| state.stream_id == expired.stream_id) else {
            return Flow::Done;
        };
        let (next, trim_point, rev) = match state.live.as_deref() {
            Some(live) => (live.next, live.trim_point, live.rev),
            None => (state.tail.seq_num, state.trim_point, state.rev),
        };
        let entered = match expired.what {
            Expiry::Trim(to) if to.min(next) > trim_point => self.enter_trim(row, to.min(next), world),
            Expiry::DeleteEmpty(last) if last == rev && trim_point >= next => self.delete_row(row, None, world),
            Expiry::Trim(_) | Expiry::DeleteEmpty(_) => return Flow::Done,
        };
        entered.unwrap_or_else(|refusal| {
            tracing::debug!(stream = %expired.stream_id, %refusal, "what retention wants was not entered");
            Flow::Done
        })
    }

    fn enter_trim(&mut self, row: u32, to: SeqNum, world: &mut impl World) -> Result<Flow, Refusal> {
        let entering = Entering::new(row, Verb::Trim { to }, Applying::Trim(to));
        let flow = self.enter(entering, RoomClass::Control, world)?;
        if flow == Flow::Done
            && let Some(state) = self.streams.row_mut(row)
        {
            live_of(state).trim_point = to;
        }
        Ok(flow)
    }
}
