//! What retention trims: control says to where, the shard enters it among the stream's other entries.

use std::collections::VecDeque;
use std::time::Duration;

use express_log::RoomClass;
use wire::entry::Verb;
use wire::ids::{BucketId, SeqNum, StreamId};
use wire::names::Key;

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

/// A trim that is wanted.
#[derive(Debug)]
pub(super) struct TrimWanted {
    pub(super) bucket: BucketId,
    pub(super) key: Key,
    pub(super) stream_id: StreamId,
    pub(super) to: SeqNum,
}

/// Trims that are wanted.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    wanted: VecDeque<TrimWanted>,
    due: Duration,
}

impl Shard {
    /// Retention wants a stream trimmed.
    pub(super) fn on_trim_wanted(&mut self, trim: TrimWanted, world: &mut impl World) {
        if self.retention.wanted.len() >= WANTED_MAX {
            self.retention.wanted.pop_front();
        }
        self.retention.wanted.push_back(trim);
        self.trim_wanted(world);
    }

    /// When the trims that wait are to be looked at.
    pub(super) fn trims_due(&self) -> Option<Duration> {
        (!self.retention.wanted.is_empty()).then_some(self.retention.due)
    }

    /// Enters the trims that can be entered now.
    pub(super) fn trim_wanted(&mut self, world: &mut impl World) {
        self.retention.due = self.now.mono + LOOK_EVERY;
        for _ in 0..self.retention.wanted.len().min(TURN_MAX) {
            let Some(trim) = self.retention.wanted.pop_front() else { return };
            if self.trim_one(&trim, world) == Flow::Blocked {
                self.retention.wanted.push_back(trim);
            }
        }
    }

    /// One that can't be entered for another reason than that it has to wait is dropped: retention asks again.
    fn trim_one(&mut self, trim: &TrimWanted, world: &mut impl World) -> Flow {
        let row = match self.look_up(trim.bucket, &trim.key, world) {
            Ok(Named::Row(row)) => row,
            Ok(Named::Unknown) => return Flow::Blocked,
            Ok(Named::Nothing) | Err(_) => return Flow::Done,
        };
        let Some(state) = self.streams.row_mut(row).filter(|state| state.stream_id == trim.stream_id) else {
            return Flow::Done;
        };
        let (next, trim_point) = match state.live.as_deref() {
            Some(live) => (live.next, live.trim_point),
            None => (state.tail.seq_num, state.trim_point),
        };
        let to = trim.to.min(next);
        if to <= trim_point {
            return Flow::Done;
        }
        let entering = Entering::new(row, Verb::Trim { to }, Applying::Trim(to));
        match self.enter(entering, RoomClass::Control, world) {
            Ok(Flow::Blocked) => return Flow::Blocked,
            Ok(Flow::Done) => {}
            Err(refusal) => {
                tracing::debug!(stream = %trim.stream_id, %refusal, "a trim of retention was not entered");
                return Flow::Done;
            }
        }
        if let Some(state) = self.streams.row_mut(row) {
            live_of(state).trim_point = to;
        }
        Flow::Done
    }
}
