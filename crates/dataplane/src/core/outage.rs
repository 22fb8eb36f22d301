//! What becomes of what waits for the standard store while that takes nothing?
//!
//! New entries are refused as long as it does. Those under way may still become durable, so they stay; who waits for them is told
//! so once they have waited long enough, and so is whoever asks for more that stands on them. Their state is as it was: a batch
//! that is sent again under its number finds the first one, and what enters later comes behind it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use wire::config::Class;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::commit::{Answering, NO_ROW, PendingQueue, Tail, To};
use super::row::Row;
use super::shard::Shard;
use super::world::World;

/// What a refusal for want of the standard store tells a client to wait, in milliseconds.
pub(super) const STALLED_RETRY_AFTER_MS: u64 = 1_000;

/// The store takes nothing.
#[derive(Debug)]
pub(super) struct Stalled {
    pub(super) why: Arc<str>,
    /// When who waits for what is under way is told.
    gives_up_at: Duration,
    has_given_up: bool,
}

impl Stalled {
    /// What is not under way yet is refused: nothing comes of it.
    pub(super) fn refusal(&self) -> Refusal {
        let message = format!("the standard store takes no chunks now: {}", self.why);
        Refusal::new(Reason::Unavailable, message).with_retry_after_ms(STALLED_RETRY_AFTER_MS)
    }

    /// What is under way may still take effect.
    fn ambiguous(&self) -> Refusal {
        let message = format!(
            "the standard store takes no chunks now ({}): what was sent may take effect once it does, so read back before it \
             is sent again as something new",
            self.why
        );
        Refusal::new(Reason::Unavailable, message).with_retry_after_ms(STALLED_RETRY_AFTER_MS)
    }
}

impl Shard {
    /// Whether the store takes chunks has changed, or why it does not.
    pub(super) fn on_stall(&mut self, why: Option<Arc<str>>) {
        let before = self.standard.stalled.take();
        self.standard.stalled = why.map(|why| match before {
            Some(stalled) => Stalled { why, ..stalled },
            None => {
                let gives_up_at = self.now.mono + self.config.standard_patience;
                Stalled { why, gives_up_at, has_given_up: false }
            }
        });
    }

    /// When [`Shard::give_up_waiting`] is due.
    pub(super) fn gives_up_at(&self) -> Option<Duration> {
        let stalled = self.standard.stalled.as_ref()?;
        (!stalled.has_given_up).then_some(stalled.gives_up_at)
    }

    /// Whether who waits for this lane is answered without it.
    pub(super) fn has_given_up(&self) -> bool {
        self.standard.stalled.as_ref().is_some_and(|stalled| stalled.has_given_up)
    }

    /// Answers all that wait for the Standard lane, in its order; what they asked for stays under way.
    pub(super) fn give_up_waiting(&mut self, world: &mut impl World) {
        let Some(stalled) = self.standard.stalled.as_mut() else { return };
        stalled.has_given_up = true;
        let (mut rows, mut answers, mut kept) = (BTreeSet::new(), Vec::new(), PendingQueue::new());
        for mut pending in std::mem::take(&mut self.standard.pending) {
            rows.insert(pending.row);
            let (row, is_alone) = (pending.row, pending.applying.is_none());
            let answer = pending.answer.take_if(|(_, answering)| !self.waits_on(row, answering));
            if answer.is_none() || !is_alone {
                kept.push_back(pending);
            }
            answers.extend(answer.map(|(to, answering)| (row, is_alone, to, answering)));
        }
        self.standard.pending = kept;
        for (row, is_alone, to, answering) in answers {
            if is_alone {
                self.waited(row);
            }
            self.answer_without(row, to, answering, world);
        }
        for row in rows.into_iter().filter(|row| *row != NO_ROW) {
            self.refuse_held_back(row, world);
            self.retire(row);
        }
    }

    /// Whether an answer waits on: what tells of something that is not sure yet and nobody asked for, and what would be the first to
    /// tell of a stream.
    pub(super) fn waits_on(&self, row: u32, answering: &Answering) -> bool {
        match answering {
            Answering::SessionEnded(..) => true,
            Answering::Frame(_) => !self.streams.row(row).is_some_and(Row::is_committed),
            _ => false,
        }
    }

    /// Answers who can't be told more than that it is not known.
    pub(super) fn answer_without(&mut self, row: u32, to: To, answering: Answering, world: &mut impl World) {
        let Some(refusal) = self.standard.stalled.as_ref().map(Stalled::ambiguous) else { return };
        match answering {
            // It holds what is committed, and stands on there being the stream.
            Answering::Frame(frame) => {
                self.answer(row, to, Answering::Frame(frame), world);
            }
            Answering::Opened(session) => {
                self.end_session(session);
                self.sessions.remove(session);
                self.answer(row, to, Answering::Refuse(refusal, Tail::Without), world);
            }
            _ => self.answer(row, to, Answering::Refuse(refusal, Tail::Without), world),
        }
    }

    /// Refuses what a bound of the stream holds back behind what is under way: none of it has entered.
    fn refuse_held_back(&mut self, at: u32, world: &mut impl World) {
        let Some(refusal) = self.standard.stalled.as_ref().map(Stalled::refusal) else { return };
        let live = self.streams.row_mut(at).and_then(|row| row.live.as_mut());
        let Some(live) = live.filter(|live| live.config.class == Class::Standard) else { return };
        for held in std::mem::take(&mut live.held) {
            self.held_bytes -= held.batch.len();
            self.counts.refused += 1;
            self.note_refused(held.to, &refusal);
            self.answer(at, held.to, Answering::Refuse(refusal.clone(), Tail::Without), world);
        }
    }
}
