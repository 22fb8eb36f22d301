//! How is a server kept under load, by how many threads, from when to when?

mod flights;
mod lane;
mod one_shots;
pub(crate) mod peers;
mod sessions;
mod slices;
mod tally;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::arrivals::Arrivals;
use crate::batch::Batches;
use crate::cpu::ThreadTime;
use crate::error::BenchError;
use crate::peer::Peer;
use crate::places::Places;
use crate::progress::{OnProgress, Progress, RateMeter, Step, as_f64};
use crate::shape::Spread;
use crate::start_at::StartAt;

#[cfg(test)]
pub(crate) use flights::Sent;
pub(crate) use slices::Slice;
use slices::{Gathered, SLICE_NS, Slices};
pub(crate) use tally::Tally;

/// How long the last answers are waited for, if a load says nothing else.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(10);
/// From when all are ready until the load starts, so that every thread sees the start before it comes.
const START_IN: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// When appends are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// The next one when an answer frees its place in the window.
    Closed,
    /// At a rate of all threads together, whatever comes back.
    Open {
        /// Appends a second.
        per_s: f64,
        /// How they are spread.
        arrivals: Arrivals,
    },
    /// One to each stream, outside of any session, within the window.
    EachOnce,
}

/// A load, its options checked.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) addr: String,
    /// Another server than nova.
    pub(crate) peer: Option<Peer>,
    pub(crate) places: Places,
    pub(crate) connections: u16,
    pub(crate) window: u32,
    pub(crate) batches: Batches,
    /// How the appends of a connection are shared out over its streams.
    pub(crate) spread: Spread,
    /// Whether each append of a session says which sequence number it must get.
    pub(crate) is_conditional: bool,
    /// What is drawn at random is drawn from.
    pub(crate) seed: u64,
    pub(crate) pace: Pace,
    /// When it starts by the wall clock; absent is as soon as all is open.
    pub(crate) start_at: Option<StartAt>,
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
    pub(crate) threads: u16,
    pub(crate) cpus: Vec<usize>,
    /// How long the last answers are waited for.
    pub(crate) drain_max: Duration,
    /// Ends the load at once, what is in flight unanswered, when somebody sets it.
    pub(crate) is_over: AtomicBool,
}

impl Load {
    /// How many sessions there are: one an active stream, and at least one a connection.
    pub(crate) fn sessions(&self) -> u32 {
        match self.pace {
            Pace::EachOnce => 0,
            _ if self.peer.is_some() => 0,
            Pace::Closed | Pace::Open { .. } => self.places.active().max(self.connections.into()),
        }
    }

    /// An empty tally of this load.
    fn tally(&self) -> Tally {
        let is_open_loop = matches!(self.pace, Pace::Open { .. });
        if self.places.buckets() > 1 { Tally::by_class(is_open_loop) } else { Tally::new(is_open_loop) }
    }
}

/// Nanoseconds since a run began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time now.
    #[inline]
    pub(crate) fn now_ns(self) -> u64 {
        nanoseconds(self.0.elapsed())
    }

    /// When it tells so much.
    pub(crate) fn at(self, ns: u64) -> Instant {
        self.0 + Duration::from_nanos(ns)
    }
}

/// Nanoseconds of a time that is shorter than five centuries.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// When the load starts, and from when to when it is measured.
#[derive(Debug, Clone, Copy)]
struct Span {
    start_ns: u64,
    measured_ns: u64,
    end_ns: u64,
}

/// What the threads and their caller tell each other.
#[derive(Debug)]
struct Shared {
    clock: Clock,
    ready: AtomicUsize,
    has_failed: AtomicBool,
    /// When all were ready.
    ready_ns: AtomicU64,
    /// 0 until all are ready.
    start_ns: AtomicU64,
    /// Of each thread: sessions opened, and once it runs, acks.
    answers: Vec<AtomicU64>,
    slices: Slices,
}

impl Shared {
    fn new(threads: u16) -> Self {
        Self {
            clock: Clock::start(),
            ready: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            ready_ns: AtomicU64::new(0),
            start_ns: AtomicU64::new(0),
            answers: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            slices: Slices::new(threads),
        }
    }

    fn span(&self, load: &Load) -> Option<Span> {
        let start_ns = self.start_ns.load(Ordering::Acquire);
        let measured_ns = start_ns + nanoseconds(load.warm_up);
        let end_ns = match load.pace {
            Pace::EachOnce => u64::MAX,
            Pace::Closed | Pace::Open { .. } => measured_ns + nanoseconds(load.duration),
        };
        (start_ns > 0).then_some(Span { start_ns, measured_ns, end_ns })
    }

    /// Notes how a thread ended, so that the others stop when it failed.
    fn note<T>(&self, result: Result<T, BenchError>) -> Result<T, BenchError> {
        if result.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn answers(&self) -> u64 {
        let answers = self.answers.iter();
        answers.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// What a thread had of its CPU while it was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadUse {
    /// What it had.
    pub(crate) time: ThreadTime,
    /// Within how long.
    pub(crate) elapsed: Duration,
}

/// What a thread did.
#[derive(Debug)]
struct Done {
    tally: Tally,
    used: ThreadUse,
    window_reached: usize,
    unsent: u64,
}

/// What came of a load.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What was seen.
    pub(crate) tally: Tally,
    /// How long was measured.
    pub(crate) measured: Duration,
    /// How long connecting and opening took.
    pub(crate) opening: Duration,
    /// What each thread had of its CPU.
    pub(crate) used: Vec<ThreadUse>,
    /// Appends that could be in flight on all connections together.
    pub(crate) in_flight_max: usize,
    /// Appends of an open loop that were due within the measured span and never sent.
    pub(crate) unsent: u64,
}

/// Gets each second of a run once it is over, on the thread that called it.
pub(crate) type OnSlice<'a> = &'a mut dyn FnMut(&Slice);

/// Runs a load to its end.
pub(crate) fn run(load: &Load, on_progress: OnProgress<'_>, on_slice: OnSlice<'_>) -> Result<Outcome, BenchError> {
    let shared = Shared::new(load.threads);
    let (watched, results) = thread::scope(|scope| {
        let workers: Vec<_> = (0..load.threads)
            .map(|index| {
                let shared = &shared;
                scope.spawn(move || shared.note(worker::run(load, shared, index)))
            })
            .collect();
        let is_over = || workers.iter().all(thread::ScopedJoinHandle::is_finished);
        let watched = watch(load, &shared, (on_progress, on_slice), &is_over);
        let joined = workers.into_iter().map(|worker| worker.join());
        let results = joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (watched, results.collect::<Vec<_>>())
    });
    let done = first_error_or_all(results)?;
    watched?;
    Ok(outcome(load, &shared, &done))
}

/// What the threads did, or why the first one that failed did. A thread that only stopped for another's sake says
/// nothing, which is `Ok(None)`.
fn first_error_or_all(results: Vec<Result<Option<Done>, BenchError>>) -> Result<Vec<Done>, BenchError> {
    let done: Result<Vec<_>, _> = results.into_iter().collect();
    Ok(done?.into_iter().flatten().collect())
}

fn outcome(load: &Load, shared: &Shared, done: &[Done]) -> Outcome {
    let mut tally = load.tally();
    done.iter().for_each(|done| tally.merge(&done.tally));
    let start_ns = shared.start_ns.load(Ordering::Acquire);
    let measured = match load.pace {
        Pace::EachOnce => Duration::from_nanos(tally.last_ack_ns.saturating_sub(start_ns)),
        Pace::Closed | Pace::Open { .. } => load.duration,
    };
    Outcome {
        tally,
        measured,
        opening: Duration::from_nanos(shared.ready_ns.load(Ordering::Acquire)),
        used: done.iter().map(|done| done.used).collect(),
        in_flight_max: done.iter().map(|done| done.window_reached).sum(),
        unsent: done.iter().map(|done| done.unsent).sum(),
    }
}

/// When the load starts, now that all are ready.
fn start_ns(load: &Load, ready_ns: u64) -> Result<u64, BenchError> {
    let Some(at) = load.start_at else { return Ok(ready_ns + nanoseconds(START_IN)) };
    match at.ahead_of(SystemTime::now()) {
        Ok(ahead) => Ok(ready_ns + nanoseconds(ahead)),
        Err(late) => Err(BenchError::StartMissed { at, late }),
    }
}

/// Starts the load once all threads are ready, and tells how it goes until all have ended.
fn watch(
    load: &Load,
    shared: &Shared,
    (on_progress, on_slice): (OnProgress<'_>, OnSlice<'_>),
    is_over: &dyn Fn() -> bool,
) -> Result<(), BenchError> {
    let mut outcome = Ok(());
    let threads = usize::from(load.threads);
    let mut meter = RateMeter::default();
    let mut due = PROGRESS_EVERY;
    let mut gathered = Gathered::default();
    loop {
        let is_over = is_over();
        shared.slices.gather(&mut gathered);
        while let Some(slice) = gathered.next(threads, is_over) {
            on_slice(&slice);
        }
        if is_over {
            return outcome;
        }
        thread::sleep(LOOK_EVERY);
        if load.is_over.load(Ordering::Relaxed) {
            shared.has_failed.store(true, Ordering::Relaxed);
        }
        let now = Duration::from_nanos(shared.clock.now_ns());
        let is_waiting = shared.start_ns.load(Ordering::Relaxed) == 0;
        if is_waiting && outcome.is_ok() && shared.ready.load(Ordering::Acquire) == threads {
            let ready_ns = shared.clock.now_ns();
            shared.ready_ns.store(ready_ns, Ordering::Release);
            outcome = shared.note(start_ns(load, ready_ns)).map(|ns| shared.start_ns.store(ns, Ordering::Release));
        }
        if now >= due {
            due = now + PROGRESS_EVERY;
            on_progress(&progress(load, shared, now, &mut meter));
        }
    }
}

fn progress(load: &Load, shared: &Shared, now: Duration, meter: &mut RateMeter) -> Progress {
    let now_ns = nanoseconds(now);
    let answers = shared.answers();
    let step = match shared.span(load) {
        None => Step::Opening,
        Some(span) if now_ns < span.measured_ns => Step::WarmUp,
        Some(span) if now_ns < span.end_ns => Step::Measuring,
        Some(_) => Step::Draining,
    };
    let of = |part: f64, whole: f64| (whole > 0.0).then(|| (100.0 * part / whole).min(100.0));
    let percent = match (step, shared.span(load)) {
        (Step::Opening, _) | (_, None) => of(as_f64(answers), f64::from(load.sessions())),
        (_, Some(_)) if load.pace == Pace::EachOnce => of(as_f64(answers), f64::from(load.places.streams())),
        (_, Some(span)) => {
            let whole = as_f64(span.end_ns - span.start_ns);
            of(as_f64(now_ns.saturating_sub(span.start_ns)), whole)
        }
    };
    Progress { step, elapsed: now, percent, answers, answers_per_s: meter.per_s(answers, now) }
}
