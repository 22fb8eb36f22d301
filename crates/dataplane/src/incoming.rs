//! How do a connection's bytes become frames, and when is it not read from?
//!
//! A turn receives into the shard's one buffer; frames are served where they lie. What is left over, a cut frame or what
//! may not be served yet, is kept by the connection's task. Lengths are believed only as far as bytes arrive.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_lite::io::AsyncRead;
use smallvec::SmallVec;
use wire::frame::{self, Next};
use wire::ids::ShardId;
use wire::limits::{FRAME_BODY_BYTES_BEFORE_HELLO_MAX, FRAME_BODY_BYTES_MAX};
use wire::refusal::Refusal;

use crate::conns::{Conn, Phase};
use crate::core::ConnId;
use crate::dispatch::Served;
use crate::hop::{Adopted, Hop};
use crate::os;
use crate::remotes::bit;
use crate::shell::{RECEIVE_BYTES, Shell, State};
use crate::watchdog::Task;

/// Frames served in one turn.
const FRAMES_MAX: usize = 1_024;
/// Left-overs may keep an allocation of so many bytes once they are served.
const LEFT_OVER_KEPT_BYTES: usize = 64 << 10;

/// What a connection's task does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Receive.
    Read,
    /// Let the others run, then go on with what is left over.
    Again,
    /// Wait until the log has room, then go on with what is left over.
    Room,
    /// Wait until the peer or another shard has taken something, then go on with what is left over.
    Gate,
    /// Give the connection to the shard that owns its stream.
    HandOver(ShardId),
    /// Clean up.
    Close,
}

/// What was received and is not served yet.
#[derive(Debug, Default)]
pub(crate) struct LeftOver {
    bytes: Vec<u8>,
    at: usize,
    /// Since when whole frames of it wait, if any do.
    since: Option<Duration>,
}

impl LeftOver {
    /// These bytes.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0, since: None }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Keeps frames that may not be served now.
    fn keep(&mut self, bytes: &[u8], now: Duration) {
        self.add(bytes);
        self.since.get_or_insert(now);
    }

    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        if self.is_empty() {
            (self.at, self.since) = (0, None);
            if self.bytes.capacity() > LEFT_OVER_KEPT_BYTES {
                self.bytes = Vec::new();
            }
            self.bytes.clear();
        }
    }

    fn into_bytes(mut self) -> Vec<u8> {
        self.add(&[]);
        self.bytes
    }
}

/// Frames of one turn that go to other shards, a batch each.
pub(crate) type Hops = SmallVec<[(ShardId, Vec<u8>); 2]>;

impl Shell {
    /// Takes a connection in and starts to read from it.
    pub(crate) fn take_in(self: &Rc<Self>, conn: Conn, received: Vec<u8>) -> ConnId {
        let id = self.state.borrow_mut().world.conns.insert(conn);
        glommio::spawn_local(Rc::clone(self).read_frames(id, LeftOver::of(received))).detach();
        id
    }

    /// The task of a connection: until it ends or moves to another shard.
    async fn read_frames(self: Rc<Self>, id: ConnId, mut left: LeftOver) {
        let mut step = self.resume(id, &mut left);
        loop {
            match step {
                Step::Read => {
                    step = poll_fn(|context| self.poll_received(context, id, &mut left)).await;
                    continue;
                }
                Step::Again => self.breathe().await,
                Step::Room => self.room().await,
                Step::Gate => poll_fn(|context| self.poll_gate(context, id)).await,
                Step::HandOver(owner) => match self.hand_over(id, owner, left) {
                    Ok(()) => return,
                    Err(kept) => left = kept,
                },
                Step::Close => return self.close(id),
            }
            step = self.resume(id, &mut left);
        }
    }

    fn poll_received(self: &Rc<Self>, context: &mut Context<'_>, id: ConnId, left: &mut LeftOver) -> Poll<Step> {
        let state = &mut *self.state.borrow_mut();
        let scratch = &mut *self.scratch.borrow_mut();
        let Some(conn) = state.world.conns.get_mut(id) else { return Poll::Ready(Step::Close) };
        let received = match ready!(Pin::new(&mut conn.stream).poll_read(context, scratch)) {
            Ok(0) | Err(_) => return Poll::Ready(Step::Close),
            Ok(received) => received,
        };
        self.enter(Task::Receive);
        state.world.read_clocks();
        let now = state.world.mono();
        state.world.begins(Task::Receive.work(), now);
        if let Some(conn) = state.world.conns.get_mut(id) {
            (conn.heard_at, conn.pings_unanswered) = (now, 0);
        }
        let input = scratch.get(..received).unwrap_or_default();
        let step = self.take_frames(state, id, left, input);
        self.end_turn(state);
        // A buffer that came back full has more behind it, and the next read would not wait.
        let is_full = received == RECEIVE_BYTES;
        Poll::Ready(if is_full && step == Step::Read { Step::Again } else { step })
    }

    /// Serves what is left over.
    fn resume(self: &Rc<Self>, id: ConnId, left: &mut LeftOver) -> Step {
        if left.is_empty() {
            return Step::Read;
        }
        self.turn(Task::Receive, |state| self.take_frames(state, id, left, &[]))
    }

    fn take_frames(self: &Rc<Self>, state: &mut State, id: ConnId, left: &mut LeftOver, input: &[u8]) -> Step {
        let mut hops = Hops::new();
        let received_at = left.since.unwrap_or_else(|| state.world.mono());
        let step = self.serve_frames(state, id, (left, input), &mut hops);
        for (shard, frames) in hops {
            if let Some(conn) = state.world.conns.get_mut(id) {
                conn.hops_under_way += 1;
                conn.served_by |= bit(shard);
            }
            state.world.counts.hops += 1;
            self.hop(state, shard, Hop::Frames { conn: id, received_at, frames });
        }
        step
    }

    fn serve_frames(
        &self,
        state: &mut State,
        id: ConnId,
        (left, mut input): (&mut LeftOver, &[u8]),
        hops: &mut Hops,
    ) -> Step {
        for _ in 0..FRAMES_MAX {
            if let ControlFlow::Break(step) = self.serve_next(state, id, (left, &mut input), hops) {
                return step;
            }
        }
        if left.is_empty() && input.is_empty() {
            return Step::Read;
        }
        left.keep(input, state.world.mono());
        Step::Again
    }

    /// Serves the frame at the front: of what is left over, else of the input.
    #[inline]
    fn serve_next(
        &self,
        state: &mut State,
        id: ConnId,
        (left, input): (&mut LeftOver, &mut &[u8]),
        hops: &mut Hops,
    ) -> ControlFlow<Step> {
        let Some(conn) = state.world.conns.get(id) else { return ControlFlow::Break(Step::Close) };
        let body_bytes_max = match conn.phase {
            Phase::Greeting => FRAME_BODY_BYTES_BEFORE_HELLO_MAX,
            Phase::Open => FRAME_BODY_BYTES_MAX,
            Phase::Closing => {
                *left = LeftOver::default();
                return ControlFlow::Break(Step::Read);
            }
        };
        if self.is_closed.get() {
            return ControlFlow::Break(Step::Read);
        }
        let may_serve = conn.may_read();
        state.world.serve_received(left.since);
        let is_left_over = !left.is_empty();
        let bytes = if is_left_over { left.rest() } else { *input };
        let frame = match frame::next(bytes, body_bytes_max) {
            Ok(Next::Frame(frame)) => frame,
            Ok(Next::Short { bytes_needed }) => {
                let missing = bytes_needed - bytes.len();
                return complete(left, input, missing);
            }
            Err(error) => {
                refuse_and_close(state, id, 0, Refusal::invalid(error.to_string()));
                return ControlFlow::Continue(());
            }
        };
        let served = if may_serve { self.serve(state, id, (&frame, bytes), hops) } else { Served::Gate };
        let frame_bytes = frame.frame_bytes;
        let step = match served {
            Served::Done if is_left_over => {
                left.advance(frame_bytes);
                return ControlFlow::Continue(());
            }
            Served::Done => {
                *input = input.get(frame_bytes..).unwrap_or_default();
                return ControlFlow::Continue(());
            }
            Served::Blocked => Step::Room,
            Served::Gate => Step::Gate,
            Served::HandOver(owner) => Step::HandOver(owner),
        };
        left.keep(input, state.world.mono());
        ControlFlow::Break(step)
    }

    /// Ready when the connection's next frame may be served.
    fn poll_gate(&self, context: &Context<'_>, id: ConnId) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        let Some(conn) = state.world.conns.get_mut(id) else { return Poll::Ready(()) };
        if conn.may_read() || conn.phase == Phase::Closing {
            return Poll::Ready(());
        }
        conn.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Gives a connection that has no operation in flight to another shard; gives back what is left over when it can't.
    fn hand_over(self: &Rc<Self>, id: ConnId, owner: ShardId, left: LeftOver) -> Result<(), LeftOver> {
        let state = &mut *self.state.borrow_mut();
        self.flush(state);
        let Some(conn) = state.world.conns.get_mut(id) else { return Err(left) };
        conn.is_fresh = false;
        if conn.backlog_bytes() > 0 || conn.phase != Phase::Open {
            return Err(left);
        }
        let Ok(socket) = os::duplicate(&conn.stream) else { return Err(left) };
        state.world.counts.hand_overs += 1;
        drop(state.world.conns.remove(id));
        self.hop(state, owner, Hop::Adopt(Box::new(Adopted { socket, received: left.into_bytes() })));
        Ok(())
    }

    /// Forgets a connection.
    pub(crate) fn close(self: &Rc<Self>, id: ConnId) {
        self.turn(Task::Receive, |state| {
            state.core.on_closed(id, &mut state.world);
            let Some(conn) = state.world.conns.remove(id) else { return };
            let all = (0..self.star.shards).map(ShardId::new);
            for shard in all.filter(|shard| conn.served_by & bit(*shard) != 0) {
                self.hop(state, shard, Hop::Closed { conn: id });
            }
        });
    }
}

/// Moves what a cut frame misses, as far as that is known, from `input` to what is left over; reads when that is not there.
fn complete(left: &mut LeftOver, input: &mut &[u8], missing: usize) -> ControlFlow<Step> {
    let moved = if left.is_empty() { input.len() } else { missing.min(input.len()) };
    let is_short = left.is_empty() || moved < missing;
    let (moved, rest) = input.split_at(moved);
    left.add(moved);
    if is_short {
        // What is cut has not arrived yet.
        left.since = None;
    }
    *input = rest;
    if is_short { ControlFlow::Break(Step::Read) } else { ControlFlow::Continue(()) }
}

/// Answers no, and closes once the answer is sent: nothing that follows can be read.
pub(crate) fn refuse_and_close(state: &mut State, id: ConnId, correlation: u64, refusal: Refusal) {
    let now: Duration = state.world.mono();
    let Some(conn) = state.world.conns.get_mut(id) else { return };
    (conn.phase, conn.phase_at) = (Phase::Closing, now);
    conn.out.refuse(correlation, refusal);
    state.world.mark_dirty(id);
}
