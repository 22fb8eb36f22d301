//! What is done to a stream besides appending and reading: make, open, fence, trim, delete.

use express_log::RoomClass;
use wire::config::ProducerPolicy;
use wire::entry::{Place, Verb};
use wire::handoff::ParcelItem;
use wire::ids::{Position, SeqNum};
use wire::message::{Fence, Open, StreamCreate, Tail as TailAnswer};
use wire::names::{Address, FencingToken};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::append::{append_bytes, live_of};
use super::commit::{Answering, Applying, Call, NO_ROW, Tail, To};
use super::judge::{judge_presented, writer_held};
use super::lane::{Entered, Lane, Shut};
use super::names::Named;
use super::row::Row;
use super::session::{Phase, SESSIONS_MAX, Session};
use super::shard::Shard;
use super::world::{ConnId, Flow, World};
use crate::planted::{Planted, is_planted};

/// A verb on its way in: to which row, what it does once durable, and who is answered what.
pub(super) struct Entering {
    pub(super) row: u32,
    pub(super) verb: Verb,
    pub(super) applying: Applying,
    pub(super) answer: Option<(To, Answering)>,
    /// It moves the stream from one lane to the other.
    pub(super) moves: bool,
}

impl Entering {
    /// A verb that nobody is answered for.
    pub(super) fn new(row: u32, verb: Verb, applying: Applying) -> Self {
        Self { row, verb, applying, answer: None, moves: false }
    }
}

/// The refusal of a stream that is gone.
pub(super) fn deleted_meanwhile() -> Refusal {
    Refusal::new(Reason::NotFound, "the stream was deleted")
}

impl Shard {
    /// Has a verb enter its stream's lane, and queues what it does.
    pub(super) fn enter(
        &mut self,
        entering: Entering,
        class: RoomClass,
        world: &mut impl World,
    ) -> Result<Flow, Refusal> {
        let Entering { row, verb, applying, answer, moves } = entering;
        let (slot_epoch, now) = (self.config.epoch, self.now.mono);
        let Some(state) = self.streams.row(row) else { return Err(deleted_meanwhile()) };
        let live = state.live.as_deref();
        if !moves && live.is_some_and(|live| live.held_for_move(now).is_some()) {
            return Ok(Flow::Blocked);
        }
        let lane = match live.map_or(state.config.class, |live| live.config.class) {
            _ if moves => Lane::Standard,
            class => Lane::from(class),
        };
        let (stream_id, slot) = (state.stream_id, state.slot);
        let rev = live.map_or(state.rev, |live| live.rev).next();
        let entry = verb.encode(Place { stream_id, slot, slot_epoch, rev });
        match self.room(lane, entry.len(), class, world) {
            Ok(()) => {}
            Err(Shut::Busy) => return Ok(Flow::Blocked),
            Err(Shut::Refused(refusal)) => return Err(refusal),
        }
        let (lsn, _) = match lane {
            Lane::Express => append_bytes(world, &mut self.ring, &entry),
            Lane::Standard => {
                let bytes = u32::try_from(entry.len()).unwrap_or_else(|_| unreachable!("a verb is short"));
                let item = ParcelItem { slot, stream_id, bytes, content_bytes: 0, first_ms: 0 };
                self.standard.append(item, |out| out.copy_from_slice(&entry))
            }
        };
        let Some(state) = self.streams.row_mut(row) else { return Err(deleted_meanwhile()) };
        let live = live_of(state);
        live.rev = rev;
        (live.lane, live.last_lsn) = (lane, lsn);
        live.in_flight += 1;
        self.queue((lane, lsn), row, applying, answer);
        Ok(Flow::Done)
    }

    /// Create a stream.
    pub(super) fn create(&mut self, to: To, create: &StreamCreate, world: &mut impl World) -> Result<Flow, Refusal> {
        let bucket = self.bucket_of(&create.address.bucket)?;
        let named = self.look_up(bucket.id, &create.address.key, world)?;
        if named == Named::Unknown {
            return Ok(Flow::Blocked);
        }
        if let Named::Row(row) = named {
            let message = format!("there is a stream '{}' already", create.address);
            let refusal = Refusal::new(Reason::AlreadyExists, message);
            self.answer_after(row, to, Answering::Refuse(refusal, Tail::Without), world);
            return Ok(Flow::Done);
        }
        let Some(row) = self.make(&bucket, &create.address, &create.config, world)? else {
            return Ok(Flow::Blocked);
        };
        self.answer_after(row, to, Answering::Info, world);
        Ok(Flow::Done)
    }

    /// Look at a stream.
    pub(super) fn get(&mut self, to: To, address: &Address, world: &mut impl World) -> Result<Flow, Refusal> {
        let Some(row) = self.find(address, world)? else { return Ok(Flow::Blocked) };
        self.answer_after(row, to, Answering::Info, world);
        Ok(Flow::Done)
    }

    /// The installed token.
    pub(super) fn get_token(&mut self, to: To, address: &Address, world: &mut impl World) -> Result<Flow, Refusal> {
        let Some(row) = self.find(address, world)? else { return Ok(Flow::Blocked) };
        self.answer_after(row, to, Answering::Token, world);
        Ok(Flow::Done)
    }

    /// The committed tail, which every ack before this has moved already.
    pub(super) fn check_tail(&mut self, to: To, address: &Address, world: &mut impl World) -> Result<Flow, Refusal> {
        let Some(row) = self.find(address, world)? else { return Ok(Flow::Blocked) };
        let (Some(state), To::Call(Call { conn, correlation, asked })) = (self.streams.row(row), to) else {
            return Err(deleted_meanwhile());
        };
        let tail = TailAnswer { tail: state.tail };
        if state.is_committed() {
            self.note_answered(asked);
            if let Some(out) = world.out(conn) {
                out.message(&tail, correlation);
            }
        } else {
            self.answer_after(row, to, Answering::Frame(frame(&tail, correlation)), world);
        }
        Ok(Flow::Done)
    }

    /// Delete a stream; deleting none is done at once.
    pub(super) fn delete(&mut self, to: To, address: &Address, world: &mut impl World) -> Result<Flow, Refusal> {
        let bucket = self.bucket_of(&address.bucket)?;
        let row = match self.look_up(bucket.id, &address.key, world)? {
            Named::Row(row) => row,
            Named::Unknown => return Ok(Flow::Blocked),
            Named::Nothing => {
                let after = self.take_named();
                self.answer_at(after, NO_ROW, (to, Answering::Done), world);
                return Ok(Flow::Done);
            }
        };
        self.delete_row(row, Some((to, Answering::Done)), world)
    }

    /// Has the delete of a stream that is there enter, and ends who writes to it.
    pub(super) fn delete_row(
        &mut self,
        row: u32,
        answer: Option<(To, Answering)>,
        world: &mut impl World,
    ) -> Result<Flow, Refusal> {
        let entering = Entering { answer, ..Entering::new(row, Verb::Delete, Applying::Delete) };
        if self.enter(entering, RoomClass::Control, world)? == Flow::Blocked {
            return Ok(Flow::Blocked);
        }
        let entered = self.streams.row(row).map_or(Entered::Nothing, Row::entered);
        self.streams.bury(row, entered);
        if let Some(state) = self.streams.row_mut(row) {
            live_of(state).deleted = true;
        }
        self.end_sessions(row, |_| Some(deleted_meanwhile()), world);
        self.refuse_held(row, world);
        Ok(Flow::Done)
    }

    /// Refuses the one-shots that a deleted stream holds back.
    fn refuse_held(&mut self, row: u32, world: &mut impl World) {
        let held = self.streams.row_mut(row).map(|state| std::mem::take(&mut live_of(state).held));
        for held in held.into_iter().flatten() {
            self.held_bytes -= held.batch.len();
            if let To::Call(_) = held.to {
                self.answer_after(row, held.to, Answering::Refuse(deleted_meanwhile(), Tail::Without), world);
            }
        }
    }

    /// Open a writer session.
    pub(super) fn open(&mut self, conn: ConnId, to: To, open: Open, world: &mut impl World) -> Result<Flow, Refusal> {
        if open.producer.get() == 0 {
            return Err(Refusal::invalid("a session's producer number must not be 0"));
        }
        if self.sessions.len() >= SESSIONS_MAX {
            let message = format!("the shard has {SESSIONS_MAX} sessions open, which is its bound");
            return Err(Refusal::new(Reason::ResourceExhausted, message));
        }
        let found = match open.resume {
            Some(_) => self.find(&open.address, world)?,
            None => self.find_or_create(&open.address, |bucket| bucket.create_stream_on_append, world)?,
        };
        let Some(row) = found else { return Ok(Flow::Blocked) };
        if let Err(refusal) = self.judge_open(row, &open) {
            self.answer_after(row, to, Answering::Refuse(refusal, Tail::Without), world);
            return Ok(Flow::Done);
        }
        self.end_replaced(row, &open, world);
        let Some(state) = self.streams.row_mut(row) else { return Err(deleted_meanwhile()) };
        let session = self.sessions.insert(Session {
            conn,
            row,
            producer: open.producer,
            presented: open.fencing_token,
            epoch: 0,
            in_flight: 0,
            closing: None,
            is_gone: false,
            phase: Phase::Open,
            refused: None,
        });
        live_of(state).sessions.push(session);
        self.answer_after(row, to, Answering::Opened(session), world);
        Ok(Flow::Done)
    }

    fn judge_open(&mut self, row: u32, open: &Open) -> Result<(), Refusal> {
        let Some(state) = self.streams.row_mut(row) else { return Err(deleted_meanwhile()) };
        if open.resume.is_some_and(|stream_id| stream_id != state.stream_id) {
            let message = format!("the stream at '{}' is another one than the session was opened on", open.address);
            return Err(Refusal::new(Reason::NotFound, message));
        }
        let live = live_of(state);
        judge_presented(live, &open.fencing_token)?;
        if live.config.producer_policy == ProducerPolicy::Fenced && live.token.is_empty() {
            let sessions = &self.sessions;
            let others = live.sessions.iter().filter_map(|session| sessions.get(*session));
            if others.into_iter().any(|other| other.producer != open.producer) {
                return Err(writer_held());
            }
        }
        Ok(())
    }

    /// Ends the sessions that a new one takes the place of: its own earlier one, and on a fenced stream all others.
    fn end_replaced(&mut self, row: u32, open: &Open, world: &mut impl World) {
        let fenced = self.live(row).is_some_and(|live| live.config.producer_policy == ProducerPolicy::Fenced);
        let own = open.producer;
        self.end_sessions(
            row,
            |session| {
                let message = if session.producer == own {
                    "the session was resumed on another connection"
                } else if fenced {
                    "a newer session that presents the same token took over"
                } else {
                    return None;
                };
                Some(Refusal::new(Reason::Superseded, message))
            },
            world,
        );
    }

    /// Ends the open sessions of a row for which there is a reason, once what they have in flight is answered.
    pub(super) fn end_sessions(&mut self, row: u32, why: impl Fn(&Session) -> Option<Refusal>, world: &mut impl World) {
        let Some(live) = self.live(row) else { return };
        for session in live.sessions.clone() {
            let Some(state) = self.sessions.get_mut(session) else { continue };
            let Some(refusal) = why(state) else { continue };
            let (conn, epoch) = (state.conn, state.epoch);
            state.phase = Phase::Ended(refusal);
            self.unlist(row, session);
            self.drop_held(row, session);
            let answering = Answering::SessionEnded(session, epoch);
            let to = To::Call(Call { conn, correlation: 0, asked: None });
            self.answer_after(row, to, answering, world);
        }
    }

    fn unlist(&mut self, row: u32, session: u32) {
        if let Some(state) = self.streams.row_mut(row)
            && let Some(live) = state.live.as_mut()
        {
            live.sessions.retain(|listed| *listed != session);
        }
    }

    /// Forgets the batches that a stream holds back for a session that has ended: nobody is answered for them.
    fn drop_held(&mut self, row: u32, session: u32) {
        let Some(live) = self.streams.row_mut(row).and_then(|state| state.live.as_mut()) else { return };
        let mut dropped_bytes = 0;
        let mut dropped = 0;
        live.held.retain(|held| {
            let of_it = matches!(held.to, To::Session { session: holder, .. } if holder == session);
            if of_it {
                dropped += 1;
                dropped_bytes += held.batch.len();
            }
            !of_it
        });
        self.held_bytes -= dropped_bytes;
        if let Some(state) = self.sessions.get_mut(session) {
            state.in_flight -= dropped;
        }
    }

    /// Ends a session whose client is gone or done.
    pub(super) fn end_session(&mut self, session: u32) {
        let Some(state) = self.sessions.get_mut(session) else { return };
        let (row, open) = (state.row, state.phase == Phase::Open);
        state.phase = Phase::Ended(Refusal::new(Reason::NotFound, "the session is closed"));
        if open {
            self.unlist(row, session);
            self.drop_held(row, session);
            self.retire(row);
        }
    }

    /// Close a session, once all that it sent is answered.
    pub(super) fn close(&mut self, conn: ConnId, to: To, handle: u32, world: &mut impl World) -> Result<Flow, Refusal> {
        let To::Call(Call { correlation, .. }) = to else { return Ok(Flow::Done) };
        let Some((session, state)) = self.sessions.held_by(conn, handle) else {
            return Err(Refusal::new(Reason::NotFound, format!("this connection has no session {handle}")));
        };
        if state.closing.is_some() {
            return Err(Refusal::invalid(format!("session {handle} is being closed already")));
        }
        state.closing = Some(correlation);
        if state.in_flight == 0 {
            self.forget_producer(session);
            self.finish_close(session, world);
        }
        Ok(Flow::Done)
    }

    /// Forgets what an open session wrote, once its client has every answer: nothing of it will be sent again.
    fn forget_producer(&mut self, session: u32) {
        let Some(state) = self.sessions.get(session).filter(|state| state.phase == Phase::Open) else { return };
        let (row, producer) = (state.row, state.producer);
        if let Some(state) = self.streams.row_mut(row)
            && let Some(dedupe) = state.dedupe.as_mut()
        {
            dedupe.forget(producer);
            if dedupe.is_empty() {
                state.dedupe = None;
            }
        }
    }

    /// Gives a closing session's role up and says so.
    pub(super) fn finish_close(&mut self, session: u32, world: &mut impl World) {
        let Some(state) = self.sessions.get(session) else { return };
        if state.is_over() {
            self.sessions.remove(session);
            return;
        }
        let Some(correlation) = state.closing else { return };
        let conn = state.conn;
        self.end_session(session);
        self.sessions.remove(session);
        if let Some(out) = world.out(conn) {
            out.message(&wire::message::Done {}, correlation);
        }
    }

    /// Install, rotate or clear the fencing token.
    pub(super) fn fence(&mut self, to: To, fence: Fence, world: &mut impl World) -> Result<Flow, Refusal> {
        let Some(row) = self.find(&fence.address, world)? else { return Ok(Flow::Blocked) };
        let Some(state) = self.streams.row_mut(row) else { return Err(deleted_meanwhile()) };
        let live = live_of(state);
        let boundary = Position::new(live.next, live.last_ms);
        if live.token == fence.fencing_token {
            self.answer_after(row, to, Answering::Fenced(boundary), world);
            return Ok(Flow::Done);
        }
        let token = fence.fencing_token;
        let entering = Entering::new(row, Verb::Fence { token: token.clone() }, Applying::Fence(token.clone()));
        if self.enter(entering, RoomClass::Control, world)? == Flow::Blocked {
            return Ok(Flow::Blocked);
        }
        if let Some(state) = self.streams.row_mut(row) {
            live_of(state).token = token.clone();
        }
        if !is_planted(Planted::FenceLeavesSessions) {
            self.supersede(row, &token, world);
        }
        if is_planted(Planted::FenceAfterReply) {
            self.answer(row, to, Answering::Fenced(boundary), world);
            return Ok(Flow::Done);
        }
        self.answer_after(row, to, Answering::Fenced(boundary), world);
        Ok(Flow::Done)
    }

    /// Ends the sessions that a newly installed token shuts out.
    pub(super) fn supersede(&mut self, row: u32, token: &FencingToken, world: &mut impl World) {
        let fenced = self.live(row).is_some_and(|live| live.config.producer_policy == ProducerPolicy::Fenced);
        self.end_sessions(
            row,
            |session| {
                let stays = session.presented == *token || session.presented.is_empty() && !fenced;
                let message = "another fencing token was installed";
                (!stays).then(|| Refusal::new(Reason::FencedOut, message).with_fencing_token(token.clone()))
            },
            world,
        );
    }

    /// Moves the trim point to a sequence number, at most to the tail.
    pub(super) fn trim_to(
        &mut self,
        to: To,
        row: u32,
        seq_num: SeqNum,
        world: &mut impl World,
    ) -> Result<Flow, Refusal> {
        let Some(state) = self.streams.row_mut(row) else { return Err(deleted_meanwhile()) };
        let live = live_of(state);
        let seq_num = seq_num.min(live.next);
        if seq_num <= live.trim_point {
            self.answer_after(row, to, Answering::Trimmed, world);
            return Ok(Flow::Done);
        }
        let answer = Some((to, Answering::Trimmed));
        let entering = Entering { answer, ..Entering::new(row, Verb::Trim { to: seq_num }, Applying::Trim(seq_num)) };
        if self.enter(entering, RoomClass::Control, world)? == Flow::Blocked {
            return Ok(Flow::Blocked);
        }
        if let Some(state) = self.streams.row_mut(row) {
            live_of(state).trim_point = seq_num;
        }
        Ok(Flow::Done)
    }
}

/// A message as a whole frame of its own.
fn frame(message: &impl wire::message::Message, correlation: u64) -> Vec<u8> {
    let mut out = Vec::new();
    message.frame(correlation, &mut out);
    out
}
