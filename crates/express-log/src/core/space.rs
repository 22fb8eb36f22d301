//! Where the next frame goes, and whether there is room for it.

use std::collections::VecDeque;

use wire::ids::SegmentId;
use wire::log_frame::{BLOCK_BYTES, padded_bytes};
use wire::segment::FRAMES_AT;

use crate::room::{NoRoom, RoomClass};

/// A segment that frames can be written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blank {
    pub(crate) segment: SegmentId,
    pub(crate) salt: u64,
}

/// The place of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: SegmentId,
    pub(crate) salt: u64,
    pub(crate) offset: u32,
}

/// How large a log and its segments may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpaceLimits {
    pub(crate) segment_bytes: u32,
    pub(crate) log_bytes_max: u64,
    /// Segments that may be made before there are too many to list when the log is opened again.
    pub(crate) segments_max: usize,
    /// Blank segments kept besides the reserve.
    pub(crate) ready_segments: usize,
    /// The same while nothing is written.
    pub(crate) idle_segments: usize,
}

/// The segments of one log, as far as a writer cares.
///
/// The last blank segment is the reserve: only control entries may roll into it, so that a trim or a delete can
/// always be written.
#[derive(Debug)]
pub(crate) struct Space {
    limits: SpaceLimits,
    active: Blank,
    /// Where the next frame starts in the active segment.
    at: usize,
    /// Whether the active segment is the reserve, so that it takes control entries only.
    in_reserve: bool,
    ready: VecDeque<Blank>,
    being_made: usize,
    /// Whether the last attempt to make a segment found the disk full.
    disk_full: bool,
    used_bytes: u64,
    made: usize,
    next_segment: SegmentId,
}

impl Space {
    /// The space of a log that starts to write to `active`, with `used_bytes` in all its segments, that one included.
    ///
    /// When no other may be made beside it, it is the reserve: a full log is full again after a restart.
    pub(crate) fn new(limits: SpaceLimits, active: Blank, used_bytes: u64) -> Self {
        let mut space = Self {
            limits,
            active,
            at: FRAMES_AT as usize,
            in_reserve: false,
            ready: VecDeque::new(),
            being_made: 0,
            disk_full: false,
            used_bytes,
            made: 0,
            next_segment: active.segment.next(),
        };
        space.in_reserve = !space.may_make();
        space
    }

    /// Whether a frame that starts at the cursor can have `bytes`.
    pub(crate) fn can_grow_to(&self, bytes: usize) -> bool {
        self.at + padded_bytes(bytes) <= self.segment_bytes()
    }

    /// Answers whether an entry may go where `grown_bytes` (the open frame with it) or `fresh_bytes` (a frame of its own
    /// behind `open_bytes`) take it; `grown_bytes` is none when the open frame cannot take it.
    pub(crate) fn room(
        &self,
        class: RoomClass,
        open_bytes: usize,
        grown_bytes: Option<usize>,
        fresh_bytes: usize,
    ) -> Result<(), NoRoom> {
        let limit = match class {
            RoomClass::Control => self.segment_bytes(),
            RoomClass::Data => self.data_limit(),
        };
        let end = match grown_bytes {
            Some(bytes) if self.can_grow_to(bytes) => self.at + padded_bytes(bytes),
            _ => self.at + padded_bytes(open_bytes) + padded_bytes(fresh_bytes),
        };
        let kept_back = usize::from(class == RoomClass::Data);
        if end <= limit || (end > self.segment_bytes() && self.ready.len() > kept_back) {
            return Ok(());
        }
        Err(self.no_room())
    }

    /// How far data may fill the active segment: not to the end while no reserve stands behind it.
    fn data_limit(&self) -> usize {
        let bytes = self.segment_bytes();
        match (self.in_reserve, self.ready.is_empty()) {
            (true, _) => 0,
            (false, true) => bytes - bytes / 8,
            (false, false) => bytes,
        }
    }

    fn no_room(&self) -> NoRoom {
        if self.being_made > 0 || self.may_make() {
            NoRoom::Busy
        } else {
            NoRoom::Full { used_bytes: self.used_bytes, log_bytes_max: self.limits.log_bytes_max }
        }
    }

    /// Takes the place at the cursor.
    pub(crate) fn here(&self) -> Place {
        let offset = u32::try_from(self.at).expect("a segment is shorter than 4 GiB");
        Place { segment: self.active.segment, salt: self.active.salt, offset }
    }

    /// Moves the cursor past a frame of `bytes`.
    pub(crate) fn pass(&mut self, bytes: usize) {
        self.at += padded_bytes(bytes);
        assert!(self.at <= self.segment_bytes(), "a frame was placed past the end of its segment");
    }

    /// Goes on in the next blank segment.
    pub(crate) fn roll(&mut self) {
        let next = self.ready.pop_front().expect("room was answered before a sequence number was assigned");
        self.active = next;
        self.at = FRAMES_AT as usize;
        self.in_reserve = self.ready.is_empty();
    }

    /// Whether a segment should be made now; while nothing is written more are made ahead than under load.
    pub(crate) fn wants_segment(&self, is_idle: bool) -> bool {
        let ahead = if is_idle { self.limits.idle_segments } else { self.limits.ready_segments };
        self.ready.len() + self.being_made <= ahead && self.may_make()
    }

    /// The id of a segment to be made now, if one should be; the caller makes it and says how it went.
    pub(crate) fn take_wish(&mut self, is_idle: bool) -> Option<SegmentId> {
        if !self.wants_segment(is_idle) {
            return None;
        }
        let id = self.next_segment;
        self.next_segment = id.next();
        self.being_made += 1;
        self.made += 1;
        self.used_bytes += u64::from(self.limits.segment_bytes);
        Some(id)
    }

    fn may_make(&self) -> bool {
        !self.disk_full
            && self.made < self.limits.segments_max
            && self.used_bytes + u64::from(self.limits.segment_bytes) <= self.limits.log_bytes_max
    }

    /// A wished segment stands on the disk, zeroed and durable. They come in the order of their ids, and are used in it: a log is read so.
    pub(crate) fn on_made(&mut self, blank: Blank) {
        let before = self.ready.back().map_or(self.active.segment, |last| last.segment);
        assert!(before < blank.segment, "segment {} is made after segment {before}", blank.segment);
        self.being_made -= 1;
        self.ready.push_back(blank);
        if self.in_reserve && self.ready.len() == 1 {
            // The new one is the reserve from here on, and the old reserve takes data again.
            self.in_reserve = false;
        }
    }

    /// A wished segment could not be made for want of space.
    pub(crate) fn on_not_made(&mut self) {
        self.being_made -= 1;
        self.made -= 1;
        self.used_bytes -= u64::from(self.limits.segment_bytes);
        self.disk_full = true;
    }

    /// A segment with a file of `bytes` was freed: another may be made, and listed, in its place.
    pub(crate) fn on_freed(&mut self, bytes: u64) {
        self.used_bytes -= bytes;
        self.limits.segments_max += 1;
    }

    /// Time has passed since the disk was full: try again.
    pub(crate) fn on_retry(&mut self) {
        self.disk_full = false;
    }

    /// Whether data can't go on without another segment: behind the active one stands the reserve at most.
    pub(crate) fn is_short(&self) -> bool {
        self.ready.len() <= 1
    }

    /// Whether control entries can't go on without another segment for long.
    pub(crate) fn is_nearly_over(&self) -> bool {
        self.ready.is_empty() && self.at > self.segment_bytes() - self.segment_bytes() / 8
    }

    /// Whether a wished segment is still being made.
    pub(crate) fn is_making(&self) -> bool {
        self.being_made > 0
    }

    /// Whether the disk was full at the last attempt.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_full
    }

    /// Whether a block is left in the active segment.
    pub(crate) fn has_block(&self) -> bool {
        self.at + BLOCK_BYTES <= self.segment_bytes()
    }

    pub(crate) fn active(&self) -> SegmentId {
        self.active.segment
    }

    /// The segments that nothing was written to.
    pub(crate) fn blanks(&self) -> impl Iterator<Item = Blank> {
        self.ready.iter().copied()
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(crate) fn limits(&self) -> SpaceLimits {
        self.limits
    }

    pub(crate) fn next_segment(&self) -> SegmentId {
        self.next_segment
    }

    fn segment_bytes(&self) -> usize {
        self.limits.segment_bytes as usize
    }
}
