//! What may go wrong on a disk in memory.

/// How often things go wrong, in parts of 1,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Faults {
    /// A write or sync fails.
    pub(crate) io_error: u32,
    /// A write ends before its end.
    pub(crate) short_write: u32,
    /// A segment finds no space.
    pub(crate) no_space: u32,
    /// A segment is not removed.
    pub(crate) not_removed: u32,
    /// A copy of the superblock is not written.
    pub(crate) superblock_error: u32,
    /// A new segment shows bytes of a file that is gone, where zeroes were written.
    pub(crate) stale_blank: u32,
    /// A write is answered as done, and nothing is written.
    pub(crate) lost_write: u32,
    /// A write is answered as done, and is done in another place.
    pub(crate) misdirected_write: u32,
}
