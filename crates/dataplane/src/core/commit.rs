//! What waits for a commit, and what a commit does: state moves forward, then everyone is answered in order.

use std::collections::VecDeque;
use std::sync::Arc;

use failpoints::Point;
use smallvec::SmallVec;
use wire::config::{Class, StreamConfig};
use wire::entry::Effect;
use wire::hot::Ack;
use wire::ids::{BatchNo, Lsn, Position, SeqNum};
use wire::message::{
    AppendRefused, Appended, Done, Fenced, Opened, SessionEnded, StreamAnswer, StreamInfo, Token, Trimmed,
};
use wire::names::FencingToken;
use wire::refusal::Refusal;

use super::append::live_of;
use super::lane::Lane;
use super::live::Moving;
use super::row::{CommittedBatch, Row};
use super::session::{self, Phase};
use super::shard::Shard;
use super::streams::apply_effect;
use super::timings::{Asked, Committed};
use super::world::{ConnId, World};
use crate::planted::{Planted, is_planted};

/// A request that is answered once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// From this connection.
    pub(crate) conn: ConnId,
    /// Under this number.
    pub(crate) correlation: u64,
    /// What it is counted as; nothing for what the star says by itself.
    pub(crate) asked: Option<Asked>,
}

/// Who is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To {
    /// A batch of a session.
    Session {
        /// The session.
        session: u32,
        /// The producer's number for the batch.
        no: BatchNo,
        /// When it was received.
        asked: Asked,
    },
    /// A request.
    Call(Call),
}

impl To {
    fn asked(&self) -> Option<Asked> {
        match self {
            Self::Session { asked, .. } => Some(*asked),
            Self::Call(call) => call.asked,
        }
    }
}

/// An answer that is given once what it stands on is durable.
#[derive(Debug)]
pub(crate) enum Answering {
    /// No; with the committed tail as it is then, when asked for.
    Refuse(Refusal, Tail),
    /// A batch is durable, by this class: also the answer to its resend.
    Ack(Ack, Class),
    /// There is nothing more to say.
    Done,
    /// The session is open.
    Opened(u32),
    /// What the stream is.
    Info,
    /// The installed token.
    Token,
    /// The fence holds since this position.
    Fenced(Position),
    /// Where the trim point stands.
    Trimmed,
    /// A session, by its place and its epoch, ended by the star's doing.
    SessionEnded(u32, u32),
    /// A frame that was ready before, for the connection of the call.
    Frame(Vec<u8>),
}

/// Whether a refusal carries the committed tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// It does.
    With,
    /// It doesn't.
    Without,
}

/// What an entry does to its row once it is durable.
#[derive(Debug)]
pub(crate) enum Applying {
    /// Makes it.
    Create,
    /// Adds records.
    Batch(CommittedBatch, Option<Box<Effect>>),
    /// Installs a token.
    Fence(FencingToken),
    /// Moves the trim point.
    Trim(SeqNum),
    /// Changes the configuration.
    Reconfigure(Arc<StreamConfig>),
    /// Gives up the records of this range.
    Gap(SeqNum, SeqNum),
    /// Deletes it.
    Delete,
}

/// One thing that happens at a commit.
#[derive(Debug)]
pub(crate) struct Pending {
    /// When this is durable.
    pub(crate) lsn: Lsn,
    /// The row it is about; [`NO_ROW`] for none.
    pub(crate) row: u32,
    /// What becomes visible.
    pub(crate) applying: Option<Applying>,
    /// Who is answered what.
    pub(crate) answer: Option<(To, Answering)>,
}

/// Stands for no row.
pub(crate) const NO_ROW: u32 = u32::MAX;

/// What waits for a lane, in its order.
pub(crate) type PendingQueue = VecDeque<Pending>;

impl Shard {
    /// The log has made everything up to `lsn` durable.
    pub(crate) fn on_durable(&mut self, lsn: Lsn, world: &mut impl World) {
        self.now = world.now();
        self.commit::<false>(lsn, world);
    }

    /// A lane, the Standard one or the Express one, is durable up to `lsn`.
    pub(super) fn commit<const STANDARD: bool>(&mut self, lsn: Lsn, world: &mut impl World) {
        let commit = Committed::new(self.now.mono, world.commit_times());
        loop {
            let queue = if STANDARD { &mut self.standard.pending } else { &mut self.pending };
            if queue.front().is_none_or(|pending| pending.lsn > lsn) {
                break;
            }
            if is_planted(Planted::OutOfOrder) {
                let due = queue.iter().take_while(|pending| pending.lsn <= lsn).count();
                queue.swap(0, due - 1);
            }
            let Some(Pending { lsn: entered, row, applying, answer }) = queue.pop_front() else { break };
            if matches!(applying, Some(Applying::Reconfigure(_))) {
                world.reach(Point::MoveReopen);
            }
            match applying {
                Some(applying) => self.apply(row, applying),
                None => self.waited(row),
            }
            if let Some((to, answering)) = answer {
                self.note_committed::<STANDARD>(to.asked(), entered, &commit);
                self.give(row, to, answering, world);
            }
            self.retire(row);
        }
        self.timings.end_commit(&commit);
        self.close_acks(world);
        self.pump_woken(world);
        self.release_held(world);
    }

    /// Counts an answer that waited for this entry of a lane.
    #[inline]
    fn note_committed<const STANDARD: bool>(&mut self, asked: Option<Asked>, entered: Lsn, commit: &Committed) {
        match asked {
            Some(asked) if STANDARD => self.timings.put(asked, self.standard.given_at(entered), self.now.mono),
            Some(asked) => self.timings.committed(asked, commit),
            None => {}
        }
    }

    /// An answer that a row waited for is due.
    pub(super) fn waited(&mut self, at: u32) {
        if let Some(live) = self.streams.row_mut(at).and_then(|row| row.live.as_mut()) {
            live.waiting -= 1;
        }
    }

    /// Ends the ack frames that this turn has opened.
    pub(crate) fn close_acks(&mut self, world: &mut impl World) {
        for conn in self.acked.drain(..) {
            if let Some(out) = world.out(conn) {
                out.close_acks();
            }
        }
    }

    /// Lets an entry that is durable take effect.
    fn apply(&mut self, at: u32, applying: Applying) {
        let epoch = self.config.epoch;
        let Some(row) = self.streams.row_mut(at) else { unreachable!("a row outlives its entries") };
        row.rev = row.rev.next();
        row.epoch = epoch;
        let Some(live) = row.live.as_mut() else { unreachable!("a stream with entries in flight is live") };
        live.in_flight -= 1;
        match applying {
            Applying::Batch(batch, effect) => {
                live.in_flight_bytes -= u64::from(batch.content_bytes);
                live.in_flight_records -= batch.end.seq_num.since(batch.start.seq_num);
                if !live.held.is_empty() {
                    self.holding.push(at);
                }
                self.woken.extend(live.subscriptions.drain(..));
                let is_first = row.apply_batch(&batch);
                self.heaviest.note(at, row.stream_id, batch.content_bytes);
                if let Some(effect) = effect {
                    apply_effect(row, &effect);
                }
                if is_first {
                    self.streams.touch(batch.log, batch.pos.segment, at);
                }
            }
            Applying::Create => self.woken.extend(live.subscriptions.drain(..)),
            Applying::Fence(token) => row.apply_token(&token),
            Applying::Trim(to) => row.apply_trim(to),
            Applying::Reconfigure(config) => {
                row.config = config;
                if live.moving.take_if(|moving| *moving == Moving::Entered).is_some() {
                    self.holding.push(at);
                }
            }
            Applying::Gap(from, to) => {
                self.woken.extend(live.subscriptions.drain(..));
                row.apply_gap(from, to);
            }
            Applying::Delete => self.end_subscriptions(at),
        }
    }

    /// Answers now.
    pub(crate) fn answer(&mut self, row: u32, to: To, answering: Answering, world: &mut impl World) {
        self.note_answered(to.asked());
        self.give(row, to, answering, world);
    }

    /// Counts an answer that waits for no commit.
    pub(super) fn note_answered(&mut self, asked: Option<Asked>) {
        if let Some(asked) = asked {
            self.timings.waited(asked, self.now.mono);
        }
    }

    fn give(&mut self, row: u32, to: To, answering: Answering, world: &mut impl World) {
        match answering {
            Answering::Ack(ack, class) => self.answer_ack(row, to, (&ack, class), world),
            Answering::Refuse(mut refusal, tail) => {
                if let (Tail::With, Some(row)) = (tail, self.streams.row(row)) {
                    refusal = refusal.with_tail(row.tail);
                }
                self.answer_refusal(to, refusal, world);
            }
            Answering::SessionEnded(session, epoch) => self.answer_ended(session, epoch, world),
            other => {
                let To::Call(call) = to else { unreachable!("only calls are answered so") };
                self.answer_call(row, call, other, world);
            }
        }
    }

    #[inline]
    fn answer_ack(&mut self, row: u32, to: To, (ack, class): (&Ack, Class), world: &mut impl World) {
        let Some(tail) = self.streams.row(row).map(|row| row.tail) else { return };
        match to {
            To::Session { session, .. } => {
                let Some(state) = self.sessions.get_mut(session) else { return };
                state.in_flight -= 1;
                let conn = state.conn;
                let handle = session::handle(self.config.shard, session);
                let closes = state.in_flight == 0 && (state.closing.is_some() || state.is_gone);
                if world.out(conn).is_some_and(|out| out.ack(handle, class, tail, ack)) {
                    self.acked.push(conn);
                }
                if closes {
                    self.finish_close(session, world);
                }
            }
            To::Call(Call { conn, correlation, .. }) => {
                let appended = Appended { start: ack.start, end: ack.end(), tail, class };
                if let Some(out) = world.out(conn) {
                    out.message(&appended, correlation);
                }
            }
        }
    }

    fn answer_refusal(&mut self, to: To, refusal: Refusal, world: &mut impl World) {
        match to {
            To::Session { session, no, .. } => {
                let Some(state) = self.sessions.get_mut(session) else { return };
                state.in_flight -= 1;
                let closes = state.in_flight == 0 && (state.closing.is_some() || state.is_gone);
                let handle = session::handle(self.config.shard, session);
                if let Some(out) = world.out(state.conn) {
                    out.message(&AppendRefused { session: handle, no, refusal }, 0);
                }
                if closes {
                    self.finish_close(session, world);
                }
            }
            To::Call(Call { conn, correlation, .. }) => {
                if let Some(out) = world.out(conn) {
                    out.refuse(correlation, refusal);
                }
            }
        }
    }

    fn answer_ended(&mut self, session: u32, epoch: u32, world: &mut impl World) {
        // One that was closed meanwhile may have left its place to another.
        let Some(state) = self.sessions.get(session).filter(|state| state.epoch == epoch) else { return };
        let Phase::Ended(refusal) = &state.phase else { return };
        let closes = state.in_flight == 0 && state.closing.is_some();
        let ended = SessionEnded { session: session::handle(self.config.shard, session), refusal: refusal.clone() };
        if let Some(out) = world.out(state.conn) {
            out.message(&ended, 0);
        }
        if closes {
            // What it waited for was held back and is gone with the session.
            self.finish_close(session, world);
        }
    }

    fn answer_call(&self, row: u32, call: Call, answering: Answering, world: &mut impl World) {
        let Call { conn, correlation, .. } = call;
        let row_state = self.streams.row(row);
        let Some(out) = world.out(conn) else { return };
        match (answering, row_state) {
            (Answering::Done, _) => out.message(&Done {}, correlation),
            (Answering::Frame(frame), _) => out.frames(&frame),
            (Answering::Fenced(tail), _) => out.message(&Fenced { tail }, correlation),
            (Answering::Info, Some(row)) => out.message(&StreamAnswer { stream: self.info(row) }, correlation),
            (Answering::Token, Some(row)) => out.message(&Token { fencing_token: row.token() }, correlation),
            (Answering::Trimmed, Some(row)) => out.message(&Trimmed { trim_point: row.trim_point }, correlation),
            (Answering::Opened(session), Some(row)) => {
                let opened = Opened {
                    session: session::handle(self.config.shard, session),
                    stream_id: row.stream_id,
                    slot_epoch: self.config.epoch,
                    tail: row.tail,
                    window: self.config.append_window,
                };
                out.message(&opened, correlation);
            }
            (_, None) => out.refuse(correlation, super::verbs::deleted_meanwhile()),
            (Answering::Ack(..) | Answering::Refuse(..) | Answering::SessionEnded(..), Some(_)) => {
                unreachable!("answered before")
            }
        }
    }

    /// What a client is told of a stream.
    pub(crate) fn info(&self, row: &Row) -> StreamInfo {
        let bucket = self.streams.bucket_id(row.bucket);
        let (Some(bucket), Ok(key)) = (self.bucket_name(bucket), wire::names::Key::new(&row.key)) else {
            unreachable!("a bucket with streams is in the table, and a key was checked")
        };
        StreamInfo {
            stream_id: row.stream_id,
            bucket,
            key,
            config: *row.config,
            tail: row.tail,
            trim_point: row.trim_point,
            settled: self.settled_of(row),
            bytes: row.bytes,
            created_at_ms: row.created_at_ms,
        }
    }

    /// Drops the live state of a row that nothing needs any more, and a deleted row altogether.
    pub(crate) fn retire(&mut self, at: u32) {
        let now = self.now;
        let Some(row) = self.streams.row_mut(at) else { return };
        let Some(live) = row.live.as_mut() else { return };
        if !live.is_idle() {
            return;
        }
        if live.deleted {
            self.streams.remove(at);
            return;
        }
        let rate = live.config.throughput_max_bytes_per_second;
        let is_moving = live.held_for_move(now.mono).is_some();
        if !is_moving && live.allowance.is_full(rate, now.mono) {
            row.entered = row.entered();
            row.live = None;
            self.rest(at);
        } else if !std::mem::replace(&mut live.is_cooling, true) {
            self.cooling.push_back((now.mono + super::shard::COOLING, at, row.stream_id));
        }
    }

    /// Notes that a batch is refused, so that those chained to it are as well.
    pub(super) fn note_refused(&mut self, to: To, refusal: &Refusal) {
        if let To::Session { session, .. } = to
            && let Some(state) = self.sessions.get_mut(session)
        {
            state.refused.get_or_insert_with(|| Box::new(refusal.clone()));
        }
    }

    /// Answers at once when nothing the stream has assigned is in flight, else when it is durable.
    pub(crate) fn answer_after(&mut self, row: u32, to: To, answering: Answering, world: &mut impl World) {
        if let Answering::Refuse(refusal, _) = &answering {
            self.note_refused(to, refusal);
        }
        if is_planted(Planted::RefusedTooSoon) && matches!(answering, Answering::Refuse(..)) {
            return self.answer(row, to, answering, world);
        }
        let live = self.streams.row(row).and_then(|row| row.live.as_ref());
        let after = live.map_or((Lane::Express, Lsn::ZERO), |live| (live.lane, live.last_lsn));
        self.answer_at(after, row, (to, answering), world);
    }

    /// Answers once a lane is durable up to here.
    pub(crate) fn answer_at(
        &mut self,
        (lane, lsn): (Lane, Lsn),
        row: u32,
        answer: (To, Answering),
        world: &mut impl World,
    ) {
        let durable = self.durable(lane, world);
        let is_first = self.pending_of(lane).front().is_none_or(|front| front.lsn > lsn);
        if lsn <= durable && is_first {
            self.answer(row, answer.0, answer.1, world);
            return;
        }
        if lane == Lane::Standard && self.has_given_up() && !self.waits_on(row, &answer.1) {
            self.answer_without(row, answer.0, answer.1, world);
            return;
        }
        let queue = self.pending_of(lane);
        // The queue is in the order of the lane, so a later place only waits longer.
        let lsn = queue.back().map_or(lsn, |back| back.lsn.max(lsn));
        queue.push_back(Pending { lsn, row, applying: None, answer: Some(answer) });
        if let Some(row) = self.streams.row_mut(row) {
            live_of(row).waiting += 1;
        }
    }

    fn pending_of(&mut self, lane: Lane) -> &mut PendingQueue {
        match lane {
            Lane::Express => &mut self.pending,
            Lane::Standard => &mut self.standard.pending,
        }
    }

    /// Queues what an entry that just entered a lane does and answers.
    #[inline]
    pub(crate) fn queue(
        &mut self,
        (lane, lsn): (Lane, Lsn),
        row: u32,
        applying: Applying,
        answer: Option<(To, Answering)>,
    ) {
        let queue = self.pending_of(lane);
        debug_assert!(queue.back().is_none_or(|back| back.lsn <= lsn), "in the order of the lane");
        queue.push_back(Pending { lsn, row, applying: Some(applying), answer });
    }
}

/// Rows or subscriptions that something is due for.
pub(crate) type Due = SmallVec<[u32; 8]>;
