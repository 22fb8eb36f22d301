//! Batches that a bound of their stream, or its move to the other lane, holds back: until when, and what becomes of them.

use std::time::Duration;

use wire::batch::VerifiedBatch;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::append::{FULL_RETRY_AFTER_MS, Incoming, Judgement, live_of};
use super::commit::{Answering, Tail, To};
use super::live::Held;
use super::session::Phase;
use super::shard::Shard;
use super::world::{Flow, World};

/// How long a one-shot waits for throughput before it is refused.
const ONE_SHOT_WAIT: Duration = Duration::from_secs(1);
/// How soon held batches are looked at again when only the log was in the way.
const HELD_RETRY: Duration = Duration::from_millis(2);

impl Shard {
    /// Keeps a batch back until a bound of its stream lets it in.
    pub(super) fn hold(
        &mut self,
        at: u32,
        incoming: &Incoming<'_>,
        wait: Option<Duration>,
        world: &mut impl World,
    ) -> Flow {
        let bytes = incoming.batch.bytes();
        if self.held_bytes + bytes.len() > self.config.held_bytes_max {
            let message = format!(
                "the shard holds {} bytes of batches back for bounded streams, and may hold {}",
                self.held_bytes, self.config.held_bytes_max
            );
            let refusal = Refusal::new(Reason::ResourceExhausted, message).with_retry_after_ms(FULL_RETRY_AFTER_MS);
            self.answer_after(at, incoming.to, Answering::Refuse(refusal, Tail::Without), world);
            return Flow::Done;
        }
        self.held_bytes += bytes.len();
        let is_call = matches!(incoming.to, To::Call(_));
        let held = Held {
            to: incoming.to,
            numbered: incoming.numbered,
            match_seq_num: incoming.match_seq_num,
            terms: incoming.terms.clone(),
            presented: incoming.presented.clone(),
            batch: bytes.to_vec(),
            batch_crc: incoming.batch.crc(),
            deadline: is_call.then(|| self.now.mono + ONE_SHOT_WAIT),
        };
        let Some(row) = self.streams.row_mut(at) else { unreachable!("it was judged") };
        live_of(row).held.push_back(held);
        if wait.is_some() || is_call {
            self.throttle(at, wait.map_or(ONE_SHOT_WAIT, |wait| if is_call { wait.min(ONE_SHOT_WAIT) } else { wait }));
        }
        Flow::Done
    }

    /// Lets in what was held back and may go now.
    pub(super) fn release_held(&mut self, world: &mut impl World) {
        while let Some(row) = self.holding.pop() {
            self.release_row(row, world);
            self.retire(row);
        }
        self.close_acks(world);
    }

    fn release_row(&mut self, at: u32, world: &mut impl World) {
        self.expire_held(at, world);
        while let Some(held) = self.pop_held(at) {
            self.held_bytes -= held.batch.len();
            let Some(session_epoch) = self.still_wanted(held.to) else { continue };
            // It was verified when it came in.
            let Ok(batch) = VerifiedBatch::summed(&held.batch, held.batch_crc) else { continue };
            let incoming = Incoming {
                to: held.to,
                numbered: held.numbered,
                match_seq_num: held.match_seq_num,
                terms: &held.terms,
                presented: &held.presented,
                batch,
                session_epoch,
            };
            let wait = match self.judge_held(at, &incoming) {
                Judgement::Hold(wait) => wait,
                Judgement::Admit(lane) if self.admit((at, lane), &incoming, world) == Flow::Done => continue,
                Judgement::Admit(_) => Some(HELD_RETRY),
                // It has had its turn: judged once more, it would queue up behind those that came after it.
                concluded => {
                    let _ = self.conclude(at, &incoming, concluded, world);
                    continue;
                }
            };
            self.held_bytes += held.batch.len();
            let Some(row) = self.streams.row_mut(at) else { return };
            let held_by_row = &mut live_of(row).held;
            held_by_row.push_front(held);
            let deadline = held_by_row.iter().filter_map(|held| held.deadline).min();
            let until_deadline = deadline.map(|deadline| deadline.saturating_sub(self.now.mono));
            // Without either, the next commit of the stream looks again.
            if let Some(wait) = [wait, until_deadline].into_iter().flatten().min() {
                self.throttle(at, wait);
            }
            return;
        }
    }

    fn judge_held(&mut self, at: u32, incoming: &Incoming<'_>) -> Judgement {
        if let To::Session { session, .. } = incoming.to
            && let Some(refusal) = self.sessions.get(session).and_then(|state| state.broken_chain(incoming.terms))
        {
            return Judgement::Refuse(refusal.clone(), Tail::Without);
        }
        self.judge(at, incoming, false)
    }

    /// Refuses the one-shots that have waited as long as they may.
    fn expire_held(&mut self, at: u32, world: &mut impl World) {
        let now = self.now.mono;
        let Some(live) = self.streams.row_mut(at).and_then(|row| row.live.as_mut()) else { return };
        let mut expired = Vec::new();
        live.held.retain(|held| {
            let is_over = held.deadline.is_some_and(|deadline| deadline <= now);
            if is_over {
                expired.push((held.to, held.batch.len()));
            }
            !is_over
        });
        for (to, batch_bytes) in expired {
            self.held_bytes -= batch_bytes;
            let refusal = self.throttled_too_long(at);
            self.answer_after(at, to, Answering::Refuse(refusal, Tail::Without), world);
        }
    }

    fn pop_held(&mut self, at: u32) -> Option<Held> {
        self.streams.row_mut(at)?.live.as_mut()?.held.pop_front()
    }

    /// The session epoch of someone who still waits for an answer.
    fn still_wanted(&self, to: To) -> Option<u32> {
        match to {
            To::Call(_) => Some(0),
            To::Session { session, .. } => {
                self.sessions.get(session).filter(|session| session.phase == Phase::Open).map(|session| session.epoch)
            }
        }
    }

    fn throttled_too_long(&mut self, at: u32) -> Refusal {
        let now = self.now.mono;
        if self.live(at).is_some_and(|live| live.held_for_move(now).is_some()) {
            let message = "the stream's class is being changed, which has taken over a second";
            return Refusal::new(Reason::Unavailable, message).with_retry_after_ms(FULL_RETRY_AFTER_MS);
        }
        let live = self.streams.row_mut(at).map(live_of);
        let rate = live.as_ref().map_or(0, |live| live.config.throughput_max_bytes_per_second);
        let wait = live.and_then(|live| live.allowance.wait(rate, now)).unwrap_or_default();
        let message = format!("the stream takes {rate} bytes a second, and has taken more for over a second");
        let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
        Refusal::new(Reason::ResourceExhausted, message).with_retry_after_ms(retry_after_ms)
    }
}
