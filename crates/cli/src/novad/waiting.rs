//! What is said, and what are callers told, while the star does not serve yet?
//!
//! A thread looks beside the start: a store that gives no sign of life is said once, then once a minute, until it does. When the
//! start takes longer than a moment, somebody answers at the doors.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use control::Threads;
use control::store::Store;
use dataplane::{Doors, Porter, StartError};
use wire::ids::{ClusterId, StarId};

/// A start that takes longer is explained to callers, and a store that is silent for longer is away.
const MOMENT: Duration = Duration::from_millis(1_500);
/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between two lines about the same outage.
const REMIND_EVERY: Duration = Duration::from_secs(60);

/// What the star waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// The store is to be taken, or to be told what shards will write.
    Store,
    /// What the head logs hold is read.
    Logs,
}

/// What a start is watched with.
pub(super) struct Watched {
    pub(super) doors: Arc<Doors>,
    pub(super) ids: (Option<ClusterId>, StarId),
    pub(super) threads: Threads,
    pub(super) store: Arc<dyn Store>,
    /// Where the store is, as an operator knows it.
    pub(super) place: String,
    /// Called once, when the star is up though its store is away.
    pub(super) on_up: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("place", &self.place).finish_non_exhaustive()
    }
}

/// A start that is under way.
#[derive(Debug)]
pub(super) struct Waiting {
    shared: Arc<Shared>,
    thread: JoinHandle<Ended>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    waits_for: For,
    /// Why the last attempt to take the store has failed, and since when none has succeeded.
    failed: Option<(Instant, String)>,
    is_over: bool,
}

/// What the thread leaves.
#[derive(Debug)]
struct Ended {
    porter: Option<Porter>,
    was_up: bool,
}

/// An outage that was said.
#[derive(Debug)]
struct Outage {
    since: Instant,
    said: Instant,
}

struct Look {
    watched: Watched,
    shared: Arc<Shared>,
    porter: Option<Porter>,
    outage: Option<Outage>,
    on_up: Option<Box<dyn FnOnce() + Send>>,
}

impl Waiting {
    /// Watches from now on.
    pub(super) fn begin(mut watched: Watched) -> std::io::Result<Self> {
        let state = State { waits_for: For::Store, failed: None, is_over: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let on_up = std::mem::replace(&mut watched.on_up, Box::new(|| ()));
        let look = Look { watched, shared: Arc::clone(&shared), porter: None, outage: None, on_up: Some(on_up) };
        let thread = thread::Builder::new().name("nova-start".to_owned()).spawn(move || look.run())?;
        Ok(Self { shared, thread })
    }

    /// An attempt to take the store has failed: it will be tried again.
    pub(super) fn has_failed(&self, why: String) {
        self.shared.change(|state| {
            let since = state.failed.take().map_or_else(Instant::now, |(since, _)| since);
            state.failed = Some((since, why));
        });
    }

    /// Now this is waited for.
    pub(super) fn waits_for(&self, what: For) {
        self.shared.change(|state| {
            state.waits_for = what;
            // The store is asked again and again, and has answered only once the logs' turn comes.
            state.failed.take_if(|_| what == For::Logs);
        });
    }

    /// The star is about to serve: whoever is at the doors leaves them. Answers whether it was said to be up before.
    pub(super) fn end(self) -> std::io::Result<bool> {
        self.shared.change(|state| state.is_over = true);
        let ended =
            self.thread.join().map_err(|_| std::io::Error::other("the thread that watches the start panicked"))?;
        ended.porter.map_or(Ok(()), Porter::leave)?;
        Ok(ended.was_up)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }
}

impl Look {
    fn run(mut self) -> Ended {
        let began = Instant::now();
        let silent = self.watched.threads.find_away(&*self.watched.store, MOMENT);
        if let Some(trouble) = silent {
            self.say_away(began, &trouble.why);
        }
        loop {
            let state = self.shared.state();
            if state.is_over {
                break;
            }
            let (state, _) =
                self.shared.changed.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner);
            let (is_over, waits_for, failed) = (state.is_over, state.waits_for, state.failed.clone());
            drop(state);
            if is_over {
                break;
            }
            self.look(began, waits_for, failed);
        }
        if let Some(outage) = self.outage.take() {
            say_back(&outage, &self.watched.place);
        }
        Ended { porter: self.porter, was_up: self.on_up.is_none() }
    }

    fn look(&mut self, began: Instant, waits_for: For, failed: Option<(Instant, String)>) {
        if waits_for == For::Logs {
            if let Some(outage) = self.outage.take() {
                say_back(&outage, &self.watched.place);
            }
            if began.elapsed() > MOMENT {
                self.stand_at_the_doors("the star does not serve yet: it reads its head logs");
            }
            return;
        }
        let trouble = self.watched.store.trouble().filter(|trouble| trouble.since.elapsed() > MOMENT);
        let failed = failed.filter(|(since, _)| since.elapsed() > MOMENT || self.outage.is_some());
        let why = trouble.map(|trouble| trouble.why.to_string()).or_else(|| failed.map(|(_, why)| why));
        match (why, self.outage.as_mut()) {
            (Some(why), None) => self.say_away(Instant::now(), &why),
            (Some(why), Some(outage)) if outage.said.elapsed() >= REMIND_EVERY => {
                outage.said = Instant::now();
                let (store, lasts_s) = (&self.watched.place, outage.since.elapsed().as_secs());
                tracing::warn!(store, why, lasts_s, "the store is still away: no call is served");
            }
            (None, None) if began.elapsed() > MOMENT => {
                self.stand_at_the_doors("the star does not serve yet: it takes its store");
            }
            _ => {}
        }
    }

    fn say_away(&mut self, since: Instant, why: &str) {
        let store = self.watched.place.clone();
        tracing::warn!(
            store,
            why,
            "the store is away: no call is served until it is there, and it is tried again and again"
        );
        self.outage = Some(Outage { since, said: Instant::now() });
        self.stand_at_the_doors(&format!("the star does not serve yet: its store {store} is away ({why})"));
        if let Some(on_up) = self.on_up.take() {
            on_up();
        }
    }

    /// Has callers told why nothing is served.
    fn stand_at_the_doors(&mut self, why: &str) {
        if let Some(porter) = &self.porter {
            return porter.says(why);
        }
        let stood: Result<Porter, StartError> = self.watched.doors.porter(self.watched.ids, why);
        match stood {
            Ok(porter) => self.porter = Some(porter),
            Err(error) => tracing::warn!(%error, "callers wait until the star serves: nobody can answer them"),
        }
    }
}

fn say_back(outage: &Outage, store: &str) {
    let lasted_ms = outage.since.elapsed().as_millis();
    tracing::info!(store, lasted_ms, "the store is there after {} s", lasted_ms / 1_000);
}
