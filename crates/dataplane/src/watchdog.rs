//! Does every shard still turn, and what is done about one that does not?
//!
//! Each shard beats ten times a second. A thread of its own looks on: after a second of silence it says so and wakes the
//! shard through a waker that was stored before, which reaches even an executor that sleeps with runnable tasks; after
//! [`STUCK_MAX`] it ends the process, for a shard that never turns again holds its streams.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::hop::Mailbox;

/// How often a shard beats.
pub(crate) const BEAT_EVERY: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const STALL_MIN: Duration = Duration::from_secs(1);
const STUCK_MAX: Duration = Duration::from_secs(30);

/// The heartbeat of one shard.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beats: AtomicU64,
    /// Longest time past its due that a beat came, in milliseconds.
    late_max_ms: AtomicU64,
    stalls: AtomicU64,
    stall_last_ms: AtomicU64,
    poke: OnceLock<Waker>,
    is_over: AtomicBool,
}

impl Pulse {
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
    pub(crate) fn counters(&self) -> [(&'static str, u64); 3] {
        [
            ("stalls", self.stalls.load(Ordering::Relaxed)),
            ("stall_last_ms", self.stall_last_ms.load(Ordering::Relaxed)),
            ("beat_late_max_ms", self.late_max_ms.load(Ordering::Relaxed)),
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
}

fn watch(mailboxes: &[Mailbox], is_over: &AtomicBool) {
    let mut seen: Vec<Seen> = mailboxes.iter().map(|_| Seen::default()).collect();
    let mut looked = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        thread::park_timeout(LOOK_EVERY);
        // A process that was stopped as a whole did not stall: what this thread slept through counts once at most.
        let passed = looked.elapsed().min(2 * LOOK_EVERY);
        looked = Instant::now();
        for (shard, (mailbox, seen)) in mailboxes.iter().zip(&mut seen).enumerate() {
            look(shard, &mailbox.pulse, seen, passed);
        }
    }
}

fn look(shard: usize, pulse: &Pulse, seen: &mut Seen, passed: Duration) {
    let beats = pulse.beats.load(Ordering::Relaxed);
    if beats != seen.beats || beats == 0 || pulse.is_over.load(Ordering::Relaxed) {
        if seen.silent >= STALL_MIN {
            tracing::warn!(shard, stalled_ms = millis(seen.silent), "the shard turns again");
        }
        *seen = Seen { beats, silent: Duration::ZERO };
        return;
    }
    let before = seen.silent;
    seen.silent += passed;
    if seen.silent < STALL_MIN {
        return;
    }
    pulse.stall_last_ms.store(millis(seen.silent), Ordering::Relaxed);
    if before < STALL_MIN {
        pulse.stalls.fetch_add(1, Ordering::Relaxed);
        tracing::error!(shard, stalled_ms = millis(seen.silent), "the shard does not turn; it is woken");
    }
    if let Some(waker) = pulse.poke.get() {
        waker.wake_by_ref();
    }
    if seen.silent >= STUCK_MAX {
        tracing::error!(shard, stalled_ms = millis(seen.silent), "the shard is stuck; the process ends");
        eprintln!("nova: shard {shard} has not turned for {} s; the process ends", seen.silent.as_secs());
        std::process::abort();
    }
}

#[cfg(test)]
mod tests;
