//! What do the tasks of one shard share, and how does a turn of one of them end?
//!
//! A turn borrows the [`State`], lets the core decide, and ends with [`Shell::end_turn`]: frames go out, the log is kicked
//! once all tasks that can run have run, timers are set. Nothing is borrowed across an await, and the log is only kicked
//! while nothing is borrowed, for an inline commit calls back at once.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use express_log::Log;
use glommio::nop::NopSubmitter;
use wire::handoff::ToShard;
use wire::ids::{Epoch, Lsn, ShardId};

use crate::bell::{Bell, Waiters};
use crate::core::{ConnId, Request, Shard, Work};
use crate::gather::Gathering;
use crate::hop::{Hop, Mailbox, Reply};
use crate::star::StarFacts;
use crate::surroundings::Surroundings;
use crate::watchdog::Task;

/// Bytes received in one turn.
pub(crate) const RECEIVE_BYTES: usize = 256 << 10;
/// Longest that a task waits before it offers a frame again that the log had no room for.
const ROOM_WAIT_MAX: Duration = Duration::from_millis(5);

/// What the tasks of a shard change in turns.
pub(crate) struct State {
    pub(crate) core: Shard,
    pub(crate) world: Surroundings,
    /// Bucket verbs that control works on: who asked.
    pub(crate) tickets: HashMap<u64, (ConnId, u64)>,
    /// Parts of answers that other shards work on.
    pub(crate) gatherings: HashMap<u64, Gathering>,
    pub(crate) last_ticket: u64,
    /// Buckets that are to be frozen once all that earlier tenures wrote is settled.
    pub(crate) freezes: Vec<ToShard>,
    /// What control counted last.
    pub(crate) control_counters: Arc<Vec<(String, u64)>>,
    /// What other shards' lanes had no room for.
    pub(crate) unsent_hops: VecDeque<(ShardId, Hop)>,
    pub(crate) unsent_replies: VecDeque<(ShardId, Reply)>,
    /// Connections of other shards with hops that wait for room.
    pub(crate) held: VecDeque<ConnId>,
    /// What was asked of the star as a whole and was put off for others.
    pub(crate) chores: VecDeque<((ConnId, u64), Request)>,
}

impl State {
    /// Of a shard to which nothing has happened yet.
    pub(crate) fn new(core: Shard, world: Surroundings) -> Self {
        Self {
            core,
            world,
            tickets: HashMap::new(),
            gatherings: HashMap::new(),
            last_ticket: 0,
            freezes: Vec::new(),
            control_counters: Arc::default(),
            unsent_hops: VecDeque::new(),
            unsent_replies: VecDeque::new(),
            held: VecDeque::new(),
            chores: VecDeque::new(),
        }
    }

    /// A number under which something waits for its answer.
    pub(crate) fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }
}

/// One shard, as its tasks see it.
pub(crate) struct Shell {
    pub(crate) me: ShardId,
    pub(crate) epoch: Epoch,
    pub(crate) state: RefCell<State>,
    pub(crate) scratch: RefCell<Box<[u8]>>,
    pub(crate) log: Log,
    pub(crate) star: Arc<StarFacts>,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) bells: Bells,
    /// Tasks whose frames may go on once something was looked up.
    pub(crate) looked_up: Waiters,
    /// When the timer task wakes by itself.
    pub(crate) timer_at: Cell<Option<Duration>>,
    /// The star stops: clients are asked to go.
    pub(crate) is_draining: Cell<bool>,
    /// No frame is served any more.
    pub(crate) is_closed: Cell<bool>,
    /// The tasks are to end.
    pub(crate) is_over: Cell<bool>,
}

/// What wakes the tasks of a shard.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    /// The log is to be kicked, or frames are left over.
    pub(crate) pump: Bell,
    /// The core's next timer is earlier than the one that is set.
    pub(crate) timer: Bell,
    /// Another shard's lane had no room.
    pub(crate) overflow: Bell,
    /// Hops wait for room.
    pub(crate) held: Bell,
    /// Readers from memory were put off.
    pub(crate) reading: Bell,
    /// Readers who catch up were put off.
    pub(crate) catching_up: Bell,
    /// Something was put off that was asked of the star as a whole.
    pub(crate) chores: Bell,
    /// The first table of buckets has come.
    pub(crate) open: Bell,
    /// The star stops.
    pub(crate) drain: Bell,
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").field("shard", &self.me).finish_non_exhaustive()
    }
}

impl Shell {
    /// The mailbox of another shard.
    pub(crate) fn mailbox(&self, shard: ShardId) -> Option<&Mailbox> {
        self.mailboxes.get(usize::from(shard.get()))
    }

    /// This shard's own mailbox.
    pub(crate) fn own_mailbox(&self) -> &Mailbox {
        &self.mailboxes[usize::from(self.me.get())]
    }

    /// Time since the star started.
    pub(crate) fn mono(&self) -> Duration {
        self.star.started.elapsed()
    }

    /// Notes that a task has the turn, should the shard stand still in it.
    #[inline]
    pub(crate) fn enter(&self, task: Task) {
        self.own_mailbox().pulse.enter(task);
    }

    /// One turn of a task that is not a connection's.
    pub(crate) fn turn<R>(self: &Rc<Self>, task: Task, work: impl FnOnce(&mut State) -> R) -> R {
        self.enter(task);
        let state = &mut *self.state.borrow_mut();
        state.world.read_clocks();
        state.world.begins(task.work(), state.world.mono());
        let worked = work(state);
        self.end_turn(state);
        worked
    }

    /// The log has made everything up to `lsn` durable.
    pub(crate) fn on_durable(self: &Rc<Self>, lsn: Lsn) {
        self.turn(Task::Commit, |state| state.core.on_durable(lsn, &mut state.world));
    }

    /// Sends what the turn has written, and wakes who has to act on it.
    pub(crate) fn end_turn(self: &Rc<Self>, state: &mut State) {
        state.core.hand_over(&mut state.world);
        if state.core.take_loads_done() {
            self.looked_up.wake_all();
        }
        self.flush(state);
        let now = self.mono();
        let took = now.saturating_sub(state.world.mono());
        if state.core.is_replying() {
            state.core.replied(took);
        }
        self.end_work(state, now, took);
        for (work, bell) in [(Work::Read, &self.bells.reading), (Work::CatchUp, &self.bells.catching_up)] {
            if state.core.has_put_off(work) {
                bell.ring();
            }
        }
        let world = &mut state.world;
        if std::mem::take(&mut world.has_appended) || !world.dirty.is_empty() || !world.spilled.is_empty() {
            self.bells.pump.ring();
        }
        if !state.held.is_empty() {
            self.bells.held.ring();
        }
        let is_earlier = |next| self.timer_at.get().is_none_or(|at| next < at);
        if state.core.next_timer().is_some_and(is_earlier) {
            self.bells.timer.ring();
        }
    }

    /// Notes that work ends which took so long.
    fn end_work(&self, state: &mut State, now: Duration, took: Duration) {
        state.world.ends(now);
        if state.world.counts.note_turn(took) {
            let task = self.own_mailbox().pulse.task();
            tracing::debug!(shard = %self.me, task, took_ms = took.as_millis(), "a long turn");
        }
    }

    /// Lets all other tasks run, and the kernel have its turn.
    pub(crate) async fn breathe(&self) {
        // An operation of the ring that does nothing: waking oneself instead would keep the executor from its rings. When
        // it fails there was a turn of the ring all the same.
        let _ = NopSubmitter::new().run_nop().await;
    }

    /// Waits until there may be room for another entry, or something was looked up.
    pub(crate) async fn room(&self) {
        let room = async {
            if self.log.wait_for_room().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let pause = async {
            glommio::timer::sleep(ROOM_WAIT_MAX).await;
        };
        futures_lite::future::or(self.looked_up.wait(), futures_lite::future::or(room, pause)).await;
    }

    /// Kicks the log after each turn that has appended, and goes on with frames that were left over: once every
    /// task that could run has run, so that one commit takes what all of them brought.
    pub(crate) async fn pump(self: Rc<Self>) {
        while !self.is_over.get() {
            self.bells.pump.wait().await;
            // A task that is spawned takes its first step at once, so nothing may be borrowed.
            let spilled = std::mem::take(&mut self.state.borrow_mut().world.spilled);
            for id in spilled {
                glommio::spawn_local(Rc::clone(&self).write_backlog(id)).detach();
            }
            if !self.state.borrow().world.dirty.is_empty() {
                self.breathe().await;
                self.turn(Task::Pump, |_| ());
            }
            self.enter(Task::Pump);
            let began = self.mono();
            self.state.borrow_mut().world.begins(Task::Pump.work(), began);
            self.log.kick();
            let now = self.mono();
            self.end_work(&mut self.state.borrow_mut(), now, now.saturating_sub(began));
        }
    }
}
