//! Reads: where they start, what they are bound by, how they end.
//!
//! A reader walks a stream's records in order, a piece at a time: from the store, from a head log, from memory.

use std::collections::VecDeque;
use std::time::Duration;

use slab::Slab;
use wire::frame::Kind;
use wire::hot::RecordsHead;
use wire::ids::{SeqNum, StreamId};
use wire::limits::{READ_PAGE_BYTES_MAX, READ_PAGE_RECORDS_MAX};
use wire::message::{Read, Start, Trim, TrimTo};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::commit::{Answering, Call, Tail, To};
use super::pieces::Wait;
use super::row::{Found, Row};
use super::shard::Shard;
use super::shares::Work as TimeOf;
use super::span::{Cursor, Damaged, Span, gather};
use super::subscribe::Subscription;
use super::verbs::deleted_meanwhile;
use super::world::{Flow, World};

/// What is under way for readers.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    pub(super) jobs: Slab<Job>,
    generation: u32,
    pages: usize,
    put_off: PutOff,
}

/// Readers that have had their share of the shard's time, in the order in which they go on: one that reads from memory, and one that
/// catches up. Each stands there once at most.
#[derive(Debug, Default)]
struct PutOff {
    reading: VecDeque<u64>,
    catching_up: VecDeque<u64>,
}

/// A reader at work.
#[derive(Debug)]
pub(crate) struct Job {
    /// The row it reads.
    pub(super) row: u32,
    /// The stream it reads: the row may have gone to another.
    pub(super) stream_id: StreamId,
    /// Who is answered.
    pub(super) call: Call,
    /// When it was taken up.
    pub(super) begun: Duration,
    /// Tells this job from an earlier one at the same place.
    pub(super) generation: u32,
    /// What it waits for.
    pub(super) waits: Option<Wait>,
    /// It was put off, and its turn has come: one step of it is not held against its share.
    pub(super) is_due: bool,
    /// What it is for.
    pub(super) work: Work,
}

/// What a reader is for.
#[derive(Debug)]
pub(crate) enum Work {
    /// Find the first record stamped at or after a time, in the extent of this record or right behind it.
    Find {
        /// The time.
        ms: i64,
        /// A record of the extent.
        within: SeqNum,
        /// What goes on from there.
        then: Then,
    },
    /// Gather a page.
    Page(Page),
    /// Follow the stream.
    Subscription(Subscription),
}

/// What a found position is for.
#[derive(Debug, Clone)]
pub(crate) enum Then {
    /// A page starts there.
    Page(Bounds),
    /// A subscription starts there.
    Subscribe(Subscription),
    /// The trim point moves there.
    Trim,
}

/// What a page is bound by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    records_left: u64,
    bytes_left: u64,
    until_ms: Option<i64>,
}

/// A page that is being gathered.
#[derive(Debug)]
pub(crate) struct Page {
    start: SeqNum,
    cursor: Cursor,
    payload: Vec<u8>,
}

impl PutOff {
    fn of(&mut self, work: TimeOf) -> &mut VecDeque<u64> {
        if work == TimeOf::CatchUp { &mut self.catching_up } else { &mut self.reading }
    }
}

impl Readers {
    /// Pages and searches that are under way.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Subscriptions there are.
    pub(crate) fn subscriptions(&self) -> usize {
        self.jobs.len() - self.pages
    }

    /// Adds a job and answers its number.
    pub(super) fn insert(&mut self, mut job: Job) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        job.generation = self.generation;
        self.pages += usize::from(!matches!(job.work, Work::Subscription(_)));
        u32::try_from(self.jobs.insert(job)).unwrap_or_else(|_| unreachable!("bounded by connections"))
    }

    /// Takes a job out.
    pub(super) fn remove(&mut self, job: u32) -> Option<Job> {
        let job = self.jobs.try_remove(job as usize)?;
        self.pages -= usize::from(!matches!(job.work, Work::Subscription(_)));
        Some(job)
    }

    /// Puts a reader off until its turn comes.
    pub(super) fn put_off(&mut self, job: u32, work: TimeOf) {
        let Some(state) = self.jobs.get_mut(job as usize) else { return };
        state.waits = Some(Wait::Turn);
        let ticket = state.ticket(job);
        self.put_off.of(work).push_back(ticket);
    }

    /// Whether readers of a kind are put off.
    pub(crate) fn has_put_off(&self, work: TimeOf) -> bool {
        match work {
            TimeOf::CatchUp => !self.put_off.catching_up.is_empty(),
            _ => !self.put_off.reading.is_empty(),
        }
    }

    /// The job that asked under this number.
    pub(super) fn of_ticket(&self, ticket: u64) -> Option<u32> {
        let [g0, g1, g2, g3, j0, j1, j2, j3] = ticket.to_be_bytes();
        let (generation, job) = (u32::from_be_bytes([g0, g1, g2, g3]), u32::from_be_bytes([j0, j1, j2, j3]));
        self.jobs.get(job as usize).filter(|state| state.generation == generation).map(|_| job)
    }
}

impl Bounds {
    fn of(read: &Read) -> Self {
        let bound = |asked: u32, max: u32| u64::from(if asked == 0 { max } else { asked.min(max) });
        Self {
            records_left: bound(read.limit, READ_PAGE_RECORDS_MAX),
            bytes_left: bound(read.max_bytes, READ_PAGE_BYTES_MAX),
            until_ms: read.until_ms,
        }
    }

    fn cursor(self, next: SeqNum) -> Cursor {
        Cursor {
            next,
            records_left: self.records_left,
            bytes_left: self.bytes_left,
            until_ms: self.until_ms,
            has_taken: false,
            is_full: false,
        }
    }
}

impl Job {
    /// What it asks under, being this job.
    pub(super) fn ticket(&self, job: u32) -> u64 {
        u64::from(self.generation) << 32 | u64::from(job)
    }

    /// A reader that has not begun.
    pub(super) fn new((row, stream_id): (u32, StreamId), call: Call, begun: Duration, work: Work) -> Self {
        Self { row, stream_id, call, begun, generation: 0, waits: None, is_due: false, work }
    }
}

impl Work {
    /// What a read whose start is found there comes to.
    fn reading(read: &Read, found: Found) -> Self {
        let bounds = Bounds::of(read);
        match (found, read.start) {
            (Found::Within(within), Start::Timestamp(ms)) => Self::Find { ms, within, then: Then::Page(bounds) },
            (Found::At(start) | Found::Within(start), _) => Self::Page(Page::from(start, bounds)),
        }
    }

    /// Goes on behind records that are lost.
    pub(super) fn cross(&mut self, row: &Row, next: SeqNum) {
        match self {
            Self::Find { within, .. } => *within = next,
            Self::Page(page) => page.cursor.cross(row, next, &mut page.payload),
            Self::Subscription(subscription) => subscription.cross(row, next),
        }
    }

    /// The next record it looks at.
    pub(super) fn wanted(&self) -> SeqNum {
        match self {
            Self::Find { within, .. } => *within,
            Self::Page(page) => page.wanted(),
            Self::Subscription(subscription) => subscription.wanted(),
        }
    }

    /// Whether it goes on without a look at its share, as far as memory reaches: a page that is begun is ended, and a subscription is
    /// looked at between full frames, so that what commits goes out at once.
    pub(super) fn is_under_way(&self) -> bool {
        match self {
            Self::Find { .. } => false,
            Self::Page(page) => page.cursor.has_taken,
            Self::Subscription(_) => true,
        }
    }

    /// The subscription that it is, or is to become.
    pub(super) fn subscription_mut(&mut self) -> Option<&mut Subscription> {
        match self {
            Self::Find { then: Then::Subscribe(subscription), .. } | Self::Subscription(subscription) => {
                Some(subscription)
            }
            Self::Find { .. } | Self::Page(_) => None,
        }
    }
}

impl Page {
    /// An empty one.
    fn from(start: SeqNum, bounds: Bounds) -> Self {
        Self { start, cursor: bounds.cursor(start), payload: Vec::new() }
    }

    /// The next record it looks at.
    pub(super) fn wanted(&self) -> SeqNum {
        self.cursor.next
    }

    /// Takes what it may from a span.
    pub(super) fn gather(&mut self, row: &Row, span: Span<'_>) -> Result<(), Damaged> {
        gather(row, span, &mut self.cursor, &mut self.payload)
    }

    /// Whether there is nothing more to put on it; what a trim has taken from under it ends it too.
    pub(super) fn is_done(&self, row: &Row) -> bool {
        let Cursor { next, has_taken, is_full, .. } = self.cursor;
        is_full || next >= row.tail.seq_num || (has_taken && next < row.trim_point)
    }
}

impl Shard {
    /// Whether readers of a kind are put off.
    pub(crate) fn has_put_off(&self, work: TimeOf) -> bool {
        self.readers.has_put_off(work)
    }

    /// Goes on with readers of a kind that were put off: with the first at any rate, with more while there is time for them.
    pub(crate) fn take_up(&mut self, work: TimeOf, world: &mut impl World) {
        self.now = world.now();
        let mut has_gone_on = false;
        while !has_gone_on || world.may_go(work) {
            let Some(ticket) = self.readers.put_off.of(work).pop_front() else { break };
            let Some(job) = self.readers.of_ticket(ticket) else { continue };
            let state = &mut self.readers.jobs[job as usize];
            if state.waits == Some(Wait::Turn) {
                (state.waits, state.is_due, has_gone_on) = (None, true, true);
                self.go_on(job, world);
            }
        }
        self.close_acks(world);
    }

    /// A page of records.
    pub(super) fn read(&mut self, call: Call, read: &Read, world: &mut impl World) -> Result<Flow, Refusal> {
        let Some(row) = self.find_or_create(&read.address, |bucket| bucket.create_stream_on_read, world)? else {
            return Ok(Flow::Blocked);
        };
        let started = self.start(row, read.start, read.clamp);
        let to = To::Call(call);
        let (work, stream_id) = match (started, self.streams.row(row)) {
            (Err(refusal), _) => {
                self.answer_after(row, to, Answering::Refuse(refusal, Tail::Without), world);
                return Ok(Flow::Done);
            }
            (_, None) => return Err(deleted_meanwhile()),
            (Ok(found), Some(state)) => (Work::reading(read, found), state.stream_id),
        };
        self.begin(Job::new((row, stream_id), call, self.now.mono, work), world);
        Ok(Flow::Done)
    }

    /// Starts a page or a search.
    pub(super) fn begin(&mut self, job: Job, world: &mut impl World) {
        let conn = job.call.conn;
        world.page_begins(conn);
        let opening = match &job.work {
            Work::Find { then: Then::Subscribe(subscription), .. } => Some(subscription.handle()),
            _ => None,
        };
        let job = self.readers.insert(job);
        if let Some(handle) = opening {
            // From now on it holds its handle, and ends with its connection.
            self.sessions.note_subscription(conn, handle, job);
        }
        self.go_on(job, world);
    }

    /// Where a start lies among the committed records.
    pub(super) fn start(&self, row: u32, start: Start, clamp: bool) -> Result<Found, Refusal> {
        let Some(row) = self.streams.row(row) else { return Err(deleted_meanwhile()) };
        let (first, tail) = (row.trim_point, row.tail.seq_num);
        match start {
            Start::SeqNum(seq_num) if clamp => Ok(Found::At(seq_num.clamp(first, tail))),
            Start::SeqNum(seq_num) if seq_num < first => Err(trimmed(row, seq_num)),
            Start::SeqNum(seq_num) if seq_num > tail => {
                let message = format!("the start {seq_num} lies past the tail, which is {tail}");
                Err(Refusal::new(Reason::OutOfRange, message).with_tail(row.tail))
            }
            Start::SeqNum(seq_num) => Ok(Found::At(seq_num)),
            Start::Timestamp(ms) => Ok(row.find_timestamp(ms)),
            Start::Last(records) => Ok(Found::At(tail.back(records).max(first))),
        }
    }

    /// Move the trim point.
    pub(super) fn trim(&mut self, call: Call, trim: &Trim, world: &mut impl World) -> Result<Flow, Refusal> {
        let Some(row) = self.find(&trim.address, world)? else { return Ok(Flow::Blocked) };
        let to = To::Call(call);
        let Some(state) = self.streams.row(row) else { return Err(deleted_meanwhile()) };
        let ms = match trim.to {
            TrimTo::SeqNum(seq_num) => return self.trim_to(to, row, seq_num, world),
            TrimTo::Timestamp(ms) => ms,
        };
        match state.find_timestamp(ms) {
            Found::At(seq_num) => self.trim_to(to, row, seq_num, world),
            Found::Within(within) => {
                let stream_id = state.stream_id;
                let work = Work::Find { ms, within, then: Then::Trim };
                self.begin(Job::new((row, stream_id), call, self.now.mono, work), world);
                Ok(Flow::Done)
            }
        }
    }

    /// A time was looked for and is found: what it was for goes on.
    pub(super) fn found(&mut self, job: u32, seq_num: SeqNum, world: &mut impl World) {
        let Some(state) = self.readers.remove(job) else { return };
        let Work::Find { then, .. } = state.work else { unreachable!("only a search finds") };
        let Job { row, stream_id, call, begun, .. } = state;
        world.page_ends(call.conn);
        match then {
            Then::Trim => {
                let to = To::Call(call);
                let outcome = self.trim_to(to, row, seq_num, world);
                let refusal = match outcome {
                    Ok(Flow::Done) => return,
                    Ok(Flow::Blocked) => Refusal::new(Reason::ResourceExhausted, "the log is behind"),
                    Err(refusal) => refusal,
                };
                self.answer_after(row, to, Answering::Refuse(refusal, Tail::Without), world);
            }
            Then::Page(bounds) => {
                let work = Work::Page(Page::from(seq_num, bounds));
                self.begin(Job::new((row, stream_id), call, begun, work), world);
            }
            Then::Subscribe(subscription) => {
                self.sessions.forget_subscription(call.conn, subscription.handle());
                self.begin_subscription((row, stream_id), call, subscription.from(seq_num), world);
            }
        }
    }

    /// A reader can't go on.
    pub(super) fn fail(&mut self, job: u32, refusal: Refusal, world: &mut impl World) {
        let Some(state) = self.readers.jobs.get(job as usize) else { return };
        if let Work::Subscription(_) = state.work {
            self.end_subscription(job, refusal, world);
            return;
        }
        let Some(state) = self.readers.remove(job) else { return };
        world.page_ends(state.call.conn);
        if let Work::Find { then: Then::Subscribe(subscription), .. } = &state.work {
            self.sessions.forget_subscription(state.call.conn, subscription.handle());
        }
        let to = To::Call(state.call);
        self.answer_after(state.row, to, Answering::Refuse(refusal, Tail::Without), world);
    }

    pub(super) fn finish_page(&mut self, job: u32, world: &mut impl World) {
        let Some(state) = self.readers.remove(job) else { return };
        let Job { call, begun, .. } = state;
        world.page_ends(call.conn);
        let (Work::Page(page), Some(row)) = (state.work, self.streams.row(state.row)) else { return };
        let head = RecordsHead {
            subscription: 0,
            at_tail: page.cursor.next >= row.tail.seq_num,
            start: page.start,
            end: page.cursor.next,
            tail: row.tail,
            trim_point: row.trim_point,
        };
        if row.is_committed() {
            if let Some(asked) = call.asked {
                self.timings.read(asked, begun, self.now.mono);
            }
            if let Some(out) = world.out(call.conn) {
                out.hot(Kind::Page, call.correlation, &head.encode(), &page.payload);
            }
            return;
        }
        // The stream is being made by this very read: it is seen once its creation is durable.
        let mut frame = super::outbox::OutBuffer::default();
        frame.hot(Kind::Page, call.correlation, &head.encode(), &page.payload);
        let to = To::Call(call);
        self.answer_after(state.row, to, Answering::Frame(frame.take()), world);
    }
}

/// The refusal of a start below the trim point.
pub(super) fn trimmed(row: &Row, seq_num: SeqNum) -> Refusal {
    let message = format!("record {seq_num} is trimmed: the first one there is {}", row.trim_point);
    Refusal::new(Reason::Trimmed, message).with_tail(row.tail).with_trim_point(row.trim_point)
}
