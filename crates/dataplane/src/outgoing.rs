//! How do frames leave a shard: to the kernel, or to the shard of their connection?
//!
//! What a turn wrote for a connection goes out in one send, straight from its buffer. What the kernel does not take stays
//! behind as a backlog that a task of its own sends, and as long as it is long the connection is not read.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_lite::io::AsyncWrite;
use wire::ids::ShardId;

use crate::conns::{Conn, Phase};
use crate::core::ConnId;
use crate::hop::{Hop, Reply};
use crate::os;
use crate::shell::{Shell, State};
use crate::watchdog::Task;

/// Times that a flush goes on with what the core writes once a backlog is gone; then the other tasks run first.
const FLUSH_ROUNDS: usize = 4;
/// Bytes of a backlog that are offered to the kernel in one turn.
const WRITE_BYTES: usize = 1 << 20;
/// Pause before what another shard's lane had no room for is offered again.
const OVERFLOW_PAUSE: Duration = Duration::from_millis(1);

/// What became of a connection's frames.
enum Sent {
    /// The kernel has them all.
    All,
    /// Some wait for the writer task, which is to be started when it was not there.
    Some { starts_writer: bool },
}

impl Shell {
    /// Sends what was written for connections; what the core adds once they have room again, too, within bounds.
    pub(crate) fn flush(self: &Rc<Self>, state: &mut State) {
        for _ in 0..FLUSH_ROUNDS {
            if state.world.dirty.is_empty() {
                return;
            }
            let mut dirty = std::mem::take(&mut state.world.dirty);
            dirty.drain(..).for_each(|id| self.flush_one(state, id));
            if state.world.dirty.is_empty() {
                // Keeps the allocation.
                state.world.dirty = dirty;
            }
        }
    }

    fn flush_one(self: &Rc<Self>, state: &mut State, id: ConnId) {
        let is_clear = match id.shard == self.me {
            true => self.flush_conn(state, id),
            false => self.flush_remote(state, id),
        };
        if is_clear {
            state.core.on_writable(id, &mut state.world);
        }
    }

    /// Sends a connection's frames; whether the core is to be told that there is no backlog.
    fn flush_conn(self: &Rc<Self>, state: &mut State, id: ConnId) -> bool {
        let now = state.world.mono();
        let Some(conn) = state.world.conns.get_mut(id) else { return false };
        conn.is_dirty = false;
        match offer(conn, now) {
            Sent::All => self.on_all_sent(state, id),
            Sent::Some { starts_writer } => {
                if starts_writer {
                    state.world.counts.spills += 1;
                    state.world.spilled.push(id);
                }
                false
            }
        }
    }

    /// The kernel has all of a connection's frames.
    fn on_all_sent(&self, state: &mut State, id: ConnId) -> bool {
        let Some(conn) = state.world.conns.get_mut(id) else { return false };
        if conn.phase == Phase::Closing {
            os::shutdown_sending(&conn.stream);
        }
        if conn.may_read() {
            conn.wake_reader();
        }
        let is_asked = conn.backlog_asked.replace(false);
        if !conn.owed.is_empty() {
            let owed = std::mem::take(&mut conn.owed);
            for (shard, bytes) in owed {
                self.reply(state, shard, Reply::Taken { conn: id, bytes });
            }
        }
        is_asked
    }

    /// Sends a connection's frames to its shard.
    fn flush_remote(&self, state: &mut State, id: ConnId) -> bool {
        let Some(remote) = state.world.remotes.get_mut(id) else { return false };
        remote.is_dirty = false;
        let (frames, done) = (remote.out.take(), std::mem::take(&mut remote.done));
        remote.untaken += frames.len();
        if !frames.is_empty() || done > 0 {
            self.reply(state, id.shard, Reply::Frames { conn: id, from: self.me, frames, done });
        }
        let Some(remote) = state.world.remotes.get_mut(id) else { return false };
        remote.untaken == 0 && remote.backlog_asked.replace(false)
    }

    /// Sends a backlog as the peer takes it.
    pub(crate) async fn write_backlog(self: Rc<Self>, id: ConnId) {
        loop {
            let progress = poll_fn(|context| self.poll_backlog(context, id)).await;
            match progress {
                Written::Gone => return,
                Written::All => return self.turn(Task::Send, |state| state.world.mark_dirty(id)),
                Written::Some => self.breathe().await,
            }
        }
    }

    fn poll_backlog(&self, context: &mut Context<'_>, id: ConnId) -> Poll<Written> {
        self.enter(Task::Send);
        let state = &mut *self.state.borrow_mut();
        let now = self.mono();
        state.world.begins(Task::Send.work(), now);
        let written = Self::offer_backlog(context, state, (id, now));
        state.world.ends(self.mono());
        written
    }

    fn offer_backlog(context: &mut Context<'_>, state: &mut State, (id, now): (ConnId, Duration)) -> Poll<Written> {
        let Some(conn) = state.world.conns.get_mut(id) else { return Poll::Ready(Written::Gone) };
        let mut offered = 0;
        while offered < WRITE_BYTES {
            if conn.backlog_at == conn.backlog.len() {
                (conn.backlog, conn.backlog_at) = (conn.out.take(), 0);
                conn.is_writing = !conn.backlog.is_empty();
            }
            if !conn.is_writing {
                return Poll::Ready(Written::All);
            }
            let waiting = &conn.backlog[conn.backlog_at..];
            match Pin::new(&mut conn.stream).poll_write(context, waiting) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(bytes)) => {
                    conn.backlog_at += bytes;
                    conn.took_at = now;
                    offered += bytes;
                }
                Poll::Ready(Err(_)) => {
                    kill(conn);
                    return Poll::Ready(Written::Gone);
                }
            }
        }
        Poll::Ready(Written::Some)
    }

    /// Sends something to another shard, now or when its lane has room.
    pub(crate) fn hop(&self, state: &mut State, shard: ShardId, hop: Hop) {
        let Some(mailbox) = self.mailbox(shard) else { return };
        let refused = if state.unsent_hops.is_empty() { mailbox.requests.push(hop).err() } else { Some(hop) };
        if let Some(hop) = refused {
            state.unsent_hops.push_back((shard, hop));
            self.bells.overflow.ring();
        }
    }

    /// Answers another shard, now or when its lane has room.
    pub(crate) fn reply(&self, state: &mut State, shard: ShardId, reply: Reply) {
        let Some(mailbox) = self.mailbox(shard) else { return };
        let refused = if state.unsent_replies.is_empty() { mailbox.replies.push(reply).err() } else { Some(reply) };
        if let Some(reply) = refused {
            state.unsent_replies.push_back((shard, reply));
            self.bells.overflow.ring();
        }
    }

    /// Offers again what other shards' lanes had no room for.
    pub(crate) async fn send_overflow(self: Rc<Self>) {
        while !self.is_over.get() {
            self.bells.overflow.wait().await;
            while !self.send_unsent() && !self.is_over.get() {
                glommio::timer::sleep(OVERFLOW_PAUSE).await;
            }
        }
    }

    /// Whether nothing is left.
    fn send_unsent(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        while let Some((shard, reply)) = state.unsent_replies.pop_front() {
            let Some(mailbox) = self.mailbox(shard) else { continue };
            if let Err(reply) = mailbox.replies.push(reply) {
                state.unsent_replies.push_front((shard, reply));
                break;
            }
        }
        while let Some((shard, hop)) = state.unsent_hops.pop_front() {
            let Some(mailbox) = self.mailbox(shard) else { continue };
            if let Err(hop) = mailbox.requests.push(hop) {
                state.unsent_hops.push_front((shard, hop));
                break;
            }
        }
        state.unsent_replies.is_empty() && state.unsent_hops.is_empty()
    }
}

/// How far a backlog was sent.
enum Written {
    /// There is none any more.
    All,
    /// As much as one turn may send.
    Some,
    /// The connection is gone.
    Gone,
}

/// Offers a connection's frames to the kernel.
fn offer(conn: &mut Conn, now: Duration) -> Sent {
    if conn.is_writing {
        return Sent::Some { starts_writer: false };
    }
    let frames = conn.out.bytes();
    if frames.is_empty() {
        return Sent::All;
    }
    let all = frames.len();
    let taken = match os::send_now(&conn.stream, frames) {
        Ok(taken) => taken,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(_) => {
            conn.out.consume(all);
            kill(conn);
            return Sent::All;
        }
    };
    if taken == all {
        conn.out.consume(all);
        return Sent::All;
    }
    (conn.backlog, conn.backlog_at, conn.took_at) = (conn.out.take(), taken, now);
    conn.is_writing = true;
    Sent::Some { starts_writer: true }
}

/// Ends a connection now; its reading task finds the end and cleans up.
pub(crate) fn kill(conn: &mut Conn) {
    conn.phase = Phase::Closing;
    os::shutdown(&conn.stream);
    conn.wake_reader();
}
