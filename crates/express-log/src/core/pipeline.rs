//! When entries become a commit, and when a commit may be answered.

use std::collections::VecDeque;
use std::time::Duration;

use wire::crc::crc32c;
use wire::ids::{Epoch, Lsn, SegmentId};
use wire::log_frame::{
    BLOCK_BYTES, BODY_BYTES_MAX, ENTRY_BYTES_MAX, ENTRY_PREFIX_BYTES, FrameHeader, HEADER_BYTES, padded_bytes,
    put_entry_prefix,
};
use wire::segment::FRAMES_AT;
use wire::superblock::EndedSegment;

use super::release::Kept;
use super::space::{Place, Space};
use crate::entry::EntryPos;
use crate::metrics::{CommitTimes, Counts};
use crate::planted::{Planted, is_planted};
use crate::room::{NoRoom, RoomClass};

/// How long a log is idle before a heartbeat repeats its durable LSN on disk.
pub(crate) const HEARTBEAT_AFTER: Duration = Duration::from_millis(20);

/// When a commit starts and how large it gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) commits_in_flight: usize,
    pub(crate) start_bytes: usize,
    pub(crate) commit_bytes_max: usize,
    pub(crate) pending_bytes_max: usize,
}

/// A frame that takes entries or waits to be written.
#[derive(Debug)]
struct Frame<B> {
    buffer: B,
    place: Place,
    /// Header and body so far.
    bytes: usize,
    entries: u32,
    first_lsn: Lsn,
    opened: Option<Duration>,
}

/// A frame on its way to the disk.
#[derive(Debug)]
struct Flight {
    id: u64,
    end_lsn: Lsn,
    bytes: usize,
    entries: u32,
    started: Duration,
    written: Option<Duration>,
    done: bool,
}

/// One write for the shell to do: `bytes` of `buffer` at `offset` of `segment`.
#[derive(Debug)]
pub(crate) struct Commit<B> {
    pub(crate) id: u64,
    pub(crate) segment: SegmentId,
    pub(crate) offset: u32,
    pub(crate) bytes: usize,
    pub(crate) buffer: B,
}

/// Commits of this size on average are bound by the disk's bandwidth rather than by its flushes.
const LARGE_COMMIT_BYTES: usize = 384 << 10;

/// Group commit: entries go into an open frame, frames go to the disk a few at a time, and become durable in order.
#[derive(Debug)]
pub(crate) struct Pipeline<B> {
    policy: Policy,
    epoch: Epoch,
    pub(crate) space: Space,
    open: Option<Frame<B>>,
    closed: VecDeque<Frame<B>>,
    flights: VecDeque<Flight>,
    /// Bytes of the frames in all three.
    pending_bytes: usize,
    /// The segments of this epoch that are full and kept.
    ended: Vec<EndedSegment>,
    next_lsn: Lsn,
    durable_lsn: Lsn,
    /// The durable LSN of the last frame that was built.
    told_lsn: Lsn,
    prev_header_crc: u32,
    next_commit: u64,
    /// Bytes of the commit that was started last.
    last_bytes: usize,
    /// The same over some commits, the last ones most.
    bytes_ewma: usize,
    idle_since: Duration,
    flush_ewma: Duration,
    commit_times: CommitTimes,
    closed_for_good: bool,
    pub(crate) counts: Counts,
}

impl<B: AsMut<[u8]>> Pipeline<B> {
    /// The pipeline of a log whose next entry is `next_lsn`, with all before it durable.
    pub(crate) fn new(policy: Policy, epoch: Epoch, space: Space, next_lsn: Lsn) -> Self {
        let durable_lsn = Lsn::new(next_lsn.get().saturating_sub(1));
        Self {
            policy,
            epoch,
            space,
            open: None,
            closed: VecDeque::new(),
            flights: VecDeque::new(),
            pending_bytes: 0,
            ended: Vec::new(),
            next_lsn,
            durable_lsn,
            // The superblock of this epoch says it.
            told_lsn: durable_lsn,
            prev_header_crc: 0,
            next_commit: 0,
            last_bytes: 0,
            bytes_ewma: 0,
            idle_since: Duration::ZERO,
            flush_ewma: Duration::ZERO,
            commit_times: CommitTimes::default(),
            closed_for_good: false,
            counts: Counts::default(),
        }
    }

    /// Answers whether an entry of `entry_bytes` may be appended next.
    #[inline]
    pub(crate) fn room(&self, entry_bytes: usize, class: RoomClass) -> Result<(), NoRoom> {
        if self.closed_for_good {
            return Err(NoRoom::Closed);
        }
        let need = ENTRY_PREFIX_BYTES + entry_bytes;
        if self.pending_bytes > 0 && self.pending_bytes + need > self.policy.pending_bytes_max {
            return Err(NoRoom::Busy);
        }
        let open_bytes = self.open.as_ref().map_or(0, |frame| frame.bytes);
        let grown = self.open.as_ref().and_then(|frame| self.grown_bytes(frame.bytes, need));
        self.space.room(class, open_bytes, grown, HEADER_BYTES + need)
    }

    /// The bytes of an open frame with `need` more, if it may take them.
    #[inline]
    fn grown_bytes(&self, bytes: usize, need: usize) -> Option<usize> {
        (bytes + need <= self.policy.commit_bytes_max).then_some(bytes + need)
    }

    /// Copies an entry into the open frame, for which `fill` gets `entry_bytes` of it; `buffer` makes one of at least the
    /// given length when a new frame is opened.
    ///
    /// # Panics
    /// When [`room`](Self::room) was not asked before.
    #[inline]
    pub(crate) fn append<R>(
        &mut self,
        entry_bytes: usize,
        buffer: impl FnOnce(usize) -> B,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> (Lsn, EntryPos, R) {
        assert!(!self.closed_for_good, "an append to a log that is closed");
        let need = ENTRY_PREFIX_BYTES + entry_bytes;
        let fits = self.open.as_ref().is_some_and(|frame| {
            self.grown_bytes(frame.bytes, need).is_some_and(|bytes| self.space.can_grow_to(bytes))
        });
        if !fits {
            self.open_frame(need, buffer);
        }
        let frame = self.open.as_mut().expect("a frame was opened just now");
        let start = frame.bytes + ENTRY_PREFIX_BYTES;
        let end = frame.bytes + need;
        let bytes = frame.buffer.as_mut();
        put_entry_prefix(&mut bytes[frame.bytes..start], entry_bytes);
        let filled = fill(&mut bytes[start..end]);
        let pos = entry_pos(frame.place, start, entry_bytes);
        frame.bytes = end;
        frame.entries += 1;
        self.pending_bytes += need;
        let lsn = self.next_lsn;
        self.next_lsn = lsn.next();
        (lsn, pos, filled)
    }

    #[cold]
    fn open_frame(&mut self, need: usize, buffer: impl FnOnce(usize) -> B) {
        assert!(need <= BODY_BYTES_MAX, "an entry is at most {ENTRY_BYTES_MAX} bytes");
        self.close_frame();
        let bytes = HEADER_BYTES + need;
        if !self.space.can_grow_to(bytes) {
            self.roll();
        }
        self.open = Some(Frame {
            buffer: buffer(padded_bytes(bytes.max(self.policy.commit_bytes_max))),
            place: self.space.here(),
            bytes: HEADER_BYTES,
            entries: 0,
            first_lsn: self.next_lsn,
            opened: None,
        });
        self.pending_bytes += HEADER_BYTES;
    }

    /// Goes on in the next segment.
    fn roll(&mut self) {
        self.ended.push(self.end_of(self.space.here()));
        self.space.roll();
    }

    /// A segment that ends at `place`, with all entries so far in it or before.
    fn end_of(&self, place: Place) -> EndedSegment {
        EndedSegment {
            segment: place.segment,
            salt: place.salt,
            epoch: self.epoch,
            end_lsn: self.next_lsn,
            end_offset: place.offset,
            loss_accepted: false,
        }
    }

    /// Where each segment of this epoch ends when nothing more is written: a log that says so needs no search for its end.
    pub(crate) fn ends(&self) -> Vec<EndedSegment> {
        assert!(self.is_drained(), "a log has no end while something is written");
        let blank =
            self.space.blanks().map(|blank| Place { segment: blank.segment, salt: blank.salt, offset: FRAMES_AT });
        let open = std::iter::once(self.space.here()).chain(blank).map(|place| self.end_of(place));
        self.ended.iter().copied().chain(open).collect()
    }

    /// The segments of this epoch that are full and kept, oldest first.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Kept> {
        let bytes = self.space.limits().segment_bytes.into();
        self.ended.iter().map(move |ended| Kept { segment: ended.segment, end_lsn: ended.end_lsn, bytes })
    }

    /// The segments below `first` were given up.
    pub(crate) fn forget_ended_below(&mut self, first: SegmentId) {
        self.ended.retain(|ended| ended.segment >= first);
    }

    fn close_frame(&mut self) {
        if let Some(frame) = self.open.take() {
            self.space.pass(frame.bytes);
            self.closed.push_back(frame);
        }
    }

    /// Remembers when the oldest entry came, and answers whether a commit should start.
    #[inline]
    pub(crate) fn on_turn(&mut self, now: Duration) -> bool {
        if let Some(frame) = &mut self.open {
            frame.opened.get_or_insert(now);
        }
        self.should_start(now)
    }

    /// Whether a commit should start now.
    pub(crate) fn should_start(&self, now: Duration) -> bool {
        if self.flights.len() >= self.policy.commits_in_flight {
            return false;
        }
        if !self.closed.is_empty() {
            return true;
        }
        let Some(frame) = &self.open else {
            return false;
        };
        self.flights.is_empty()
            || self.closed_for_good
            || frame.bytes >= self.policy.start_bytes
            || frame.opened.is_some_and(|opened| now >= opened + self.flush_ewma / 2)
    }

    /// When the open frame should start by its age alone, if nothing starts it before.
    pub(crate) fn start_at(&self) -> Option<Duration> {
        let opened = self.open.as_ref()?.opened?;
        (self.flights.len() < self.policy.commits_in_flight).then(|| opened + self.flush_ewma / 2)
    }

    /// Whether the next commit is at most `bytes` long and would go alone, and the one before it was as small: under load
    /// a small one is only the first of a burst, and whoever waits for it holds the rest up.
    pub(crate) fn is_small_and_alone(&self, bytes: usize) -> bool {
        self.last_bytes <= bytes
            && self.flights.is_empty()
            && self.closed.is_empty()
            && self.open.as_ref().is_some_and(|frame| frame.bytes <= bytes)
    }

    /// Whether something is written, in commits so large that their bytes cost more than their flushes.
    pub(crate) fn commits_are_large(&self) -> bool {
        !self.is_drained() && self.bytes_ewma >= LARGE_COMMIT_BYTES
    }

    /// The next frame to write, whether or not it should start yet.
    pub(crate) fn take_commit(&mut self, now: Duration) -> Option<Commit<B>> {
        if self.closed.is_empty() {
            self.close_frame();
        }
        let frame = self.closed.pop_front()?;
        Some(self.launch(frame, false, now))
    }

    /// Whether the log is idle but has not yet said on disk how far it is durable.
    pub(crate) fn wants_heartbeat(&self) -> bool {
        self.is_drained() && self.told_lsn < self.durable_lsn && self.space.has_block() && !self.closed_for_good
    }

    /// When the heartbeat is due, if one is wanted.
    pub(crate) fn heartbeat_at(&self) -> Option<Duration> {
        self.wants_heartbeat().then(|| self.idle_since + HEARTBEAT_AFTER)
    }

    /// An empty frame that says how far the log is durable; none when the segment has no block left for it, but that a seal
    /// goes to the next segment if there is one.
    pub(crate) fn take_note(&mut self, seal: bool, buffer: B, now: Duration) -> Option<Commit<B>> {
        if !self.is_drained() {
            return None;
        }
        if seal && !self.space.has_block() && self.space.blanks().next().is_some() {
            self.roll();
        }
        if !self.space.has_block() {
            return None;
        }
        let place = self.space.here();
        self.space.pass(HEADER_BYTES);
        self.pending_bytes += HEADER_BYTES;
        self.counts.heartbeats += 1;
        let frame = Frame { buffer, place, bytes: HEADER_BYTES, entries: 0, first_lsn: self.next_lsn, opened: None };
        Some(self.launch(frame, seal, now))
    }

    fn launch(&mut self, mut frame: Frame<B>, seal: bool, now: Duration) -> Commit<B> {
        let padded = padded_bytes(frame.bytes);
        let assigned = Lsn::new(self.next_lsn.get() - 1);
        let bytes = frame.buffer.as_mut();
        bytes[frame.bytes..padded].fill(0);
        let header = FrameHeader {
            seal,
            entries: frame.entries,
            first_lsn: frame.first_lsn,
            durable_lsn: if is_planted(Planted::DurableLsnAhead) { assigned } else { self.durable_lsn },
            epoch: self.epoch,
            segment: frame.place.segment,
            salt: frame.place.salt,
            offset: frame.place.offset,
            body_bytes: u32::try_from(frame.bytes - HEADER_BYTES).expect("a body is bounded"),
            body_crc: crc32c(&bytes[HEADER_BYTES..frame.bytes]),
            prev_header_crc: self.prev_header_crc,
        };
        self.prev_header_crc = header.encode(bytes);
        self.told_lsn = self.durable_lsn;
        let id = self.next_commit;
        self.next_commit += 1;
        self.last_bytes = frame.bytes;
        self.bytes_ewma = (self.bytes_ewma * 15 + frame.bytes) / 16;
        self.flights.push_back(Flight {
            id,
            end_lsn: header.end_lsn(),
            bytes: frame.bytes,
            entries: frame.entries,
            started: now,
            written: None,
            done: false,
        });
        self.counts.on_started(frame.bytes, padded, frame.opened.map_or(Duration::ZERO, |opened| now - opened));
        let Place { segment, offset, .. } = frame.place;
        Commit { id, segment, offset, bytes: padded, buffer: frame.buffer }
    }

    /// The bytes of a commit are written, and may not be durable yet.
    pub(crate) fn on_bytes_written(&mut self, id: u64, now: Duration) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) {
            flight.written = Some(now);
        }
    }

    /// A commit is on the disk; after a failure that changes nothing any more. Those that became durable by it come from [`next_durable`](Self::next_durable).
    pub(crate) fn on_written(&mut self, id: u64, now: Duration) {
        if self.counts.failed {
            return;
        }
        let flight = self.flights.iter_mut().find(|flight| flight.id == id).expect("a commit is written once");
        assert!(!flight.done, "a commit is written once");
        flight.done = true;
        flight.written.get_or_insert(now);
        let flush = now.saturating_sub(flight.started);
        self.flush_ewma = if self.flush_ewma.is_zero() { flush } else { (self.flush_ewma * 7 + flush) / 8 };
        self.idle_since = now;
    }

    /// Takes the oldest commit in flight off when it is on the disk, and answers the new durable LSN.
    ///
    /// Commits without entries pass silently.
    pub(crate) fn next_durable(&mut self) -> Option<Lsn> {
        if is_planted(Planted::AckOutOfOrder)
            && let Some(done) = self.flights.iter().position(|flight| flight.done)
        {
            self.flights.swap(0, done);
        }
        while self.flights.front().is_some_and(|flight| flight.done) {
            let flight = self.flights.pop_front()?;
            self.pending_bytes -= flight.bytes;
            if flight.entries > 0 {
                let durable = Lsn::new(flight.end_lsn.get() - 1);
                assert!(durable > self.durable_lsn, "the durable LSN never moves back");
                self.durable_lsn = durable;
                self.counts.entries += u64::from(flight.entries);
                // The last commit that came to the disk was what this one waited for, if not for itself.
                let (durable_at, written) = (self.idle_since, flight.written.unwrap_or(self.idle_since));
                self.commit_times = CommitTimes {
                    write: written.saturating_sub(flight.started),
                    sync: durable_at.saturating_sub(written),
                };
                return Some(durable);
            }
        }
        None
    }

    /// Takes no more entries. What is there is still written.
    pub(crate) fn close(&mut self) {
        self.closed_for_good = true;
    }

    /// Whether it takes no more entries.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed_for_good
    }

    /// The disk has failed: nothing is written or answered from here on.
    pub(crate) fn fail(&mut self) {
        self.closed_for_good = true;
        self.counts.failed = true;
        self.open = None;
        self.closed.clear();
        self.flights.clear();
    }

    /// Whether nothing waits or is in flight.
    pub(crate) fn is_drained(&self) -> bool {
        self.open.is_none() && self.closed.is_empty() && self.flights.is_empty()
    }

    /// The oldest segment that frames may still be written to.
    pub(crate) fn oldest_segment(&self) -> SegmentId {
        self.closed.front().map_or_else(|| self.space.active(), |frame| frame.place.segment)
    }

    pub(crate) fn durable_lsn(&self) -> Lsn {
        self.durable_lsn
    }

    pub(crate) fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    pub(crate) fn flush_ewma(&self) -> Duration {
        self.flush_ewma
    }

    /// How long the commit took by which entries became durable last.
    pub(crate) fn commit_times(&self) -> CommitTimes {
        self.commit_times
    }
}

#[inline]
fn entry_pos(place: Place, start: usize, entry_bytes: usize) -> EntryPos {
    #[expect(clippy::cast_possible_truncation, reason = "segments are shorter than 4 GiB, and so is all in them")]
    let (offset, bytes) = (place.offset + start as u32, entry_bytes as u32);
    EntryPos { segment: place.segment, offset, bytes }
}

/// A buffer for a frame without entries has at least this length.
pub(crate) const NOTE_BYTES: usize = BLOCK_BYTES;
