//! Does every shard still turn, and what is done about one that does not?
//!
//! Each shard beats ten times a second, and counts its turns. A thread of its own looks on: after a second of silence it says so and
//! wakes the shard through a waker that was stored before, which reaches even an executor that sleeps with runnable tasks. A shard
//! that never turns again holds its streams, so that the process ends: after [`LOOP_MAX`] of a shard that works on one turn all that
//! time, which is a loop without an end, and after [`STUCK_MAX`] of one that waits, for a slow disk comes back. One that has so much
//! to do that its beats come late goes from turn to turn, and is left alone.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::core::Work;
use crate::cpu::{Thread, ran, steal_us, waited_us};
use crate::hop::Mailbox;

/// How often a shard beats.
pub(crate) const BEAT_EVERY: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Looks after which it is looked what CPU the shards get.
const LOOKS_A_SECOND: u64 = 5;
const STALL_MIN: Duration = Duration::from_secs(1);
/// CPU time in one turn: with a look it makes a second. What grows with streams or subscriptions is done in parts, a turn each, so that
/// the longest turn of a shard with millions of streams takes a tenth of it.
const LOOP_MAX: Duration = Duration::from_millis(800);
const STUCK_MAX: Duration = Duration::from_secs(30);

macro_rules! tasks {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $work:ident;)*) => {
        /// What has the turn of a shard.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Task {
            $($(#[$doc])* $name,)*
        }

        impl Task {
            /// Which kind of work it does, until it says otherwise.
            pub(crate) const fn work(self) -> Work {
                match self {
                    $(Self::$name => Work::$work,)*
                }
            }
        }

        /// The words of tasks, in their order.
        const TASKS: &[&str] = &[$($word),*];
    };
}

tasks! {
    /// A connection is accepted.
    Accept = "accept", Admin;
    /// Frames of a connection are taken, or it is closed.
    Receive = "receive", Append;
    /// What a commit made durable is answered.
    Commit = "commit", Append;
    /// The log is kicked, and may write in place.
    Pump = "pump", Append;
    /// What other shards and control say is taken.
    Mail = "mail", Append;
    /// Hops that waited for room go on.
    Held = "held", Append;
    /// A timer of the core is due.
    Timer = "timer", Admin;
    /// What is durable is given away to be settled.
    Feed = "feed", Settle;
    /// Bytes of a head log have come for a reader.
    Fetch = "fetch", CatchUp;
    /// A backlog is sent.
    Send = "send", Read;
    /// Connections are looked after.
    Connections = "connections", Admin;
    /// It shows that it turns.
    Beat = "beat", Admin;
    /// Readers go on that were put off.
    Readers = "readers", Read;
    /// What was put off that was asked of the star as a whole is done.
    Chores = "chores", Admin;
    /// It stops.
    Drain = "drain", Admin;
}

/// The heartbeat of one shard. It is written at every turn, so that nothing which others look at may lie on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Pulse {
    /// Turns that were begun, and in the lowest byte the place in [`TASKS`] of what had the last one.
    turn: AtomicU64,
    /// The same, one more, when the shard stood still last; 0 before.
    stood_still_in: AtomicU8,
    thread: OnceLock<Thread>,
    /// See [`waited_us`] and [`steal_us`].
    waited_us: AtomicU64,
    steal_us: AtomicU64,
    beats: AtomicU64,
    /// Longest time past its due that a beat came, in milliseconds.
    late_max_ms: AtomicU64,
    stalls: AtomicU64,
    stall_last_ms: AtomicU64,
    poke: OnceLock<Waker>,
    is_over: AtomicBool,
}

impl Pulse {
    /// The thread that the shard runs on.
    pub(crate) fn runs(&self, thread: Thread) {
        // It is the same as long as there is the shard.
        let _ = self.thread.set(thread);
    }

    /// A task has the turn. Only the shard itself says so.
    #[inline]
    pub(crate) fn enter(&self, task: Task) {
        let turns = self.turn.load(Ordering::Relaxed) >> u8::BITS;
        self.turn.store((turns.wrapping_add(1) << u8::BITS) | u64::from(task as u8), Ordering::Relaxed);
    }

    /// Notes in which task the shard stands still now.
    fn note_task(&self) {
        self.stood_still_in.store(self.task_at() + 1, Ordering::Relaxed);
    }

    /// The task that has the turn.
    pub(crate) fn task(&self) -> &'static str {
        TASKS.get(usize::from(self.task_at())).copied().unwrap_or_default()
    }

    /// The place in [`TASKS`] of the task that has the turn.
    fn task_at(&self) -> u8 {
        let [task, ..] = self.turn.load(Ordering::Relaxed).to_le_bytes();
        task
    }

    /// The task in which the shard stood still last, if it ever did.
    pub(crate) fn stood_still_in(&self) -> Option<&'static str> {
        let task = self.stood_still_in.load(Ordering::Relaxed).checked_sub(1)?;
        TASKS.get(usize::from(task)).copied()
    }

    /// The shard turns; its beat came this long after it was due.
    pub(crate) fn beat(&self, late: Duration) {
        self.beats.fetch_add(1, Ordering::Relaxed);
        self.late_max_ms.fetch_max(millis(late), Ordering::Relaxed);
    }

    /// Stores the waker of a task that does nothing when woken.
    pub(crate) fn arm(&self, waker: &Waker) {
        // The first waker is as good as any later one of the same task.
        let _ = self.poke.set(waker.clone());
    }

    /// The shard ends; it beats no more.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(waker) = self.poke.get() {
            waker.wake_by_ref();
        }
    }

    /// Whether the shard has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// What it counts.
    pub(crate) fn counters(&self) -> [(&'static str, u64); 5] {
        [
            ("stalls", self.stalls.load(Ordering::Relaxed)),
            ("stall_last_ms", self.stall_last_ms.load(Ordering::Relaxed)),
            ("beat_late_max_ms", self.late_max_ms.load(Ordering::Relaxed)),
            ("cpu_waited_us_total", self.waited_us.load(Ordering::Relaxed)),
            ("cpu_steal_us_total", self.steal_us.load(Ordering::Relaxed)),
        ]
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The thread that looks on.
#[derive(Debug)]
pub(crate) struct Watchdog {
    thread: JoinHandle<()>,
    is_over: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts looking at the shards of these mailboxes.
    ///
    /// # Errors
    /// When no thread can be made.
    pub(crate) fn start(mailboxes: Arc<[Mailbox]>) -> std::io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(move || watch(&mailboxes, &over))?;
        Ok(Self { thread, is_over })
    }

    /// Stops looking.
    pub(crate) fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        // A watchdog that panicked watches no more either.
        let _ = self.thread.join();
    }
}

/// What was seen of one shard.
#[derive(Debug, Default)]
struct Seen {
    beats: u64,
    silent: Duration,
    /// What was told of its turn at the last look.
    turn: u64,
    /// CPU time of its thread at the last look, where the kernel tells.
    ran: Option<Duration>,
    /// CPU time since it is in that turn.
    worked: Duration,
}

impl Seen {
    /// Notes that the shard is silent for another while.
    fn add(&mut self, passed: Duration, turn: u64, ran: Option<Duration>) {
        if turn != self.turn {
            self.worked = Duration::ZERO;
        } else if let (Some(before), Some(now)) = (self.ran, ran) {
            // A thread whose virtual CPU stood still is told to have run all that time, once it goes on.
            self.worked += now.saturating_sub(before).min(passed);
        }
        self.silent += passed;
        (self.turn, self.ran) = (turn, ran);
    }

    /// Why the process must end, if it must.
    fn verdict(&self) -> Option<String> {
        if self.worked >= LOOP_MAX {
            return Some(format!("has worked for {} ms on one turn", millis(self.worked)));
        }
        (self.silent >= STUCK_MAX).then(|| format!("has not turned for {} s", self.silent.as_secs()))
    }
}

fn watch(mailboxes: &[Mailbox], is_over: &AtomicBool) {
    let mut seen: Vec<Seen> = mailboxes.iter().map(|_| Seen::default()).collect();
    let mut looked = Instant::now();
    for looks in 0_u64.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        if looks.is_multiple_of(LOOKS_A_SECOND) {
            look_at_cpus(mailboxes);
        }
        thread::park_timeout(LOOK_EVERY);
        // A process that was stopped as a whole did not stall: what this thread slept through counts once at most.
        let passed = looked.elapsed().min(2 * LOOK_EVERY);
        looked = Instant::now();
        for (shard, (mailbox, seen)) in mailboxes.iter().zip(&mut seen).enumerate() {
            look(shard, &mailbox.pulse, seen, passed);
        }
    }
}

/// Notes what CPU the shards did not get; what the host does not tell stays as it is.
fn look_at_cpus(mailboxes: &[Mailbox]) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    for pulse in mailboxes.iter().map(|mailbox| &mailbox.pulse) {
        let Some(thread) = pulse.thread.get() else { continue };
        let waited = std::fs::read_to_string(thread.schedstat()).ok().and_then(|text| waited_us(&text));
        if let Some(waited_us) = waited {
            pulse.waited_us.store(waited_us, Ordering::Relaxed);
        }
        if let Some(steal_us) = steal_us(&stat, thread.cpu) {
            pulse.steal_us.store(steal_us, Ordering::Relaxed);
        }
    }
}

fn look(shard: usize, pulse: &Pulse, seen: &mut Seen, passed: Duration) {
    let (beats, turn) = (pulse.beats.load(Ordering::Relaxed), pulse.turn.load(Ordering::Relaxed));
    let ran = pulse.thread.get().and_then(|thread| ran(&std::fs::read_to_string(thread.schedstat()).ok()?));
    if beats != seen.beats || beats == 0 || pulse.is_over.load(Ordering::Relaxed) {
        if seen.silent >= STALL_MIN {
            tracing::warn!(shard, stalled_ms = millis(seen.silent), "the shard turns again");
        }
        *seen = Seen { beats, turn, ran, ..Seen::default() };
        return;
    }
    let before = seen.silent;
    seen.add(passed, turn, ran);
    if seen.silent >= STALL_MIN {
        stalled(shard, pulse, seen, before < STALL_MIN);
    }
    if let Some(why) = seen.verdict() {
        pulse.note_task();
        let task = pulse.stood_still_in();
        tracing::error!(shard, task, stalled_ms = millis(seen.silent), "the shard is stuck; the process ends");
        eprintln!("nova: shard {shard} {why} ({}); the process ends", task.unwrap_or("no task"));
        std::process::abort();
    }
}

/// Counts a stall, tells of a new one, and wakes the shard.
fn stalled(shard: usize, pulse: &Pulse, seen: &Seen, is_new: bool) {
    pulse.stall_last_ms.store(millis(seen.silent), Ordering::Relaxed);
    if is_new {
        pulse.stalls.fetch_add(1, Ordering::Relaxed);
        pulse.note_task();
        let task = pulse.stood_still_in();
        tracing::error!(shard, task, stalled_ms = millis(seen.silent), "the shard does not turn; it is woken");
    }
    if let Some(waker) = pulse.poke.get() {
        waker.wake_by_ref();
    }
}

#[cfg(test)]
mod tests;
