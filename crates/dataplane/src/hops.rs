//! What does a shard do with what reaches it from other shards and from control?

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use wire::frame::{self, Next};
use wire::handoff::ToShard;
use wire::ids::{SegmentId, ShardId};
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message;
use wire::reason::Reason;
use wire::refusal::Refusal;

use crate::conns::{Conn, Phase};
use crate::core::{ConnId, Flow, Work, World};
use crate::hop::{Adopted, Hop, Reply};
use crate::os;
use crate::remotes::Remote;
use crate::shell::{Shell, State};
use crate::watchdog::Task;

/// Replies taken in one turn.
const REPLIES_TURN_MAX: usize = 256;
/// Requests taken in one turn.
const REQUESTS_TURN_MAX: usize = 64;

impl Shell {
    /// Takes what reaches this shard from outside of its thread.
    pub(crate) async fn take_mail(self: Rc<Self>) {
        while !self.is_over.get() {
            let mailbox = self.own_mailbox();
            poll_fn(|context| self.poll_mail(context)).await;
            let adopted = self.turn(Task::Mail, |state| self.take_turn(state));
            for conn in adopted {
                self.adopt(conn);
            }
            if !(mailbox.replies.is_empty() && mailbox.requests.is_empty()) {
                self.breathe().await;
            }
        }
    }

    fn poll_mail(&self, context: &Context<'_>) -> Poll<()> {
        let mailbox = self.own_mailbox();
        // All three, so that each knows the waker.
        let lanes = [
            mailbox.replies.poll_waiting(context),
            mailbox.control.poll_waiting(context),
            mailbox.requests.poll_waiting(context),
        ];
        let is_ready = self.is_over.get() || lanes.iter().any(Poll::is_ready);
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    }

    fn take_turn(&self, state: &mut State) -> Vec<Adopted> {
        let mailbox = self.own_mailbox();
        let mut adopted = Vec::new();
        for _ in 0..REPLIES_TURN_MAX {
            match mailbox.replies.pop() {
                Some(reply) => self.on_reply(state, reply),
                None => break,
            }
        }
        while let Some(message) = mailbox.control.pop() {
            self.on_control(state, message);
        }
        // Another shard may have its table, and connections, earlier than this one.
        let served = if state.core.has_table() { REQUESTS_TURN_MAX } else { 0 };
        for _ in 0..served {
            match mailbox.requests.pop() {
                Some(Hop::Adopt(conn)) => adopted.push(*conn),
                Some(hop) => self.on_hop(state, hop),
                None => break,
            }
        }
        adopted
    }

    fn on_control(&self, state: &mut State, message: ToShard) {
        state.world.works(work_of(&message));
        match message {
            ToShard::BucketReply { ticket, result } => Self::answer_bucket(state, ticket, result),
            ToShard::Drain => self.bells.drain.ring(),
            ToShard::Buckets(_) => {
                state.core.on_control(message, &mut state.world);
                self.bells.open.ring();
            }
            ToShard::Settled { log, upto } => self.on_settled(state, log, upto),
            ToShard::Listed { ticket, result } => self.on_listed(state, ticket, result),
            ToShard::Counters(counters) => state.control_counters = counters,
            freeze @ ToShard::Freeze { .. } => self.freeze(state, freeze),
            ToShard::Committed { .. }
            | ToShard::Applied { .. }
            | ToShard::Stall { .. }
            | ToShard::Loaded { .. }
            | ToShard::History { .. }
            | ToShard::TrimTo { .. }
            | ToShard::DeleteEmpty { .. } => state.core.on_control(message, &mut state.world),
        }
    }

    fn on_reply(&self, state: &mut State, reply: Reply) {
        match reply {
            Reply::Frames { conn: id, from, frames, done } => {
                let Some(conn) = state.world.conns.get_mut(id) else { return };
                conn.hops_under_way = conn.hops_under_way.saturating_sub(done);
                if !frames.is_empty() {
                    conn.remote_subscriptions.forget_ended(&frames);
                    conn.out.frames(&frames);
                    match conn.owed.iter_mut().find(|(shard, _)| *shard == from) {
                        Some((_, bytes)) => *bytes += frames.len(),
                        None => conn.owed.push((from, frames.len())),
                    }
                }
                state.world.mark_dirty(id);
            }
            Reply::Taken { conn: id, bytes } => {
                let Some(remote) = state.world.remotes.get_mut(id) else { return };
                remote.untaken = remote.untaken.saturating_sub(bytes);
                if remote.untaken == 0 {
                    // The flush tells the core.
                    state.world.mark_dirty(id);
                }
            }
            Reply::Part { ticket, part } => self.on_part(state, ticket, part),
        }
    }

    fn on_hop(&self, state: &mut State, hop: Hop) {
        match hop {
            Hop::Frames { conn: id, received_at, frames } => {
                let Some(remote) = state.world.remotes.get_or_insert(id) else { return };
                remote.waiting.push_back((received_at, frames));
                if !remote.is_held && !Self::serve_waiting(state, id) {
                    hold(state, id);
                }
            }
            Hop::Closed { conn } => {
                if state.world.remotes.get(conn).is_some() {
                    state.core.on_closed(conn, &mut state.world);
                    state.world.remotes.remove(conn);
                }
            }
            Hop::Gather { from, ticket, ask } => {
                state.world.works(Work::Admin);
                let part = self.part(state, &ask);
                self.reply(state, from, Reply::Part { ticket, part });
            }
            Hop::OldSettled(to) => {
                state.world.works(Work::Settle);
                state.core.on_log_settled(&to);
                while state.core.on_settled(to.log, SegmentId::new(u64::MAX)) {}
            }
            Hop::OldFreed { log, first } => while state.core.on_settled(log, first) {},
            // Taken out before: it spawns a task.
            Hop::Adopt(_) => {}
        }
    }

    /// Serves the frames of a connection that hopped here, in order; false when some must wait.
    fn serve_waiting(state: &mut State, id: ConnId) -> bool {
        while let Some(remote) = state.world.remotes.get_mut(id) {
            if !remote.may_serve() {
                return false;
            }
            let Some((received_at, frames)) = remote.waiting.pop_front() else { return true };
            let mut at = std::mem::take(&mut remote.at);
            state.world.serve_received(Some(received_at));
            let flow = serve_all(state, id, &frames, &mut at);
            let Some(remote) = state.world.remotes.get_mut(id) else { return true };
            if flow == Flow::Blocked {
                remote.at = at;
                remote.waiting.push_front((received_at, frames));
                return false;
            }
            remote.done += 1;
            state.world.mark_dirty(id);
        }
        true
    }

    /// Goes on with hops that wait for room.
    pub(crate) async fn serve_held(self: Rc<Self>) {
        while !self.is_over.get() {
            self.bells.held.wait().await;
            self.room().await;
            self.turn(Task::Held, |state| {
                let held = std::mem::take(&mut state.held);
                held.into_iter().for_each(|id| Self::go_on(state, id));
            });
        }
    }

    fn go_on(state: &mut State, id: ConnId) {
        if let Some(remote) = state.world.remotes.get_mut(id) {
            remote.is_held = false;
        }
        if !Self::serve_waiting(state, id) {
            hold(state, id);
        }
    }

    /// Serves a connection that another shard has handed over.
    fn adopt(self: &Rc<Self>, Adopted { socket, received }: Adopted) {
        let stream = os::adopt_stream(socket);
        let is_full = self.state.borrow().world.conns.len() >= self.star.connections_max;
        if is_full {
            turn_away(&stream, self.star.connections_max);
            return;
        }
        let mut conn = Conn::new(stream, Phase::Open, self.mono());
        if self.is_draining.get() {
            conn.out.message(&crate::drain::go_away(), 0);
        }
        self.take_in(conn, received);
    }
}

/// Which kind of work it is to take what control says.
fn work_of(message: &ToShard) -> Work {
    match message {
        ToShard::Committed { .. } | ToShard::Loaded { .. } | ToShard::Stall { .. } => Work::Append,
        ToShard::History { .. } => Work::CatchUp,
        ToShard::Applied { .. }
        | ToShard::Settled { .. }
        | ToShard::TrimTo { .. }
        | ToShard::DeleteEmpty { .. }
        | ToShard::Freeze { .. } => Work::Settle,
        ToShard::BucketReply { .. }
        | ToShard::Drain
        | ToShard::Buckets(_)
        | ToShard::Listed { .. }
        | ToShard::Counters(_) => Work::Admin,
    }
}

/// Says that the shard holds as many connections as it may.
pub(crate) fn turn_away(stream: &glommio::net::TcpStream, connections_max: usize) {
    let mut frame = Vec::new();
    let why = format!("the shard holds {connections_max} connections, which is connections_max: try again later");
    message::refuse(0, Refusal::new(Reason::ResourceExhausted, why), &mut frame);
    // A peer that can't be told finds the connection closed.
    let _ = os::send_now(stream, &frame);
}

fn hold(state: &mut State, id: ConnId) {
    if let Some(remote) = state.world.remotes.get_mut(id) {
        remote.is_held = true;
        state.held.push_back(id);
    }
}

fn serve_all(state: &mut State, id: ConnId, frames: &[u8], at: &mut usize) -> Flow {
    // The connection's shard has checked each frame, so what does not decode here ends the batch.
    while let Some(Ok(Next::Frame(frame))) = frames.get(*at..).map(|rest| frame::next(rest, FRAME_BODY_BYTES_MAX)) {
        if !state.world.remotes.get(id).is_some_and(Remote::may_serve) {
            return Flow::Blocked;
        }
        if Shell::serve_hopped(state, id, &frame) == Flow::Blocked {
            return Flow::Blocked;
        }
        *at += frame.frame_bytes;
    }
    Flow::Done
}

impl Shell {
    /// Asks every other shard for its part.
    pub(crate) fn ask_all(&self, state: &mut State, ticket: u64, ask: &crate::hop::Ask) {
        self.tell_others(state, || Hop::Gather { from: self.me, ticket, ask: ask.clone() });
    }

    /// Tells every other shard.
    pub(crate) fn tell_others(&self, state: &mut State, hop: impl Fn() -> Hop) {
        for shard in (0..self.star.shards).map(ShardId::new).filter(|shard| *shard != self.me) {
            self.hop(state, shard, hop());
        }
    }
}
