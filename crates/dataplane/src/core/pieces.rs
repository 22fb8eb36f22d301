//! Where is the next piece of what a reader wants: in memory, in a head log, or in the store?
//!
//! A row knows the extents of its newest records; what lies before them is history, which control reads. One fetch a reader
//! is under way at a time. Extents may become history while a reader waits, never the other way round.

use wire::handoff::{HistoryFrom, HistorySpan, ReplyTo, ToControl};
use wire::ids::SeqNum;
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::lane::STANDARD_LOG;
use super::names::LOST_RECORDS_MAX;
use super::read::{Job, Work, trimmed};
use super::row::{Found, Row};
use super::shard::Shard;
use super::shares::Work as TimeOf;
use super::span::{Damaged, Lies, Span, find};
use super::verbs::deleted_meanwhile;
use super::world::{Fetch, FetchError, World};

/// Longest span that one fetch brings, in bytes, unless one extent is longer.
const FETCH_BYTES_MAX: u32 = 512 << 10;
/// Bytes of other streams that a fetch reads over rather than be two.
const FETCH_GAP_BYTES_MAX: u32 = 16 << 10;

/// What a reader waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Bytes of a head log.
    Disk(Fetch),
    /// Settled records.
    History(Beyond),
    /// Room among what control is asked.
    Room,
    /// That it is put off no more.
    Turn,
}

/// What lay behind history when it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Beyond {
    /// The first record behind it.
    next: SeqNum,
    /// Whether that record was here; else it is the tail.
    is_here: bool,
}

/// Where a piece of a stream is found.
enum Source<'a> {
    /// Here, as it lies in its log.
    Memory(Span<'a>),
    /// On disk.
    Disk(Fetch),
    /// In the store.
    History(Beyond),
}

/// What a span brought.
enum Taken {
    /// Records, or none: the reader goes on.
    More,
    /// The position that was looked for.
    Found(SeqNum),
}

impl Shard {
    /// A span that a reader waits for has come, or failed.
    pub(crate) fn on_fetched(&mut self, ticket: u64, result: Result<&[u8], FetchError>, world: &mut impl World) {
        self.now = world.now();
        let Some(job) = self.readers.of_ticket(ticket) else { return };
        let state = &mut self.readers.jobs[job as usize];
        let Some(Wait::Disk(asked)) = state.waits else { return };
        state.waits = None;
        let (row, stream_id) = (state.row, state.stream_id);
        let is_there = self.streams.row(row).is_some_and(|row| row.stream_id == stream_id);
        match result {
            _ if !is_there => self.fail(job, deleted_meanwhile(), world),
            Err(error) if error.is_gone && self.is_freed(asked.log, asked.segment) => {
                // It was freed meanwhile: what it held is history.
                if let Some(row) = self.streams.row_mut(row) {
                    row.forget(asked.log, asked.segment.next());
                }
                self.go_on(job, world);
            }
            Err(error) => self.fail(job, Refusal::new(Reason::Internal, error.to_string()), world),
            Ok(bytes) => {
                let lies = Lies::Log { log: asked.log, segment: asked.segment, offset: asked.offset };
                self.take_span(job, Span { lies, bytes, is_checked: false }, world);
            }
        }
        self.close_acks(world);
    }

    /// Settled records that a reader waits for have come, or couldn't be read.
    pub(super) fn on_history(&mut self, ticket: u64, result: Result<HistorySpan, Refusal>, world: &mut impl World) {
        let Some(job) = self.readers.of_ticket(ticket) else { return };
        let state = &mut self.readers.jobs[job as usize];
        let Some(Wait::History(beyond)) = state.waits else { return };
        state.waits = None;
        let wanted = state.work.wanted();
        // What a search finds may lie below the trim point: then what it looks for begins there.
        let is_search = matches!(state.work, Work::Find { .. });
        let row = self.streams.row(state.row).filter(|row| row.stream_id == state.stream_id);
        match (result, row) {
            (_, None) => self.fail(job, deleted_meanwhile(), world),
            (Err(refusal), _) => self.fail(job, refusal, world),
            (Ok(span), Some(_)) if !span.bytes.is_empty() && (is_search || span.end > wanted) => {
                let lies = Lies::Store { first: span.first, end: span.end };
                self.take_span(job, Span { lies, bytes: &span.bytes, is_checked: true }, world);
            }
            (Ok(_), Some(row)) if wanted < row.trim_point => self.go_on(job, world),
            // Nothing is settled from there on, so that what lay behind history is next: between them is a gap.
            (Ok(_), Some(_)) if beyond.is_here || beyond.next.since(wanted) >= LOST_RECORDS_MAX => {
                self.cross(job, beyond.next, world);
            }
            (Ok(_), Some(_)) => self.fail(job, missing(wanted), world),
        }
        self.close_acks(world);
    }

    /// A reader goes on behind records that are lost; what a search looks for lies there.
    fn cross(&mut self, job: u32, next: SeqNum, world: &mut impl World) {
        let Some(state) = self.readers.jobs.get_mut(job as usize) else { return };
        match &mut state.work {
            Work::Find { .. } => self.found(job, next, world),
            work @ (Work::Page(_) | Work::Subscription(_)) => {
                let Some(row) = self.streams.row(state.row) else { return };
                work.cross(row, next);
                self.go_on(job, world);
            }
        }
    }

    /// A reader goes on behind records that were given up; false when it is done.
    fn step_over(&mut self, job: u32, next: SeqNum, world: &mut impl World) -> bool {
        let Some(state) = self.readers.jobs.get_mut(job as usize) else { return false };
        let Some(row) = self.streams.row(state.row) else { return false };
        state.work.cross(row, next);
        let is_found = matches!(state.work, Work::Find { .. }) && next >= row.tail.seq_num;
        if is_found {
            self.found(job, next, world);
        }
        !is_found
    }

    /// Asks again what control's queue had no room for.
    pub(super) fn ask_again(&mut self, world: &mut impl World) {
        for ticket in std::mem::take(&mut self.unasked) {
            let Some(job) = self.readers.of_ticket(ticket) else { continue };
            let state = &mut self.readers.jobs[job as usize];
            if state.waits == Some(Wait::Room) {
                state.waits = None;
                self.go_on(job, world);
            }
        }
        self.close_acks(world);
    }

    /// Takes the piece at `wanted` from memory, or starts to fetch it; false when the reader waits or is gone.
    pub(super) fn step(&mut self, job: u32, wanted: SeqNum, world: &mut impl World) -> bool {
        let Some(state) = self.readers.jobs.get_mut(job as usize) else { return false };
        let Some(row) = self.streams.row_mut(state.row) else { return false };
        if let Some(to) = row.gap_over(wanted) {
            return self.step_over(job, to, world);
        }
        let (own_log, own, standard) = (self.config.own_log, &self.ring, &self.standard.ring);
        row.forget_from(wanted, |extent| {
            extent.log == STANDARD_LOG && standard.get(extent.segment, extent.offset, extent.bytes).is_none()
        });
        let ticket = state.ticket(job);
        let (is_due, is_under_way) = (std::mem::take(&mut state.is_due), state.work.is_under_way());
        let source = source(row, wanted, ticket, |extent| match extent.log {
            STANDARD_LOG => standard.get(extent.segment, extent.offset, extent.bytes),
            log if log == own_log => own.get(extent.segment, extent.offset, extent.bytes),
            _ => None,
        });
        let kind = match source {
            Source::Memory(_) => TimeOf::Read,
            Source::Disk(_) | Source::History(_) => TimeOf::CatchUp,
        };
        let may_wait = kind == TimeOf::CatchUp || !is_under_way;
        if may_wait && !is_due && !world.may_go(kind) {
            self.readers.put_off(job, kind);
            return false;
        }
        match source {
            Source::Disk(fetch) => {
                self.counts.fetches += 1;
                state.waits = Some(Wait::Disk(fetch));
                world.fetch(fetch);
                false
            }
            Source::History(beyond) => {
                let from = match state.work {
                    Work::Find { ms, .. } => HistoryFrom::Timestamp(ms),
                    Work::Page(_) | Work::Subscription(_) => HistoryFrom::SeqNum(wanted),
                };
                let reply_to = ReplyTo { shard: self.config.shard, ticket };
                let (slot, stream_id, bytes_max) = (row.slot, row.stream_id, FETCH_BYTES_MAX);
                let asked = world.to_control(ToControl::ReadHistory { reply_to, slot, stream_id, from, bytes_max });
                if asked.is_ok() {
                    self.counts.history_reads += 1;
                    state.waits = Some(Wait::History(beyond));
                } else {
                    state.waits = Some(Wait::Room);
                    self.unasked.push(ticket);
                }
                false
            }
            Source::Memory(span) => {
                self.counts.ring_hits += 1;
                let taken = take(state, row, span);
                self.conclude_taken(job, taken, world)
            }
        }
    }

    /// Gives a span that was fetched to its reader, and carries it on.
    fn take_span(&mut self, job: u32, span: Span<'_>, world: &mut impl World) {
        let Some(state) = self.readers.jobs.get_mut(job as usize) else { return };
        let Some(row) = self.streams.row(state.row) else { return };
        let wanted = state.work.wanted();
        let is_forgotten = matches!(span.lies, Lies::Log { .. }) && row.is_history(wanted);
        if wanted < row.trim_point || is_forgotten {
            // A trim came first, or it was settled: the row tells no more where this lies.
            return self.go_on(job, world);
        }
        let mut taken = take(state, row, span);
        if let (Ok(_), Work::Subscription(subscription)) = (&taken, &mut state.work) {
            match subscription.send_more(row, span, state.call.conn, world) {
                Ok(frames) => (0..frames).for_each(|_| self.timings.delivered()),
                Err(damaged) => taken = Err(damaged),
            }
        }
        if self.conclude_taken(job, taken, world) {
            self.go_on(job, world);
        }
    }

    /// Whether a reader that was given a span goes on.
    fn conclude_taken(&mut self, job: u32, taken: Result<Taken, Damaged>, world: &mut impl World) -> bool {
        match taken {
            Ok(Taken::More) => return true,
            Ok(Taken::Found(seq_num)) => self.found(job, seq_num, world),
            Err(damaged) => self.fail(job, Refusal::new(Reason::Internal, damaged.to_string()), world),
        }
        false
    }

    /// Carries a reader on with what is in memory, until it is done or waits.
    pub(super) fn go_on(&mut self, job: u32, world: &mut impl World) {
        while let Some(state) = self.readers.jobs.get_mut(job as usize) {
            if state.waits.is_some() {
                return;
            }
            let Some(row) = self.streams.row(state.row).filter(|row| row.stream_id == state.stream_id) else {
                self.fail(job, deleted_meanwhile(), world);
                return;
            };
            let wanted = match &mut state.work {
                Work::Find { ms, within, .. } if *within < row.trim_point => match row.find_timestamp(*ms) {
                    Found::At(seq_num) => {
                        self.found(job, seq_num, world);
                        return;
                    }
                    Found::Within(there) => {
                        *within = there;
                        there
                    }
                },
                Work::Find { within, .. } => *within,
                Work::Page(page) if page.is_done(row) => {
                    self.finish_page(job, world);
                    return;
                }
                Work::Page(page) => page.wanted(),
                Work::Subscription(_) => {
                    self.pump(job, world);
                    return;
                }
            };
            if wanted < row.trim_point {
                let refusal = trimmed(row, wanted);
                self.fail(job, refusal, world);
                return;
            }
            if !self.step(job, wanted, world) {
                return;
            }
        }
    }
}

/// The refusal of a record that is neither here nor in the store.
fn missing(wanted: SeqNum) -> Refusal {
    Refusal::new(Reason::Internal, format!("record {wanted} is neither in the head logs nor in the index"))
}

/// Finds the extent of a record, in memory, or as a fetch that brings its neighbours along.
fn source<'a>(
    row: &Row,
    wanted: SeqNum,
    ticket: u64,
    in_memory: impl Fn(&super::row::Extent) -> Option<&'a [u8]>,
) -> Source<'a> {
    let at = row.extent_of(wanted);
    let extent = match row.extents.get(at) {
        Some(extent) if extent.first <= wanted => extent,
        Some(extent) => return Source::History(Beyond { next: extent.first, is_here: true }),
        None => return Source::History(Beyond { next: row.tail.seq_num, is_here: false }),
    };
    let (log, segment, offset) = (extent.log, extent.segment, extent.offset);
    if let Some(bytes) = in_memory(extent) {
        return Source::Memory(Span { lies: Lies::Log { log, segment, offset }, bytes, is_checked: true });
    }
    let mut end = extent.end_offset();
    for next in &row.extents[at + 1..] {
        let follows = next.log == log && next.segment == segment && next.offset >= end;
        if !follows || next.offset - end > FETCH_GAP_BYTES_MAX || next.end_offset() - offset > FETCH_BYTES_MAX {
            break;
        }
        end = next.end_offset();
    }
    Source::Disk(Fetch { ticket, log, segment, offset, bytes: end - offset })
}

fn take(job: &mut Job, row: &Row, span: Span<'_>) -> Result<Taken, Damaged> {
    match &mut job.work {
        Work::Find { ms, within, .. } => find(row, span, (*within, *ms)).map(Taken::Found),
        Work::Page(page) => {
            page.gather(row, span)?;
            Ok(Taken::More)
        }
        Work::Subscription(subscription) => {
            subscription.gather(row, span)?;
            Ok(Taken::More)
        }
    }
}
