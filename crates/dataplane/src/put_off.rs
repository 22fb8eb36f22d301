//! When does work go on that has had its share of the shard's time?
//!
//! Nothing is preempted, so work is put off between turns. It goes on once it has earned some time, or after two rounds of all
//! tasks and rings in which no other kind of work had anything to do.

use std::rc::Rc;
use std::time::Duration;

use crate::bell::Bell;
use crate::core::{Work, World};
use crate::shell::{Shell, State};
use crate::watchdog::Task;

/// Shortest and longest time for which work waits before it is looked again whether its turn has come.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(1);

impl Shell {
    /// Waits until a kind of work may have the turn: not at all within its share.
    pub(crate) async fn await_turn(&self, work: Work) {
        if self.state.borrow_mut().world.may_go(work) {
            return;
        }
        self.state.borrow_mut().world.shares.put_off(work);
        while !self.is_over.get() {
            let before = self.state.borrow().world.shares.others_ns(work);
            // What is woken in the round of a task may run after it; one round more, and it has had its turn.
            self.breathe().await;
            self.breathe().await;
            let Some(pause) = self.owed(work, before) else { return };
            glommio::timer::sleep(pause.clamp(PAUSE_MIN, PAUSE_MAX)).await;
        }
    }

    /// How long a kind of work waits now, if it does: others have had more than `before`, and it has not earned its turn.
    fn owed(&self, work: Work, before: u64) -> Option<Duration> {
        let world = &mut self.state.borrow_mut().world;
        let may_go = world.may_go(work);
        if world.shares.others_ns(work) == before {
            world.shares.forgive(work);
            return None;
        }
        (!may_go).then(|| world.shares.owed(work))
    }

    /// Goes on with readers that were put off, as long as the shard lives.
    pub(crate) async fn serve_put_off(self: Rc<Self>, work: Work) {
        while !self.is_over.get() {
            self.bell_of(work).wait().await;
            while !self.is_over.get() && self.state.borrow().core.has_put_off(work) {
                self.await_turn(work).await;
                self.turn(Task::Readers, |state| take_up(state, work));
            }
        }
    }

    fn bell_of(&self, work: Work) -> &Bell {
        if work == Work::CatchUp { &self.bells.catching_up } else { &self.bells.reading }
    }

    /// Does what was asked of the star as a whole and put off, as long as the shard lives.
    pub(crate) async fn do_chores(self: Rc<Self>) {
        while !self.is_over.get() {
            self.bells.chores.wait().await;
            while !self.is_over.get() && !self.state.borrow().chores.is_empty() {
                self.await_turn(Work::Admin).await;
                self.turn(Task::Chores, |state| self.do_next_chore(state));
            }
        }
    }

    fn do_next_chore(&self, state: &mut State) {
        if let Some((call, request)) = state.chores.pop_front() {
            self.do_chore(state, call, request);
        }
    }
}

fn take_up(state: &mut State, work: Work) {
    state.world.works(work);
    state.core.take_up(work, &mut state.world);
}
