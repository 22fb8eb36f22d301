//! Which segments a log gives up once their entries are held elsewhere.
//!
//! Segments go oldest first and whole, those of earlier epochs before those of this one, and never the one that takes
//! frames. A segment is given up in two steps: a superblock that does not list it, then its file. What stands between
//! the two after a crash lies below the first segment of the superblock, and goes when the log is opened.

use std::collections::VecDeque;

use wire::ids::{Lsn, SegmentId};
use wire::superblock::Superblock;

use crate::planted::{Planted, is_planted};

/// A segment that takes no more frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) segment: SegmentId,
    /// Where the segment after it begins: all its entries, and what was lost behind them, lie before.
    pub(crate) end_lsn: Lsn,
    /// Length of its file.
    pub(crate) bytes: u64,
}

/// Segments to be given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GivenUp {
    pub(crate) segments: Vec<Kept>,
    /// The first segment that stays.
    pub(crate) first_segment: SegmentId,
    /// The first entry that stays.
    pub(crate) first_lsn: Lsn,
}

/// How far a log was told that it is settled, and what it has yet to do about it.
#[derive(Debug)]
pub(crate) struct Release {
    /// The segments of earlier epochs that are kept, oldest first.
    old: VecDeque<Kept>,
    settled: Lsn,
    /// Whether there may be something to do.
    asked: bool,
    /// Whether it is being done.
    busy: bool,
    /// No superblock knows them, and their files are there.
    to_remove: Vec<Kept>,
    freed: u64,
}

impl Release {
    /// Of a log that keeps `old` segments of earlier epochs and nothing before `first_lsn`.
    pub(crate) fn new(old: VecDeque<Kept>, first_lsn: Lsn) -> Self {
        let settled = Lsn::new(first_lsn.get().saturating_sub(1));
        Self { old, settled, asked: false, busy: false, to_remove: Vec::new(), freed: 0 }
    }

    /// Every entry at or below `settled` is held elsewhere.
    pub(crate) fn on_settled(&mut self, settled: Lsn) {
        self.settled = self.settled.max(settled);
        self.asked = true;
    }

    /// A segment was closed that may have been settled before.
    pub(crate) fn on_closed(&mut self) {
        self.asked = true;
    }

    /// Whether there may be something to do; then it is being done until [`on_done`](Self::on_done).
    pub(crate) fn take_turn(&mut self) -> bool {
        self.busy |= self.asked;
        std::mem::take(&mut self.asked)
    }

    pub(crate) fn on_done(&mut self) {
        self.busy = false;
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// What can be given up: of the kept segments and the `ended` ones of this epoch those whose entries are durable and
    /// settled, up to segment `open`, to which something may still be written.
    pub(crate) fn plan(&self, ended: impl Iterator<Item = Kept>, durable: Lsn, open: SegmentId) -> Option<GivenUp> {
        let limit = self.settled.min(durable).next();
        let limit = if is_planted(Planted::FreedUnsettled) { limit.next() } else { limit };
        let mut kept = self.old.iter().copied().chain(ended).peekable();
        let mut segments = Vec::new();
        while let Some(segment) = kept.next_if(|kept| kept.end_lsn <= limit && kept.segment < open) {
            segments.push(segment);
        }
        let first_lsn = segments.last()?.end_lsn;
        let first_segment = kept.peek().map_or(open, |kept| kept.segment);
        Some(GivenUp { segments, first_segment, first_lsn })
    }

    /// A durable superblock does not know them.
    pub(crate) fn on_given_up(&mut self, given_up: &GivenUp) {
        self.old.retain(|kept| kept.segment >= given_up.first_segment);
        self.to_remove.extend(&given_up.segments);
    }

    /// The segments whose files are to be removed.
    pub(crate) fn to_remove(&self) -> Vec<Kept> {
        self.to_remove.clone()
    }

    /// The file of a segment is not there any more.
    pub(crate) fn on_removed(&mut self, removed: &Kept) {
        self.to_remove.retain(|kept| kept != removed);
        self.freed += 1;
    }

    pub(crate) fn settled(&self) -> Lsn {
        self.settled
    }

    pub(crate) fn freed(&self) -> u64 {
        self.freed
    }
}

/// The superblock that comes after `before`, which has the sum `crc`, and says the same.
pub(crate) fn successor(before: &Superblock, crc: u32) -> Superblock {
    Superblock { parent_crc: crc, sequence: before.sequence + 1, ..before.clone() }
}

/// The sum of a superblock that was written before.
pub(crate) fn crc_of(written: &Superblock) -> u32 {
    let bytes = written.encode(0).expect("it was written before");
    Superblock::decode(&bytes).expect("it was encoded just now").1
}
