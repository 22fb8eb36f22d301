//! Where does the time go of what a shard is asked: how long does it wait, how long is it written, how long is it answered?
//!
//! Every answer is counted once, when it is given, in all the phases it has had. All times are those of turns, whose clocks are read
//! anyway; batches of one turn that a commit made durable are counted together. So an append costs a comparison and an addition.

use std::time::Duration;

use express_log::CommitTimes;
use wire::star_detail::{Histogram, Operation, Phase, Timing};

use super::request::Request;
use super::shard::Shard;

const OPERATIONS: usize = Operation::ALL.len();
const PHASES: usize = Phase::ALL.len();

/// Told also as long as nothing was counted, so that a rate has a beginning.
const ALWAYS_TOLD: [(Operation, Phase); 4] = [
    (Operation::Append, Phase::Queue),
    (Operation::Append, Phase::Write),
    (Operation::Append, Phase::Sync),
    (Operation::Append, Phase::Reply),
];

/// What was asked, and when its last byte was there, in nanoseconds since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    operation: Operation,
    at_ns: u64,
}

impl Asked {
    /// This, received then.
    #[inline]
    pub(super) fn new(operation: Operation, at: Duration) -> Self {
        Self { operation, at_ns: nanos(at) }
    }
}

/// A commit of the head log that is answered now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Committed {
    started_ns: u64,
    durable_ns: u64,
    times: CommitTimes,
}

impl Committed {
    /// Durable at this time, after it took so long.
    pub(super) fn new(at: Duration, times: CommitTimes) -> Self {
        let started_ns = nanos(at.saturating_sub(times.write + times.sync));
        Self { started_ns, durable_ns: nanos(at), times }
    }
}

/// Answers of one commit to what was asked in one turn.
#[derive(Debug)]
struct Run {
    asked: Asked,
    answers: u64,
}

/// What is counted of them.
#[derive(Debug)]
pub(crate) struct Timings {
    histograms: Box<[[Histogram; PHASES]; OPERATIONS]>,
    run: Run,
    /// Answers of this commit that were written with it.
    written: [u64; OPERATIONS],
    /// Answers of this turn that nobody has taken yet.
    replying: [u64; OPERATIONS],
    is_replying: bool,
}

impl Timings {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            histograms: Box::new([[Histogram::default(); PHASES]; OPERATIONS]),
            run: Run { asked: Asked::new(Operation::Append, Duration::ZERO), answers: 0 },
            written: [0; OPERATIONS],
            replying: [0; OPERATIONS],
            is_replying: false,
        }
    }

    fn note(&mut self, operation: Operation, phase: Phase, took_ns: u64, answers: u64) {
        self.histograms[operation as usize][phase as usize].note(took_ns, answers);
    }

    fn replies(&mut self, operation: Operation, answers: u64) {
        self.replying[operation as usize] += answers;
        self.is_replying = true;
    }

    /// Something is answered because a commit of the head log is durable; [`Timings::end_commit`] follows before anything else.
    #[inline]
    pub(super) fn committed(&mut self, asked: Asked, commit: &Committed) {
        if self.run.asked != asked {
            self.end_run(commit);
            self.run.asked = asked;
        }
        self.run.answers += 1;
    }

    fn end_run(&mut self, commit: &Committed) {
        let Asked { operation, at_ns } = self.run.asked;
        let answers = std::mem::take(&mut self.run.answers);
        if answers == 0 {
            return;
        }
        // What has entered nothing, or came when the commit was on its way, has waited for its end.
        let is_written = enters(operation) && at_ns <= commit.started_ns;
        let until_ns = if is_written { commit.started_ns } else { commit.durable_ns };
        self.written[operation as usize] += if is_written { answers } else { 0 };
        self.note(operation, Phase::Queue, until_ns.saturating_sub(at_ns), answers);
        self.replies(operation, answers);
    }

    /// All that a commit made durable is answered.
    pub(super) fn end_commit(&mut self, commit: &Committed) {
        self.end_run(commit);
        for operation in Operation::ALL {
            let answers = std::mem::take(&mut self.written[*operation as usize]);
            if answers > 0 {
                self.note(*operation, Phase::Write, nanos(commit.times.write), answers);
                self.note(*operation, Phase::Sync, nanos(commit.times.sync), answers);
            }
        }
    }

    /// Something is answered because the standard store has what was given to it at `given`.
    pub(super) fn put(&mut self, asked: Asked, given: Option<Duration>, now: Duration) {
        let Asked { operation, at_ns } = asked;
        match given.map(nanos).filter(|given_ns| enters(operation) && at_ns <= *given_ns) {
            None => self.waited(asked, now),
            Some(given_ns) => {
                self.note(operation, Phase::Queue, given_ns - at_ns, 1);
                self.note(operation, Phase::Put, nanos(now).saturating_sub(given_ns), 1);
                self.replies(operation, 1);
            }
        }
    }

    /// Something is answered that stands on nothing that was not durable.
    pub(super) fn waited(&mut self, Asked { operation, at_ns }: Asked, now: Duration) {
        self.note(operation, Phase::Queue, nanos(now).saturating_sub(at_ns), 1);
        self.replies(operation, 1);
    }

    /// Something is answered that was taken up at `begun`, and all of which is read.
    pub(super) fn read(&mut self, asked: Asked, begun: Duration, now: Duration) {
        self.note(asked.operation, Phase::Read, nanos(now.saturating_sub(begun)), 1);
        self.waited(asked, begun);
    }

    /// Records of a subscription are sent.
    pub(super) fn delivered(&mut self) {
        self.replies(Operation::Deliver, 1);
    }

    /// All that was answered in a turn which began so long ago is taken.
    fn replied(&mut self, took: Duration) {
        self.is_replying = false;
        for operation in Operation::ALL {
            let answers = std::mem::take(&mut self.replying[*operation as usize]);
            if answers > 0 {
                self.note(*operation, Phase::Reply, nanos(took), answers);
            }
        }
    }

    /// What was counted on this shard.
    pub(super) fn told(&self, shard: u16) -> Vec<Timing> {
        let each = Operation::ALL.iter().flat_map(|operation| Phase::ALL.iter().map(|phase| (*operation, *phase)));
        let timing = |(operation, phase): (Operation, Phase)| {
            let times = self.histograms[operation as usize][phase as usize];
            let is_told = times.count() > 0 || ALWAYS_TOLD.contains(&(operation, phase));
            is_told.then_some(Timing { shard, operation, phase, times })
        };
        each.filter_map(timing).collect()
    }
}

impl Shard {
    /// Whether this turn has answered anything of which [`Shard::replied`] is to be told.
    #[inline]
    pub(crate) fn is_replying(&self) -> bool {
        self.timings.is_replying
    }

    /// The kernel, or the shard of its connection, has what was answered in this turn, which began so long ago.
    pub(crate) fn replied(&mut self, took: Duration) {
        self.timings.replied(took);
    }
}

/// What a request is counted as, if it is answered by the stream's shard alone.
pub(super) fn operation(request: &Request) -> Option<Operation> {
    Some(match request {
        Request::AppendOnce(_) => Operation::Append,
        Request::Read(_) => Operation::Read,
        Request::Subscribe(_) => Operation::Subscribe,
        Request::CheckTail(_) => Operation::CheckTail,
        Request::Trim(_) => Operation::Trim,
        Request::Fence(_) => Operation::Fence,
        Request::GetToken(_) => Operation::Token,
        Request::StreamCreate(_) => Operation::Create,
        Request::StreamGet(_) => Operation::Get,
        Request::StreamReconfigure(_) => Operation::Reconfigure,
        Request::StreamDelete(_) => Operation::Delete,
        Request::Open(_) => Operation::Open,
        Request::Bucket(_)
        | Request::StreamList(_)
        | Request::Close(_)
        | Request::Credit(_)
        | Request::Unsubscribe(_)
        | Request::StarGet(_) => return None,
    })
}

#[inline]
fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

/// Whether it is written by itself.
fn enters(operation: Operation) -> bool {
    match operation {
        Operation::Append
        | Operation::Trim
        | Operation::Fence
        | Operation::Create
        | Operation::Reconfigure
        | Operation::Delete => true,
        Operation::Read
        | Operation::Subscribe
        | Operation::Deliver
        | Operation::CheckTail
        | Operation::Token
        | Operation::Get
        | Operation::Open => false,
    }
}
