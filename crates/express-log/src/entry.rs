//! What a log says of one entry.

use wire::ids::{Lsn, SegmentId};

/// Where the bytes of an entry lie: `bytes` of them from `offset` of the segment's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryPos {
    /// The segment.
    pub segment: SegmentId,
    /// The first byte in the segment's file.
    pub offset: u32,
    /// How many bytes.
    pub bytes: u32,
}

/// One entry that recovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayedEntry<'a> {
    /// Its number in the log.
    pub lsn: Lsn,
    /// Where it lies.
    pub pos: EntryPos,
    /// What was appended.
    pub bytes: &'a [u8],
}
