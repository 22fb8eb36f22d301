//! What does a thread of a load do, in which order?

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::flights::Sent;
use super::lane::Lane;
use super::{Done, Load, Pace, SLICE_NS, Shared, Span, Tally, ThreadUse, nanoseconds};
use crate::arrivals::{Schedule, Share};
use crate::cpu::{ThreadTime, pin};
use crate::error::BenchError;

const SCRATCH_BYTES: usize = 256 << 10;
const EVENTS_MAX: usize = 1024;
/// The loop looks at the time at least this often.
const WAIT_MAX: Duration = Duration::from_millis(20);
const TIMER: Token = Token(usize::MAX);

/// Where the thread is in its run.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Opening, then waiting for the others.
    Opening { is_ready: bool },
    /// Under load.
    Running { span: Span },
    /// Waiting for the last answers.
    Draining { until_ns: u64 },
    /// Nothing left to do.
    Done,
}

#[derive(Debug)]
struct Worker<'a> {
    load: &'a Load,
    shared: &'a Shared,
    index: u16,
    lanes: Vec<Lane>,
    dirty: Vec<usize>,
    turn: usize,
    stage: Stage,
    tally: Tally,
    schedule: Option<Schedule>,
    timer: Option<OwnedFd>,
    /// Whether appends that are due waited for room in a window, and not all of them are sent yet.
    is_blocked: bool,
    unsent: u64,
    measured_from: Option<(u64, ThreadTime)>,
    /// When the second that the tally gathers is over.
    slice_end_ns: u64,
    used: ThreadUse,
}

/// Runs thread `index` of a load; `None` when it stopped because another one failed.
pub(super) fn run(load: &Load, shared: &Shared, index: u16) -> Result<Option<Done>, BenchError> {
    if !load.cpus.is_empty() {
        pin(load.cpus[usize::from(index) % load.cpus.len()])?;
    }
    let mut poll = Poll::new().map_err(system("making a poll"))?;
    let mut worker = Worker::new(load, shared, index, &poll)?;
    let mut events = Events::with_capacity(EVENTS_MAX);
    let mut scratch = vec![0; SCRATCH_BYTES];
    loop {
        let wait = worker.wait()?;
        match poll.poll(&mut events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(system("waiting for sockets")(error));
            }
            _ => {}
        }
        for event in events.iter().filter(|event| event.token() != TIMER) {
            worker.on_event(event.token().0, &mut scratch)?;
        }
        worker.turn()?;
        if let Stage::Done = worker.stage {
            return Ok(Some(worker.done()));
        }
        if shared.has_failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
}

impl<'a> Worker<'a> {
    fn new(load: &'a Load, shared: &'a Shared, index: u16, poll: &Poll) -> Result<Self, BenchError> {
        let is_open_loop = matches!(load.pace, Pace::Open { .. });
        let timer = is_open_loop.then(|| timer(poll)).transpose()?;
        let mut lanes = Vec::new();
        for number in (index..load.connections).step_by(load.threads.into()) {
            let mut lane = Lane::connect(load, number.into())?;
            lane.register(poll.registry(), Token(lanes.len())).map_err(system("watching a socket"))?;
            lanes.push(lane);
        }
        Ok(Self {
            load,
            shared,
            index,
            lanes,
            dirty: Vec::new(),
            turn: 0,
            stage: Stage::Opening { is_ready: false },
            tally: load.tally(),
            schedule: None,
            timer,
            is_blocked: false,
            unsent: 0,
            measured_from: None,
            slice_end_ns: u64::MAX,
            used: ThreadUse { time: ThreadTime::now(), elapsed: Duration::ZERO },
        })
    }

    /// How long to wait for an event. In an open loop the timer ends the wait when the next append is due.
    fn wait(&self) -> Result<Duration, BenchError> {
        if let (Stage::Opening { .. }, Some(span)) = (self.stage, self.shared.span(self.load)) {
            let until_ns = span.start_ns.saturating_sub(self.shared.clock.now_ns());
            return Ok(Duration::from_nanos(until_ns).min(WAIT_MAX));
        }
        let (Some(schedule), Some(timer)) = (&self.schedule, &self.timer) else {
            return Ok(WAIT_MAX);
        };
        let due_in_ns = schedule.next_ns().saturating_sub(self.shared.clock.now_ns());
        if due_in_ns == 0 {
            // Due, and yet not sent: every window is full, and an answer will say when one is not.
            return Ok(WAIT_MAX);
        }
        if due_in_ns < nanoseconds(WAIT_MAX) {
            arm(timer, due_in_ns)?;
        }
        Ok(WAIT_MAX)
    }

    fn on_event(&mut self, at: usize, scratch: &mut [u8]) -> Result<(), BenchError> {
        let lane = &mut self.lanes[at];
        lane.receive(self.load, self.shared.clock, scratch, &mut self.tally)?;
        if let (Stage::Running { span }, None) = (self.stage, &self.schedule) {
            fill(lane, self.load, self.shared, &mut self.tally, span)?;
        }
        lane.flush()
    }

    /// Looks at the time, goes to the next stage when it has come, and sends what is due.
    fn turn(&mut self) -> Result<(), BenchError> {
        let now_ns = self.shared.clock.now_ns();
        match self.stage {
            Stage::Opening { is_ready } => self.open(is_ready, now_ns)?,
            Stage::Running { span } => {
                self.measure(span, now_ns);
                let is_done = self.lanes.iter().all(|lane| lane.is_done(self.load));
                if now_ns >= span.end_ns || is_done {
                    self.end(span, now_ns);
                } else {
                    self.send_due()?;
                }
            }
            Stage::Draining { until_ns } => self.drain(until_ns, now_ns)?,
            Stage::Done => {}
        }
        self.cut_slices(now_ns);
        let answers = match self.stage {
            Stage::Opening { .. } => {
                let opened = self.lanes.iter().map(|lane| u64::from(lane.opened()));
                opened.sum()
            }
            _ => self.tally.acks_ever,
        };
        self.shared.answers[usize::from(self.index)].store(answers, Ordering::Relaxed);
        Ok(())
    }

    fn open(&mut self, is_ready: bool, now_ns: u64) -> Result<(), BenchError> {
        if !is_ready && self.lanes.iter().all(Lane::is_open) {
            self.shared.ready.fetch_add(1, Ordering::Release);
            self.stage = Stage::Opening { is_ready: true };
        }
        let Some(span) = self.shared.span(self.load) else {
            return Ok(());
        };
        if now_ns < span.start_ns {
            return Ok(());
        }
        self.tally.measure(span.measured_ns..span.end_ns);
        self.stage = Stage::Running { span };
        self.slice_end_ns = span.start_ns + SLICE_NS;
        if let Pace::Open { per_s, arrivals } = self.load.pace {
            let share = Share { thread: self.index, threads: self.load.threads };
            let run = self.load.warm_up + self.load.duration;
            self.schedule = Some(Schedule::new(span.start_ns, (per_s, arrivals), share, run));
            return Ok(());
        }
        for lane in &mut self.lanes {
            fill(lane, self.load, self.shared, &mut self.tally, span)?;
            lane.flush()?;
        }
        Ok(())
    }

    /// Leaves each second that is over to the watch of the run.
    fn cut_slices(&mut self, now_ns: u64) {
        while now_ns >= self.slice_end_ns {
            self.slice_end_ns += SLICE_NS;
            self.shared.slices.leave(self.index, self.tally.slice.cut());
        }
    }

    /// Notes what the thread has had of its CPU when the measured span begins.
    fn measure(&mut self, span: Span, now_ns: u64) {
        if self.measured_from.is_none() && now_ns >= span.measured_ns {
            self.measured_from = Some((now_ns, ThreadTime::now()));
        }
    }

    fn end(&mut self, span: Span, now_ns: u64) {
        if let Some((from_ns, from)) = self.measured_from {
            self.used =
                ThreadUse { time: ThreadTime::now().since(from), elapsed: Duration::from_nanos(now_ns - from_ns) };
        }
        if let Some(schedule) = self.schedule.take() {
            self.unsent = schedule.untaken_before(span.end_ns);
        }
        self.stage = Stage::Draining { until_ns: now_ns + nanoseconds(self.load.drain_max) };
    }

    fn drain(&mut self, until_ns: u64, now_ns: u64) -> Result<(), BenchError> {
        let in_flight: usize = self.lanes.iter().map(Lane::in_flight).sum();
        if in_flight == 0 || (now_ns >= until_ns && self.tally.violations > 0) {
            self.stage = Stage::Done;
        } else if now_ns >= until_ns {
            return Err(BenchError::Unanswered { appends: in_flight as u64, waited_s: self.load.drain_max.as_secs() });
        }
        Ok(())
    }

    /// Sends every append of an open loop that is due and finds room, on the connections in turn.
    fn send_due(&mut self) -> Result<(), BenchError> {
        let Some(mut schedule) = self.schedule.take() else {
            return Ok(());
        };
        let mut now_ns = self.shared.clock.now_ns();
        while schedule.next_ns() <= now_ns {
            let sent = Sent { intended_ns: schedule.next_ns(), sent_ns: now_ns };
            if !self.launch_in_turn(sent)? {
                // What waits from here on is late because no window had room.
                self.is_blocked = true;
                break;
            }
            schedule.take(now_ns);
            self.tally.on_sent(sent, self.is_blocked);
            now_ns = self.shared.clock.now_ns();
        }
        self.is_blocked &= schedule.next_ns() <= now_ns;
        self.schedule = Some(schedule);
        for at in self.dirty.drain(..) {
            self.lanes[at].flush()?;
        }
        Ok(())
    }

    fn launch_in_turn(&mut self, sent: Sent) -> Result<bool, BenchError> {
        for _ in 0..self.lanes.len() {
            let at = self.turn;
            self.turn = (self.turn + 1) % self.lanes.len();
            if self.lanes[at].launch(self.load, sent)? {
                self.dirty.push(at);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn done(mut self) -> Done {
        self.shared.slices.leave(self.index, self.tally.slice.cut());
        Done {
            window_reached: self.lanes.iter().map(Lane::window_reached).sum(),
            tally: self.tally,
            used: self.used,
            unsent: self.unsent,
        }
    }
}

/// Fills the window of a connection of a closed loop.
fn fill(lane: &mut Lane, load: &Load, shared: &Shared, tally: &mut Tally, span: Span) -> Result<(), BenchError> {
    let now_ns = shared.clock.now_ns();
    let sent = Sent::at(now_ns);
    if now_ns < span.end_ns {
        while lane.launch(load, sent)? {
            tally.on_sent(sent, false);
        }
    }
    Ok(())
}

fn timer(poll: &Poll) -> Result<OwnedFd, BenchError> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer =
        timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|errno| system("making a timer")(errno.into()))?;
    poll.registry()
        .register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)
        .map_err(system("watching a timer"))?;
    Ok(timer)
}

fn arm(timer: &OwnedFd, in_ns: u64) -> Result<(), BenchError> {
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    let it_value = Timespec::try_from(Duration::from_nanos(in_ns)).unwrap_or(zero);
    let once = Itimerspec { it_interval: zero, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)
        .map(|_| ())
        .map_err(|errno| system("setting a timer")(errno.into()))
}

fn system(action: &'static str) -> impl Fn(io::Error) -> BenchError {
    move |source| BenchError::System { action, source }
}
