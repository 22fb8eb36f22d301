//! How a stream's configuration changes; a change of class also moves it from one lane to the other.
//!
//! A move lets nothing new enter, waits until nothing of the stream is in flight and, towards the standard store, until all
//! of it is settled. Its one entry goes to the Standard lane in both directions; once that is durable, the stream goes on in
//! its new lane. Whoever asks is blocked meanwhile: it is offered again, and that carries the move on. When it is not, the
//! move lapses and nothing has changed.

use std::sync::Arc;
use std::time::Duration;

use express_log::RoomClass;
use failpoints::Point;
use wire::entry::Verb;
use wire::handoff::ToControl;
use wire::message::StreamReconfigure;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::append::live_of;
use super::commit::{Answering, Applying, Tail, To};
use super::lane::Lane;
use super::live::Moving;
use super::shard::Shard;
use super::verbs::{Entering, deleted_meanwhile};
use super::world::{Flow, World};
use crate::planted::{Planted, is_planted};

/// A move that nobody has asked for again for so long has lapsed.
const LAPSES_AFTER: Duration = Duration::from_secs(1);
/// How long a stream may take to come to rest.
const REST_WITHIN: Duration = Duration::from_secs(10);
/// What a refusal of a move tells a client to wait, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;

fn handed_off() -> Refusal {
    Refusal::new(Reason::Unavailable, "the stream was handed off to a new configuration: open it again")
}

impl Shard {
    /// Change a stream's configuration.
    pub(super) fn reconfigure(
        &mut self,
        to: To,
        change: &StreamReconfigure,
        world: &mut impl World,
    ) -> Result<Flow, Refusal> {
        let Some(row) = self.find(&change.address, world)? else { return Ok(Flow::Blocked) };
        let Some(state) = self.streams.row_mut(row) else { return Err(deleted_meanwhile()) };
        let before = state.live.as_ref().map_or(&state.config, |live| &live.config);
        let after = change.config.apply(before);
        let (hands_off, moves) = (before.needs_hand_off(&after), before.class != after.class);
        let is_same = after == **before;
        if let Err(error) = after.check_over(state.has_uncapped) {
            let refused = Answering::Refuse(error.into(), Tail::Without);
            self.answer_after(row, to, refused, world);
            return Ok(Flow::Done);
        }
        if is_same {
            self.answer_after(row, to, Answering::Info, world);
            return Ok(Flow::Done);
        }
        if moves && self.bring_to_rest(row, Lane::from(after.class), world)? == Flow::Blocked {
            return Ok(Flow::Blocked);
        }
        let config = self.streams.share(&after);
        if moves {
            world.reach(Point::MoveCommit);
        }
        let entering = Entering {
            row,
            verb: Verb::Reconfigure { config: after },
            applying: Applying::Reconfigure(Arc::clone(&config)),
            answer: Some((to, Answering::Info)),
            moves,
        };
        if self.enter(entering, RoomClass::Control, world)? == Flow::Blocked {
            return Ok(Flow::Blocked);
        }
        if let Some(state) = self.streams.row_mut(row) {
            let live = live_of(state);
            live.config = config;
            if moves {
                live.moving = Some(Moving::Entered);
            }
        }
        if hands_off {
            self.end_sessions(row, |_| Some(handed_off()), world);
            self.holding.push(row);
        }
        Ok(Flow::Done)
    }

    /// Carries a move on until its entry may enter.
    fn bring_to_rest(&mut self, row: u32, to: Lane, world: &mut impl World) -> Result<Flow, Refusal> {
        if let Some(refusal) = self.standard.stalled() {
            self.end_move(row);
            return Err(refusal);
        }
        let now = self.now.mono;
        let is_applied = self.streams.row(row).is_some_and(|state| self.is_applied(state));
        let Some(state) = self.streams.row_mut(row) else { return Err(deleted_meanwhile()) };
        let live = live_of(state);
        let (since, mut has_flushed) = match live.moving {
            Some(Moving::Entered) => return Ok(Flow::Blocked),
            Some(Moving::Resting { since, lapses, has_flushed }) if now < lapses => (since, has_flushed),
            Some(Moving::Resting { .. }) | None => (now, false),
        };
        let in_flight = live.in_flight;
        if now >= since + REST_WITHIN {
            self.end_move(row);
            let what = if in_flight > 0 { format!("{in_flight} of its entries are") } else { "it is".to_owned() };
            let message = format!(
                "the stream was held for 10 s, and {what} not in the standard store yet: its class is what it was"
            );
            return Err(Refusal::new(Reason::Unavailable, message).with_retry_after_ms(RETRY_AFTER_MS));
        }
        let is_applied = is_applied || is_planted(Planted::LaneNotRested);
        let waits_for_store = in_flight == 0 && to == Lane::Standard && !is_applied;
        if waits_for_store && !has_flushed {
            has_flushed = world.to_control(ToControl::Flush).is_ok();
        }
        world.reach(if waits_for_store { Point::MoveFlush } else { Point::MoveRest });
        live.moving = Some(Moving::Resting { since, lapses: now + LAPSES_AFTER, has_flushed });
        if in_flight == 0 && !waits_for_store {
            return Ok(Flow::Done);
        }
        // Should it lapse, somebody has to look.
        self.retire(row);
        Ok(Flow::Blocked)
    }

    /// Gives a move up whose entry has not entered: what it held back goes on.
    fn end_move(&mut self, row: u32) {
        let live = self.streams.row_mut(row).and_then(|state| state.live.as_mut());
        if live.is_some_and(|live| live.moving.take_if(|moving| *moving != Moving::Entered).is_some()) {
            self.throttle(row, Duration::ZERO);
        }
    }
}
