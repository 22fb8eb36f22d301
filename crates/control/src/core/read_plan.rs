//! Which bytes of which objects does a read of settled records need?

use std::ops::Range;

use wire::handoff::HistoryFrom;
use wire::ids::Position;

use crate::index::{Located, ObjectId};

/// A larger extent is sent in parts.
const LARGE_BYTES: u32 = 512 << 10;
/// A smaller one that lies alone is fetched by its exact range.
const EXACT_BYTES_MAX: u64 = 256 << 10;
/// Extents that one read brings at most.
const EXTENTS_A_READ_MAX: usize = 128;

/// What is fetched, and kept, in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    /// The object.
    pub(crate) object: ObjectId,
    /// Which part of it.
    pub(crate) part: Part,
}

/// A part of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// The aligned block of this number.
    Block(u32),
    /// These bytes, from start to end.
    Exact(u64, u64),
}

impl BlockKey {
    /// Its bytes in the object; a block's may reach past the object's end.
    pub(crate) fn range(&self, block_bytes: u64) -> Range<u64> {
        match self.part {
            Part::Block(no) => u64::from(no) * block_bytes..(u64::from(no) + 1) * block_bytes,
            Part::Exact(start, end) => start..end,
        }
    }
}

/// Wanted bytes of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Of which block.
    pub(crate) key: BlockKey,
    /// Where they lie in the object.
    pub(crate) range: Range<u64>,
}

/// Bytes of an object that hold wanted extents, one right behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// The object.
    pub(crate) object: ObjectId,
    /// Where they lie in it.
    pub(crate) range: Range<u64>,
    /// How many extents.
    extents: usize,
}

impl Run {
    /// The bytes of one extent from `at` in it on.
    pub(crate) fn of(extent: &Located, at: u64) -> Self {
        let start = u64::from(extent.offset);
        Self { object: extent.object, range: start + at..start + u64::from(extent.bytes), extents: 1 }
    }

    /// Whether its exact range is rather fetched than the blocks it lies in.
    pub(crate) fn is_small_and_alone(&self) -> bool {
        self.extents == 1 && self.range.end - self.range.start < EXACT_BYTES_MAX
    }

    /// All of it by its exact range.
    pub(crate) fn exact(&self) -> Piece {
        let part = Part::Exact(self.range.start, self.range.end);
        Piece { key: BlockKey { object: self.object, part }, range: self.range.clone() }
    }

    /// Its bytes block by block.
    pub(crate) fn pieces(&self, block_bytes: u64) -> impl Iterator<Item = Piece> + use<> {
        let Self { object, range, .. } = self.clone();
        let numbers = range.start / block_bytes..range.end.div_ceil(block_bytes);
        numbers.map(move |no| {
            let no = u32::try_from(no).expect("an extent starts and ends within the first 8 GiB of its object");
            let key = BlockKey { object, part: Part::Block(no) };
            let block = key.range(block_bytes);
            Piece { key, range: block.start.max(range.start)..block.end.min(range.end) }
        })
    }
}

/// The runs that extents lie in, in their order.
pub(crate) fn runs(extents: &[Located]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for next in extents.iter().map(|extent| Run::of(extent, 0)) {
        match runs.last_mut() {
            Some(run) if run.object == next.object && run.range.end == next.range.start => {
                run.range.end = next.range.end;
                run.extents += 1;
            }
            _ => runs.push(next),
        }
    }
    runs
}

/// How many of the extents are sent whole; 0 when only a part of the first one is.
pub(crate) fn whole_extents(extents: &[Located], from: HistoryFrom, bytes_max: u64) -> usize {
    let Some(first) = extents.first() else {
        return 0;
    };
    let starts_within = match from {
        HistoryFrom::SeqNum(seq_num) => first.first < seq_num,
        HistoryFrom::Timestamp(ms) => first.first_ms < ms,
    };
    if first.bytes > LARGE_BYTES && (starts_within || u64::from(first.bytes) > bytes_max) {
        return 0;
    }
    let mut bytes = u64::from(first.bytes);
    let more = extents.windows(2).take(EXTENTS_A_READ_MAX - 1).take_while(|pair| {
        bytes += u64::from(pair[1].bytes);
        bytes <= bytes_max && pair[0].end <= pair[1].first
    });
    1 + more.count()
}

/// Whether a batch that ends at `end` holds something of what is wanted.
pub(crate) fn reaches(from: HistoryFrom, end: Position) -> bool {
    match from {
        HistoryFrom::SeqNum(seq_num) => seq_num < end.seq_num,
        HistoryFrom::Timestamp(ms) => ms <= end.timestamp_ms,
    }
}

#[cfg(test)]
pub(crate) mod tests;
