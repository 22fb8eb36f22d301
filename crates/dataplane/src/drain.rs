//! How does a shard stop?
//!
//! Nothing new is accepted and clients are asked to go; once they have, or are quiet, or the time is over, no more frames
//! are served, what is under way is answered, and the log is sealed. Shards wait for each other in between, for they may
//! have work of each other's connections.

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use wire::ids::ShardId;
use wire::message::GoAway;

use crate::conns::Phase;
use crate::core::{ConnId, World};
use crate::outgoing::kill;
use crate::remotes::bit;
use crate::shell::Shell;
use crate::surroundings::Surroundings;
use crate::watchdog::Task;

/// How often a shard that drains looks whether it is done.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A star on which nothing was asked for so long is quiet.
const QUIET: Duration = Duration::from_millis(250);
/// How long answers that are under way may take once nothing new is served; and past the time that a drain has.
const FINISH_WITHIN: Duration = Duration::from_secs(5);
const FINISH_LATE: Duration = Duration::from_millis(300);
/// How long the tasks of connections may take to end.
const CLOSE_WITHIN: Duration = Duration::from_millis(500);

/// What asks a client to finish and reconnect.
pub(crate) fn go_away() -> GoAway {
    GoAway { why: "the star stops".to_owned() }
}

fn say_go_away(world: &mut Surroundings, id: ConnId) {
    if let Some(out) = world.out(id) {
        out.message(&go_away(), 0);
    }
}

impl Shell {
    /// Stops the shard, in order; `listener` is another descriptor of what it accepts from.
    pub(crate) async fn drain(self: &Rc<Self>, listener: OwnedFd) {
        let deadline = self.mono() + self.star.drain_timeout;
        self.is_draining.set(true);
        // Also wakes the accept loop when it never began.
        self.bells.open.ring();
        // A listener that fails to shut down is closed with the process.
        let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        self.ask_clients_to_go();
        self.wait_until_quiet(deadline).await;
        self.is_closed.set(true);
        self.wait_until_answered(deadline).await;
        self.log.seal().await;
        self.settle_all(deadline).await;
        self.tell_how_the_log_is_left();
        self.close_all().await;
        self.end_tasks();
    }

    fn ask_clients_to_go(self: &Rc<Self>) {
        self.turn(Task::Drain, |state| {
            let conns = state.world.conns.iter_mut();
            let open: Vec<_> = conns.filter(|(_, conn)| conn.phase == Phase::Open).map(|(id, _)| id).collect();
            for out in open {
                say_go_away(&mut state.world, out);
            }
        });
    }

    /// Waits until every shard of the star is quiet, or the time is over.
    async fn wait_until_quiet(&self, deadline: Duration) {
        let (quiet, all) = (&self.star.quiet_shards, self.all_shards());
        let (mut frames, mut since) = (self.frames(), self.mono());
        while self.mono() < deadline && !self.star.finishes.load(Ordering::Relaxed) {
            glommio::timer::sleep(LOOK_EVERY).await;
            let (now, served) = (self.mono(), self.frames());
            if served != frames || !self.has_answered_all() {
                (frames, since) = (served, now);
            }
            let is_quiet = self.state.borrow().world.conns.is_empty() || now - since >= QUIET;
            let is_quiet = is_quiet && self.has_answered_all();
            let me = bit(self.me);
            let before = match is_quiet {
                true => quiet.fetch_or(me, Ordering::Relaxed) | me,
                false => quiet.fetch_and(!me, Ordering::Relaxed) & !me,
            };
            if before == all {
                break;
            }
        }
        // Whoever sees that the time is over, or that all are quiet, ends the waiting for all.
        self.star.finishes.store(true, Ordering::Relaxed);
    }

    /// Waits until no shard owes an answer: until then each may have work of another's connections.
    async fn wait_until_answered(&self, deadline: Duration) {
        let (answered, all) = (&self.star.answered_shards, self.all_shards());
        let until = (self.mono() + FINISH_WITHIN).min(deadline.max(self.mono() + FINISH_LATE));
        while answered.load(Ordering::Relaxed) != all && self.mono() < until {
            if self.has_answered_all() {
                answered.fetch_or(bit(self.me), Ordering::Relaxed);
            }
            glommio::timer::sleep(LOOK_EVERY).await;
        }
    }

    fn all_shards(&self) -> u64 {
        (0..self.star.shards).map(ShardId::new).fold(0, |all, shard| all | bit(shard))
    }

    fn frames(&self) -> u64 {
        self.state.borrow().world.counts.frames
    }

    /// Whether everything that was asked is answered, and the answers are with the kernel.
    fn has_answered_all(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        let is_sent =
            state.world.conns.iter_mut().all(|(_, conn)| {
                conn.phase == Phase::Closing || (conn.backlog_bytes() == 0 && conn.hops_under_way == 0)
            });
        let nothing_waits = state.held.is_empty()
            && state.chores.is_empty()
            && state.unsent_hops.is_empty()
            && state.unsent_replies.is_empty();
        is_sent && nothing_waits && state.tickets.is_empty() && state.gatherings.is_empty() && state.core.is_idle()
    }

    async fn close_all(self: &Rc<Self>) {
        self.turn(Task::Drain, |state| state.world.conns.iter_mut().for_each(|(_, conn)| kill(conn)));
        let until = self.mono() + CLOSE_WITHIN;
        while !self.state.borrow().world.conns.is_empty() && self.mono() < until {
            glommio::timer::sleep(LOOK_EVERY).await;
        }
    }

    /// Lets every task see that it is over.
    fn end_tasks(&self) {
        self.is_over.set(true);
        let bells = &self.bells;
        let own = [&bells.pump, &bells.timer, &bells.overflow, &bells.held];
        for bell in own.into_iter().chain([&bells.reading, &bells.catching_up, &bells.chores]) {
            bell.ring();
        }
        self.state.borrow().world.fetch_bell.ring();
        self.state.borrow().world.feeds.bell.ring();
        let mailbox = self.own_mailbox();
        mailbox.requests.wake();
        mailbox.pulse.end();
    }

    /// Waits until control says that the star stops.
    pub(crate) async fn until_drained(self: &Rc<Self>, listener: OwnedFd) {
        self.bells.drain.wait().await;
        self.drain(listener).await;
        // The tasks that were woken last take their last step before the executor ends.
        let mut steps = 0;
        poll_fn(|context| {
            steps += 1;
            context.waker().wake_by_ref();
            if steps > 3 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
