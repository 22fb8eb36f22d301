//! Where the log ends, and what is missing before: tells a torn tail from corruption.
//!
//! A place without a valid frame is a **hole**. Holes are normal: behind the last frame of a segment, and where a crash
//! tore a write that nobody was answered for. A hole is damage when something later (a durable LSN in a later frame, the
//! superblock) says that the entry expected there was durable. Nothing is lost when the next frame goes on with the
//! expected LSN.

use std::ops::Range;

use wire::ids::{Epoch, Lsn, SegmentId};
use wire::log_frame::FrameHeader;

use crate::planted::{Planted, is_planted};

/// The highest LSN that can be durable, whatever a superblock or a frame says: one past it is a number too.
const DURABLE_LSN_MAX: Lsn = Lsn::new(u64::MAX - 1);

/// A part of the log that was durable and is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The segment in which it begins.
    pub segment: SegmentId,
    /// Where in the segment's file.
    pub offset: u32,
    /// The entries that are lost.
    pub lsns: Range<Lsn>,
    /// An operator has said before to go on without them.
    pub accepted: bool,
}

/// A segment to scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) segment: SegmentId,
    pub(crate) salt: u64,
    pub(crate) epoch: Epoch,
    /// Frames end at or before it.
    pub(crate) limit: u32,
    pub(crate) loss_accepted: bool,
}

impl Span {
    /// The header of a frame that was written for `at` of this segment, if `bytes` start with one.
    pub(crate) fn frame_at(&self, at: u32, bytes: &[u8]) -> Option<FrameHeader> {
        let header = FrameHeader::decode(bytes).ok()?;
        let names = (header.segment, header.salt, header.epoch) == (self.segment, self.salt, self.epoch);
        let ours = (names || is_planted(Planted::FrameIdentityIgnored))
            && header.offset == at
            && at as usize + header.disk_bytes() <= self.limit as usize;
        ours.then_some(header)
    }
}

/// What to do with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Its entries come next.
    Deliver,
    /// It is no part of the log.
    Stale,
    /// Whether it counts depends on what later frames say: tell [`Scan::on_evidence`].
    Unsure,
}

/// Where a hole began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hole {
    segment: SegmentId,
    offset: u32,
    accepted: bool,
}

/// The state of a scan over the segments of a log, in order.
#[derive(Debug)]
pub(crate) struct Scan {
    next_lsn: Lsn,
    /// Everything at or below it was durable, by all that was seen.
    durable_lsn: Lsn,
    hole: Option<Hole>,
    /// Whether bytes were seen in the present hole.
    torn: bool,
    damages: Vec<Damage>,
    ended: bool,
    sealed: bool,
    last_epoch: Epoch,
    prev_header_crc: u32,
    /// Frames without entries that are not there.
    notes_lost: u64,
}

impl Scan {
    /// A scan that expects `next_lsn` first and knows that everything at or below `durable_lsn` was durable.
    pub(crate) fn new(next_lsn: Lsn, durable_lsn: Lsn) -> Self {
        let mut scan = Self {
            next_lsn,
            durable_lsn: Lsn::ZERO,
            hole: None,
            torn: false,
            damages: Vec::new(),
            ended: false,
            sealed: false,
            last_epoch: Epoch::ZERO,
            prev_header_crc: 0,
            notes_lost: 0,
        };
        scan.on_told(durable_lsn);
        scan
    }

    /// No usable frame stands at `offset`; `written` says whether other bytes than zeroes do.
    pub(crate) fn on_hole(&mut self, span: &Span, offset: u32, written: bool) {
        self.torn |= written;
        let accepted = span.loss_accepted;
        self.hole.get_or_insert(Hole { segment: span.segment, offset, accepted });
    }

    /// Everything at or below `durable_lsn` was durable, says something on the disk.
    fn on_told(&mut self, durable_lsn: Lsn) {
        if !is_planted(Planted::DurableLsnIgnored) {
            self.durable_lsn = self.durable_lsn.max(durable_lsn.min(DURABLE_LSN_MAX));
        }
    }

    /// A header holds whose body does not.
    pub(crate) fn on_bad_body(&mut self, span: &Span, header: &FrameHeader) {
        self.on_told(header.durable_lsn);
        self.on_hole(span, header.offset, true);
    }

    /// A whole frame.
    pub(crate) fn on_frame(&mut self, span: &Span, header: &FrameHeader) -> Judged {
        self.on_told(header.durable_lsn);
        if header.first_lsn < self.next_lsn {
            self.on_hole(span, header.offset, true);
            return Judged::Stale;
        }
        if header.first_lsn == self.next_lsn {
            self.count_lost_notes(header);
            self.go_on_after(header);
            return Judged::Deliver;
        }
        self.on_hole(span, header.offset, false);
        if self.durable_lsn < self.next_lsn && !self.hole.is_some_and(|hole| hole.accepted) {
            return Judged::Unsure;
        }
        self.damage_until(header.first_lsn, span.loss_accepted);
        self.go_on_after(header);
        Judged::Deliver
    }

    /// The highest durable LSN of all later frames: answers whether the frame that was unsure counts.
    ///
    /// When it does not, the log ends where the hole began.
    pub(crate) fn on_evidence(&mut self, span: &Span, header: &FrameHeader, durable_lsn: Lsn) -> bool {
        self.on_told(durable_lsn);
        if self.durable_lsn < self.next_lsn && !is_planted(Planted::HoleSkipped) {
            self.torn = true;
            self.ended = true;
            return false;
        }
        self.damage_until(header.first_lsn, span.loss_accepted);
        self.go_on_after(header);
        true
    }

    /// Entries before `first_lsn` are not there. What of them was durable is lost, which later frames may tell.
    fn damage_until(&mut self, first_lsn: Lsn, accepted_here: bool) {
        let Some(hole) = self.hole else {
            return;
        };
        self.damages.push(Damage {
            segment: hole.segment,
            offset: hole.offset,
            lsns: self.next_lsn..first_lsn,
            accepted: hole.accepted || accepted_here,
        });
    }

    /// A segment ends at `offset`, and all before `end_lsn` was in it or before: what of that was not found is lost here.
    pub(crate) fn on_known_end(&mut self, span: &Span, offset: u32, end_lsn: Lsn) {
        if self.next_lsn < end_lsn {
            self.on_hole(span, offset, false);
            self.damage_until(end_lsn, span.loss_accepted);
            self.next_lsn = end_lsn;
        }
        self.hole = None;
    }

    fn count_lost_notes(&mut self, header: &FrameHeader) {
        let before = if header.epoch == self.last_epoch { self.prev_header_crc } else { 0 };
        self.notes_lost += u64::from(before != header.prev_header_crc);
    }

    fn go_on_after(&mut self, header: &FrameHeader) {
        self.next_lsn = header.end_lsn();
        self.hole = None;
        self.torn = false;
        self.sealed = header.seal;
        self.last_epoch = header.epoch;
        let mut bytes = [0; wire::log_frame::HEADER_BYTES];
        self.prev_header_crc = header.encode(&mut bytes);
    }

    /// All segments were scanned, or the log has [ended](Self::has_ended) before: reports what is missing at the end.
    ///
    /// `at` is where the log would go on when no hole stands there.
    pub(crate) fn on_end(&mut self, at: (SegmentId, u32)) {
        if self.durable_lsn < self.next_lsn {
            return;
        }
        let hole = self.hole.unwrap_or(Hole { segment: at.0, offset: at.1, accepted: false });
        let lsns = self.next_lsn..self.durable_lsn.next();
        self.next_lsn = lsns.end;
        self.damages.push(Damage { segment: hole.segment, offset: hole.offset, lsns, accepted: hole.accepted });
    }

    /// Whether the log ends before what is left to scan.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether bytes stand behind the end that are no part of the log.
    pub(crate) fn is_torn(&self) -> bool {
        self.torn
    }

    /// Whether the last frame was a seal.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed && !self.torn
    }

    pub(crate) fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// What is lost, as far as it was durable by all that was seen.
    pub(crate) fn damages(&self) -> impl Iterator<Item = Damage> {
        let told_end = self.durable_lsn.next();
        self.damages.iter().map(move |damage| {
            let Range { start, end } = damage.lsns;
            Damage { lsns: start..end.min(told_end).max(start), ..damage.clone() }
        })
    }

    pub(crate) fn notes_lost(&self) -> u64 {
        self.notes_lost
    }
}
