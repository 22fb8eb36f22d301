//! How a batch is admitted: judged at the assignment cursor, written to the log, answered once it is durable.

use std::time::Duration;

use express_log::{EntryPos, NoRoom, RoomClass};
use wire::batch::VerifiedBatch;
use wire::config::Class;
use wire::dedupe::{Answer, Seen, is_remembered};
use wire::entry::{self, BatchHead, Effect, Numbered, Place, Stamping};
use wire::handoff::ParcelItem;
use wire::hot::{Ack, AppendHead};
use wire::ids::{BatchNo, Lsn, ProducerId, SeqNum};
use wire::message::AppendOnce;
use wire::names::FencingToken;
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::star_detail::Operation;
use wire::terms::Terms;

use super::commit::{Answering, Applying, Tail, To};
use super::judge::{judge_installed, judge_stamps, judge_token};
use super::lane::{Lane, STANDARD_LOG, Shut, StandardLane};
use super::live::Live;
use super::ring::Ring;
use super::row::{CommittedBatch, Row};
use super::session::Phase;
use super::shard::Shard;
use super::timings::Asked;
use super::world::{ConnId, Flow, World};
use crate::planted::{Planted, is_planted};

/// What a refusal for want of log room tells a client to wait, in milliseconds.
pub(super) const FULL_RETRY_AFTER_MS: u64 = 1_000;

/// A batch on its way in.
pub(crate) struct Incoming<'a> {
    /// Who is answered.
    pub(crate) to: To,
    /// Who numbered it.
    pub(crate) numbered: Numbered,
    /// The expected sequence number.
    pub(crate) match_seq_num: Option<SeqNum>,
    /// On which terms.
    pub(crate) terms: &'a Terms,
    /// The token presented by a one-shot; a session's was judged when it opened.
    pub(crate) presented: &'a FencingToken,
    /// The batch.
    pub(crate) batch: VerifiedBatch<'a>,
    /// The session's epoch; zero for a one-shot.
    pub(crate) session_epoch: u32,
}

/// What becomes of a batch.
pub(super) enum Judgement {
    /// It goes in, by this lane.
    Admit(Lane),
    /// It was stored before.
    Again(Answer),
    /// It is refused, once what it was judged on is durable.
    Refuse(Refusal, Tail),
    /// A bound of the stream holds it back, for this long if time alone helps.
    Hold(Option<Duration>),
}

impl Shard {
    /// A batch of a session.
    pub(crate) fn on_append(&mut self, conn: ConnId, head: &[u8], payload: &[u8], world: &mut impl World) -> Flow {
        if self.is_behind() {
            return Flow::Blocked;
        }
        self.now = world.now();
        let (head, terms) = match AppendHead::decode_on_terms(head) {
            Ok(decoded) => decoded,
            Err(refusal) => {
                if let Some(out) = world.out(conn) {
                    out.refuse(0, refusal);
                }
                return Flow::Done;
            }
        };
        let window = self.config.append_window;
        let Some((session, state)) = self.sessions.held_by(conn, head.session) else {
            if let Some(out) = world.out(conn) {
                let refusal =
                    Refusal::new(Reason::NotFound, format!("this connection has no session {}", head.session));
                out.message(&wire::message::AppendRefused { session: head.session, no: head.no, refusal }, 0);
            }
            return Flow::Done;
        };
        let asked = Asked::new(Operation::Append, world.received_at());
        let to = To::Session { session, no: head.no, asked };
        let verdict = if let Phase::Ended(refusal) = &state.phase {
            Err(refusal.clone())
        } else if let Some(refusal) = state.broken_chain(&terms) {
            Err(refusal.clone())
        } else if state.in_flight >= window {
            let message = format!("the session has {window} batches in flight, which is its window");
            Err(Refusal::new(Reason::ResourceExhausted, message))
        } else {
            VerifiedBatch::verify(payload, head.batch_crc).map_err(Refusal::from)
        };
        let (row, producer, session_epoch) = (state.row, state.producer, state.epoch);
        state.in_flight += 1;
        let batch = match verdict {
            Ok(batch) => batch,
            Err(refusal) => {
                self.counts.refused += 1;
                self.answer_after(row, to, Answering::Refuse(refusal, Tail::Without), world);
                return Flow::Done;
            }
        };
        let incoming = Incoming {
            to,
            numbered: Numbered { producer, no: head.no, one_shot: false },
            match_seq_num: head.match_seq_num,
            terms: &terms,
            presented: &FencingToken::default(),
            batch,
            session_epoch,
        };
        let flow = self.take_in(row, &incoming, world);
        if flow == Flow::Blocked
            && let Some(state) = self.sessions.get_mut(session)
        {
            state.in_flight -= 1;
        }
        flow
    }

    /// A batch outside of any session.
    pub(super) fn append_once(
        &mut self,
        to: To,
        once: AppendOnce,
        payload: &[u8],
        world: &mut impl World,
    ) -> Result<Flow, Refusal> {
        let batch = VerifiedBatch::verify(payload, once.batch_crc)?;
        let Some(row) = self.find_or_create(&once.address, |bucket| bucket.create_stream_on_append, world)? else {
            return Ok(Flow::Blocked);
        };
        let (high, low) = once.idempotency;
        let numbered =
            Numbered { producer: ProducerId::new(high), no: BatchNo::new(low), one_shot: (high, low) != (0, 0) };
        let incoming = Incoming {
            to,
            numbered,
            match_seq_num: once.match_seq_num,
            terms: &once.terms,
            presented: &once.fencing_token,
            batch,
            session_epoch: 0,
        };
        Ok(self.take_in(row, &incoming, world))
    }

    /// Judges a batch and does what comes of it.
    #[inline]
    pub(super) fn take_in(&mut self, row: u32, incoming: &Incoming<'_>, world: &mut impl World) -> Flow {
        let held_before = self.live(row).is_some_and(|live| !live.held.is_empty());
        let judgement = self.judge(row, incoming, held_before);
        self.conclude(row, incoming, judgement, world)
    }

    /// Does what comes of a batch.
    #[inline]
    pub(super) fn conclude(
        &mut self,
        row: u32,
        incoming: &Incoming<'_>,
        judgement: Judgement,
        world: &mut impl World,
    ) -> Flow {
        match judgement {
            Judgement::Admit(lane) => self.admit((row, lane), incoming, world),
            Judgement::Again(answer) => {
                self.counts.deduped += 1;
                let ack = Ack {
                    no: answer.no,
                    start: answer.start,
                    records: u32::from(answer.records),
                    last_ms: answer.last_ms,
                };
                let Some(state) = self.streams.row(row) else { return Flow::Done };
                // One of the other lane is durable, or nothing would be in flight in this one.
                let (class, after) = match state.live.as_deref() {
                    Some(live) => (live.config.class, (live.lane, live.last_lsn.min(answer.lsn))),
                    None => (state.config.class, (Lane::Express, Lsn::ZERO)),
                };
                let after = if is_planted(Planted::ResendAckedTooSoon) { (after.0, Lsn::ZERO) } else { after };
                self.answer_at(after, row, (incoming.to, Answering::Ack(ack, class)), world);
                self.close_acks(world);
                Flow::Done
            }
            Judgement::Refuse(refusal, tail) => {
                self.counts.refused += 1;
                self.answer_after(row, incoming.to, Answering::Refuse(refusal, tail), world);
                Flow::Done
            }
            Judgement::Hold(wait) => self.hold(row, incoming, wait, world),
        }
    }

    pub(super) fn judge(&mut self, at: u32, incoming: &Incoming<'_>, held_before: bool) -> Judgement {
        let now = self.now.mono;
        let sessions = &self.sessions;
        let Some(row) = self.streams.row_mut(at) else { unreachable!("sessions end before their row goes") };
        if let Some(again) = judge_resend(row, incoming) {
            return again;
        }
        if held_before {
            return Judgement::Hold(None);
        }
        let committed = row.tail.seq_num;
        let live = live_of(row);
        if let Some(wait) = live.held_for_move(now) {
            return Judgement::Hold(wait);
        }
        if let To::Call(_) = incoming.to
            && let Err(refusal) = judge_token(live, incoming.presented, |session| sessions.get(*session).is_some())
        {
            return Judgement::Refuse(refusal, Tail::Without);
        }
        if let Some(installed) = &incoming.terms.installed
            && let Err(refusal) = judge_installed(live, installed)
        {
            return Judgement::Refuse(refusal, Tail::Without);
        }
        if let Some(expected) = incoming.match_seq_num
            && expected != if is_planted(Planted::MatchOnCommitted) { committed } else { live.next }
        {
            let message = format!("the batch expects sequence number {expected}, the next one is {}", live.next);
            return Judgement::Refuse(Refusal::new(Reason::SequenceMismatch, message), Tail::With);
        }
        if let Err(refusal) = judge_stamps(&live.config, &incoming.batch, incoming.terms) {
            return Judgement::Refuse(refusal, Tail::Without);
        }
        if live.has_gathered_enough(incoming.batch.content_bytes(), incoming.batch.records()) {
            return Judgement::Hold(None);
        }
        match live.allowance.wait(live.config.throughput_max_bytes_per_second, now) {
            Some(wait) => Judgement::Hold(Some(wait)),
            None => Judgement::Admit(Lane::from(live.config.class)),
        }
    }

    /// What becomes of a batch that its lane takes not now, if it doesn't.
    #[inline]
    fn shut_out(
        &mut self,
        (at, lane): (u32, Lane),
        incoming: &Incoming<'_>,
        entry_bytes: usize,
        world: &mut impl World,
    ) -> Option<Flow> {
        match self.room(lane, entry_bytes, RoomClass::Data, world) {
            Ok(()) => None,
            Err(Shut::Busy) => Some(Flow::Blocked),
            Err(Shut::Refused(refusal)) => {
                self.counts.refused += 1;
                let answering = Answering::Refuse(refusal, Tail::Without);
                match incoming.to {
                    // It says nothing of what is under way, which may be so for as long as the store is away.
                    To::Call(_) => self.answer_at((lane, Lsn::ZERO), at, (incoming.to, answering), world),
                    To::Session { .. } => self.answer_after(at, incoming.to, answering, world),
                }
                Some(Flow::Done)
            }
        }
    }

    /// Has a batch enter its lane, assigns what it gets, and queues its answer.
    pub(super) fn admit(&mut self, (at, lane): (u32, Lane), incoming: &Incoming<'_>, world: &mut impl World) -> Flow {
        let batch = &incoming.batch;
        let effect = incoming.terms.effect.as_ref();
        let effect_bytes = effect.map_or(0, |effect| effect.to_bytes().len());
        let entry_bytes = entry::batch_entry_bytes(batch.bytes().len()) + effect_bytes;
        if let Some(flow) = self.shut_out((at, lane), incoming, entry_bytes, world) {
            return flow;
        }
        let (epoch, wall_ms) = (self.config.epoch, self.now.wall_ms);
        let Some(row) = self.streams.row_mut(at) else { unreachable!("it was judged") };
        let (stream_id, slot) = (row.stream_id, row.slot);
        let live = live_of(row);
        let stamping = Stamping::of(&live.config, wall_ms, live.previous_ms());
        let head = BatchHead {
            place: Place { stream_id, slot, slot_epoch: epoch, rev: live.rev.next() },
            first: live.next,
            records: batch.records(),
            stamping,
            last_ms: stamping.last(batch),
            numbered: incoming.numbered,
            session_epoch: incoming.session_epoch,
            batch_crc: batch.crc(),
        };
        let start = wire::ids::Position::new(head.first, stamping.effective(batch.stamp(0), stamping.previous_ms));
        let (log, (lsn, pos)) = match lane {
            Lane::Express => {
                world.note_batch(batch.content_bytes(), start.timestamp_ms);
                (self.config.own_log, append_express(world, &mut self.ring, &head, incoming))
            }
            Lane::Standard => {
                let first_ms = start.timestamp_ms;
                (STANDARD_LOG, append_standard(&mut self.standard, (&head, first_ms, entry_bytes), incoming))
            }
        };
        let end = head.end();
        live.next = end.seq_num;
        live.last_ms = end.timestamp_ms;
        live.rev = head.place.rev;
        (live.lane, live.last_lsn) = (lane, lsn);
        live.in_flight += 1;
        live.in_flight_bytes += u64::from(batch.content_bytes());
        live.in_flight_records += u64::from(batch.records());
        live.allowance.take(batch.content_bytes());
        if let Some(effect) = effect {
            live.take_effect(effect);
        }
        row.has_uncapped |= !stamping.capped;
        if is_remembered(incoming.numbered) {
            let answer = Answer {
                no: incoming.numbered.no,
                batch_crc: batch.crc(),
                records: batch.records(),
                start,
                last_ms: end.timestamp_ms,
                lsn,
            };
            row.dedupe.get_or_insert_default().note(incoming.numbered, answer);
        }
        let no = incoming.numbered.no;
        let ack = Ack { no, start, records: u32::from(batch.records()), last_ms: end.timestamp_ms };
        let applying = Applying::Batch(
            CommittedBatch { start, end, content_bytes: batch.content_bytes(), log, pos },
            effect.map(|effect| Box::new(effect.clone())),
        );
        let class = Class::from(lane);
        self.queue((lane, lsn), at, applying, Some((incoming.to, Answering::Ack(ack, class))));
        self.counts.on_admitted(batch);
        if let Some(token) = effect.and_then(Effect::token) {
            self.supersede(at, token, world);
        }
        Flow::Done
    }

    pub(super) fn live(&self, row: u32) -> Option<&Live> {
        self.streams.row(row)?.live.as_deref()
    }
}

/// The live state of a row, made when there is none.
#[inline]
pub(super) fn live_of(row: &mut Row) -> &mut Live {
    if row.live.is_none() {
        row.live = Some(Box::new(Live::of(row)));
    }
    match row.live.as_deref_mut() {
        Some(live) => live,
        None => unreachable!("it was just made"),
    }
}

/// The refusal of a log that is full.
pub(super) fn no_room(full: &NoRoom) -> Refusal {
    let message = format!("the head log takes no more: {full}");
    Refusal::new(Reason::ResourceExhausted, message).with_retry_after_ms(FULL_RETRY_AFTER_MS)
}

/// The refusal of a store whose disk is full.
#[cold]
pub(super) fn store_is_full(full: &NoRoom) -> Refusal {
    let message = format!("the standard store takes no more records: {full}");
    Refusal::new(Reason::ResourceExhausted, message).with_retry_after_ms(FULL_RETRY_AFTER_MS)
}

fn judge_resend(row: &Row, incoming: &Incoming<'_>) -> Option<Judgement> {
    if !is_remembered(incoming.numbered) {
        return None;
    }
    let no = incoming.numbered.no;
    match row.dedupe.as_ref()?.look(incoming.numbered, incoming.batch.crc()) {
        Seen::New => None,
        Seen::Stored(answer) => Some(Judgement::Again(answer)),
        Seen::OtherBytes => {
            let message = format!("batch number {no} of this producer was used for other bytes");
            Some(Judgement::Refuse(Refusal::invalid(message), Tail::Without))
        }
        // Its match tells: had it been stored, the next number would be past it.
        Seen::Refused | Seen::Forgotten if incoming.match_seq_num.is_some() => None,
        Seen::Refused => {
            let message = format!("batch number {no} was refused, and later ones are stored: it would come after them");
            Some(Judgement::Refuse(Refusal::new(Reason::FailedPrecondition, message), Tail::With))
        }
        Seen::Forgotten => {
            let message = format!("batch number {no} is older than what is remembered: it may or may not be stored");
            Some(Judgement::Refuse(Refusal::new(Reason::Internal, message), Tail::With))
        }
    }
}

#[inline]
fn append_express(
    world: &mut impl World,
    ring: &mut Ring,
    head: &BatchHead,
    incoming: &Incoming<'_>,
) -> (Lsn, EntryPos) {
    let batch = incoming.batch.bytes();
    if let Some(effect) = &incoming.terms.effect {
        return append_bytes(world, ring, &entry::encode_batch_with(head, batch, effect));
    }
    let entry_bytes = entry::batch_entry_bytes(batch.len());
    ring.push_with(
        entry_bytes,
        |bytes| entry::encode_batch(head, batch, bytes),
        |bytes| world.append(entry_bytes, |out| out.copy_from_slice(bytes)),
    )
}

fn append_standard(
    standard: &mut StandardLane,
    (head, first_ms, entry_bytes): (&BatchHead, i64, usize),
    incoming: &Incoming<'_>,
) -> (Lsn, EntryPos) {
    let batch = incoming.batch;
    let Place { slot, stream_id, .. } = head.place;
    let bytes = u32::try_from(entry_bytes).unwrap_or_else(|_| unreachable!("an entry is far below 4 GiB"));
    let item = ParcelItem { slot, stream_id, bytes, content_bytes: batch.content_bytes(), first_ms };
    standard.append(item, |out| match &incoming.terms.effect {
        None => entry::encode_batch(head, batch.bytes(), out),
        Some(effect) => out.copy_from_slice(&entry::encode_batch_with(head, batch.bytes(), effect)),
    })
}

/// Appends an entry that is encoded already.
pub(super) fn append_bytes(world: &mut impl World, ring: &mut Ring, entry: &[u8]) -> (Lsn, EntryPos) {
    ring.push_with(
        entry.len(),
        |bytes| bytes.copy_from_slice(entry),
        |bytes| world.append(entry.len(), |out| out.copy_from_slice(bytes)),
    )
}
