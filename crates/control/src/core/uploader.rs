//! When is a chunk cut, what goes into it, when is it put again, and what is committed?
//!
//! Standard entries wait for their chunk and go first; entries to settle fill what is left. Positions are given out when a chunk
//! is cut, without a gap; chunks are under way side by side, and are committed in the order of their positions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use wire::chunk::Settles;
use wire::handoff::Parcel;
use wire::ids::{LogId, Lsn, ShardId};

/// No chunk's entries are more than this, unless one parcel alone is.
const BODY_BYTES_MAX: usize = 15 << 20;
/// What a chunk keeps free for entries to settle, once they have waited [`OVERDUE_AGES`] times their age: one part in this many.
const OVERDUE_SHARE: usize = 4;
const OVERDUE_AGES: u32 = 4;
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How much of an idle time's allowance of puts can be used at once.
const BURST: Duration = Duration::from_secs(1);

/// When chunks are cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) chunk_bytes: usize,
    pub(crate) in_flight: usize,
    pub(crate) standard_age: Duration,
    pub(crate) settle_age: Duration,
    pub(crate) stall_after: Duration,
    pub(crate) puts_per_second_max: u32,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    /// Build this chunk and put it; answered by [`Uploads::on_put`].
    Put(Cut),
    /// Put the chunk at this position again, the same bytes under the same nonce; answered by [`Uploads::on_put`].
    Again(u64),
    /// Every chunk up to this one stands.
    Committed(Committed),
    /// The store has committed nothing for a while.
    Stalled(Arc<str>),
    /// It commits again.
    Unstalled,
}

/// A chunk before it is bytes.
#[derive(Debug, PartialEq)]
pub(crate) struct Cut {
    pub(crate) position: u64,
    pub(crate) parcels: Vec<Parcel>,
    /// Of every head log of this star: what the chunk settles, or how far it is settled before.
    pub(crate) settles: Vec<Settles>,
}

/// What a committed chunk means to the shards.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) position: u64,
    /// The last entry of each Standard lane.
    pub(crate) standard: Vec<(ShardId, Lsn)>,
    /// The last entry of each head log.
    pub(crate) settled: Vec<(ShardId, LogId, Lsn)>,
}

/// How a put went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// The chunk stands.
    Done,
    /// It may or may not stand.
    Failed(Arc<str>),
}

/// Entries that wait for a chunk.
#[derive(Debug)]
struct Waiting {
    source: Source,
    parcel: Parcel,
    since: Duration,
    number: u64,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Standard { shard: ShardId, upto: Lsn },
    Settle { shard: ShardId, log: LogId, to: Lsn },
}

#[derive(Debug)]
struct Flight {
    means: Committed,
    sent: Duration,
    done: bool,
    failures: u32,
    again_at: Option<Duration>,
    why: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

/// The chunks of one channel, from entries to commits.
#[derive(Debug)]
pub(crate) struct Uploads {
    rules: Rules,
    standard: Lane,
    settle: Lane,
    /// By position, the first one's being the first that is not committed.
    flights: VecDeque<Flight>,
    next_position: u64,
    standard_upto: BTreeMap<ShardId, Lsn>,
    /// Of each head log, the LSN after the last one that was handed over.
    handed_over: BTreeMap<LogId, Lsn>,
    /// Of each head log, the LSN after the last one in a chunk that was cut.
    settled_to: BTreeMap<LogId, Lsn>,
    /// How many parcels were taken, and the number that those have not reached for which somebody waits.
    taken: u64,
    flush_until: u64,
    progress_at: Duration,
    is_stalled: bool,
    /// When the allowance of puts would be used up to its last one if they had been spread evenly.
    allowance_at: Duration,
}

impl Uploads {
    /// Starts at `position`, with head logs settled up to before these LSNs.
    pub(crate) fn new(rules: Rules, position: u64, settled_to: BTreeMap<LogId, Lsn>) -> Self {
        Self {
            rules,
            standard: Lane::default(),
            settle: Lane::default(),
            flights: VecDeque::new(),
            next_position: position,
            standard_upto: BTreeMap::new(),
            handed_over: settled_to.clone(),
            settled_to,
            taken: 0,
            flush_until: 0,
            progress_at: Duration::ZERO,
            is_stalled: false,
            allowance_at: Duration::ZERO,
        }
    }

    /// Takes entries of a Standard lane, the last of them being `upto`.
    pub(crate) fn on_standard(&mut self, (shard, upto): (ShardId, Lsn), parcel: Parcel, now: Duration) {
        let before = self.standard_upto.insert(shard, upto);
        assert!(before.is_none_or(|before| before < upto), "lane {shard} is at {before:?}, {upto} follows");
        self.take(Source::Standard { shard, upto }, parcel, now);
    }

    /// Takes the entries `from..to` of a head log.
    pub(crate) fn on_settle(
        &mut self,
        (shard, log): (ShardId, LogId),
        span: (Lsn, Lsn),
        parcel: Parcel,
        now: Duration,
    ) {
        let (from, to) = span;
        let before = self.handed_over.insert(log, to);
        assert!(before.is_none_or(|before| before == from), "log {log} is settled to {before:?}, {from} follows");
        assert!(from < to, "log {log} settles nothing from {from} to {to}");
        self.settled_to.entry(log).or_insert(from);
        self.take(Source::Settle { shard, log, to }, parcel, now);
    }

    /// Somebody waits for what was handed over so far.
    pub(crate) fn on_flush(&mut self) {
        self.flush_until = self.taken;
    }

    /// A put of the chunk at `position` has ended.
    pub(crate) fn on_put(&mut self, position: u64, put: Put, now: Duration) {
        let flight = self.flights.iter_mut().find(|flight| flight.means.position == position);
        let flight = flight.expect("puts that end are of chunks in flight");
        match put {
            Put::Done => flight.done = true,
            Put::Failed(why) => {
                let backoff = BACKOFF_MIN.saturating_mul(1 << flight.failures.min(16)).min(BACKOFF_MAX);
                flight.failures += 1;
                flight.again_at = Some(now + backoff);
                flight.why = Some(why);
            }
        }
    }

    /// What to do next; `None` until something comes in or [`Uploads::wake_at`].
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Action> {
        if self.flights.front().is_some_and(|first| first.done) {
            self.progress_at = now;
            if std::mem::take(&mut self.is_stalled) {
                return Some(Action::Unstalled);
            }
            return self.flights.pop_front().map(|flight| Action::Committed(flight.means));
        }
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.again_at.is_some_and(|at| at <= now)) {
            flight.again_at = None;
            return Some(Action::Again(flight.means.position));
        }
        if self.stalls_at().is_some_and(|at| at <= now) {
            self.is_stalled = true;
            let why = self.flights.front().and_then(|first| first.why.clone());
            return Some(Action::Stalled(why.unwrap_or_else(|| "the store does not answer".into())));
        }
        self.cuts_at(now).is_some_and(|at| at <= now).then(|| Action::Put(self.cut(now)))
    }

    /// When [`Uploads::poll`] may have something even if nothing comes in.
    pub(crate) fn wake_at(&self, now: Duration) -> Option<Duration> {
        let again = self.flights.iter().filter_map(|flight| flight.again_at).min();
        [again, self.stalls_at(), self.cuts_at(now)].into_iter().flatten().min()
    }

    /// Whether all that was handed over is committed.
    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.standard.waiting.is_empty() && self.settle.waiting.is_empty()
    }

    fn take(&mut self, source: Source, parcel: Parcel, since: Duration) {
        let lane = if matches!(source, Source::Standard { .. }) { &mut self.standard } else { &mut self.settle };
        lane.bytes += parcel.bytes.len();
        lane.waiting.push_back(Waiting { source, parcel, since, number: self.taken });
        self.taken += 1;
    }

    fn stalls_at(&self) -> Option<Duration> {
        let first = self.flights.front().filter(|_| !self.is_stalled)?;
        Some(first.sent.max(self.progress_at) + self.rules.stall_after)
    }

    /// When the next chunk is due, as things stand: at once when it is full.
    fn cuts_at(&self, now: Duration) -> Option<Duration> {
        if self.flights.len() >= self.rules.in_flight {
            return None;
        }
        if self.standard.bytes + self.settle.bytes >= self.rules.chunk_bytes {
            return Some(now);
        }
        let is_awaited = |first: &Waiting| first.number < self.flush_until;
        let due = |first: &Waiting, age: Duration| if is_awaited(first) { first.since } else { first.since + age };
        let standard_age = if self.flights.is_empty() { Duration::ZERO } else { self.rules.standard_age };
        let standard = self.standard.waiting.front().map(|first| due(first, standard_age));
        let settle = self.settle.waiting.front().map(|first| due(first, self.rules.settle_age));
        let due = standard.into_iter().chain(settle).min()?;
        Some(due.max(self.allowed_at()))
    }

    /// When one more chunk that is not full may be put.
    fn allowed_at(&self) -> Duration {
        (self.allowance_at + self.put_interval()).saturating_sub(BURST)
    }

    /// Nothing when puts are unbounded.
    fn put_interval(&self) -> Duration {
        Duration::from_secs(1).checked_div(self.rules.puts_per_second_max).unwrap_or_default()
    }

    fn cut(&mut self, now: Duration) -> Cut {
        // A full chunk takes an allowance if there is one, and otherwise goes without.
        self.allowance_at = (self.allowance_at.max(now) + self.put_interval()).min(now + BURST);
        let is_overdue =
            self.settle.waiting.front().is_some_and(|first| first.since + self.rules.settle_age * OVERDUE_AGES <= now);
        let share = if is_overdue { self.rules.chunk_bytes / OVERDUE_SHARE } else { 0 };
        let mut taken = Vec::new();
        let left = self.standard.drain_into(&mut taken, self.rules.chunk_bytes - share);
        self.settle.drain_into(&mut taken, left + share);
        let mut means = Committed { position: self.next_position, ..Committed::default() };
        let mut spans: BTreeMap<LogId, Settles> =
            self.settled_to.iter().map(|(log, to)| (*log, Settles { log: *log, from: *to, to: *to })).collect();
        for waiting in &taken {
            match waiting.source {
                Source::Standard { shard, upto } => raise(&mut means.standard, shard, upto),
                Source::Settle { shard, log, to } => {
                    let span = spans.get_mut(&log).expect("each log that settles is noted when it is handed over");
                    span.to = to;
                    self.settled_to.insert(log, to);
                    means.settled.retain(|(_, other, _)| *other != log);
                    means.settled.push((shard, log, Lsn::new(to.get() - 1)));
                }
            }
        }
        self.flights.push_back(Flight { means, sent: now, done: false, failures: 0, again_at: None, why: None });
        let position = self.next_position;
        self.next_position += 1;
        let parcels = taken.into_iter().map(|waiting| waiting.parcel).collect();
        Cut { position, parcels, settles: spans.into_values().collect() }
    }
}

fn raise(rows: &mut Vec<(ShardId, Lsn)>, shard: ShardId, upto: Lsn) {
    match rows.iter_mut().find(|(row, _)| *row == shard) {
        Some((_, last)) => *last = upto,
        None => rows.push((shard, upto)),
    }
}

impl Lane {
    /// Moves whole parcels until there are `target` bytes of them, and says how many bytes that leaves.
    fn drain_into(&mut self, taken: &mut Vec<Waiting>, target: usize) -> usize {
        let mut left = target;
        let mut body: usize = taken.iter().map(|waiting| waiting.parcel.bytes.len()).sum();
        while left > 0 {
            let Some(first) = self.waiting.front() else { break };
            let bytes = first.parcel.bytes.len();
            if body + bytes > BODY_BYTES_MAX && !taken.is_empty() {
                return 0;
            }
            body += bytes;
            left = left.saturating_sub(bytes);
            self.bytes -= bytes;
            taken.extend(self.waiting.pop_front());
        }
        left
    }
}

#[cfg(test)]
mod tests;
