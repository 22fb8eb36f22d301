//! How is the background's memory divided among what it keeps there?

use crate::units::Bytes;

/// Parts of which all memory of the background consists.
const PARTS: u64 = 16;
/// Chunks under way, and committed ones that wait for room in a queue: each takes this part of what chunks may.
const CHUNKS_UNDER_WAY: u64 = 16;

/// The bytes of each use, which together are `memory.control_bytes_max`. What shards hand over and is in no chunk yet counts as
/// theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlMemory {
    /// Blocks of settled records: 5 parts of 16.
    pub blocks: u64,
    /// Blocks of the index: 2.
    pub index_blocks: u64,
    /// Rows of the index that are not in the store yet: 2.
    pub rows: u64,
    /// Chunks that are put, or committed and not applied: 4.
    pub chunks: u64,
    /// Answers to reads under way: 1.
    pub reads: u64,
    /// What is copied from chunks into bundles: 2.
    pub copies: u64,
}

impl ControlMemory {
    /// Divides `total`.
    #[must_use]
    pub fn of(total: Bytes) -> Self {
        let parts = |parts: u64| total.get() / PARTS * parts;
        Self {
            blocks: parts(5),
            index_blocks: parts(2),
            rows: parts(2),
            chunks: parts(4),
            reads: parts(1),
            copies: parts(2),
        }
    }

    /// Bytes of one chunk at most: eight are under way, and four wait to be told of.
    #[must_use]
    pub fn chunk(&self) -> u64 {
        self.chunks / CHUNKS_UNDER_WAY
    }

    /// Bytes of committed chunks that are not applied yet.
    #[must_use]
    pub fn unapplied(&self) -> u64 {
        self.chunks / 4
    }

    /// Bytes that one bundle is made of, and of it: what is read is there twice for a while.
    #[must_use]
    pub fn bundle(&self) -> u64 {
        self.copies / 4
    }
}

#[cfg(test)]
mod tests {
    use super::{ControlMemory, PARTS};
    use crate::units::Bytes;

    #[test]
    fn the_parts_are_the_whole() {
        for mib in [32, 512, 10_000] {
            let total = Bytes::mib(mib);
            let ControlMemory { blocks, index_blocks, rows, chunks, reads, copies } = ControlMemory::of(total);
            let sum = blocks + index_blocks + rows + chunks + reads + copies;
            assert!(sum <= total.get() && sum + PARTS > total.get());
        }
        let default = ControlMemory::of(Bytes::mib(512));
        assert_eq!((default.chunk(), default.unapplied(), default.bundle()), (8 << 20, 32 << 20, 16 << 20));
        // Eight under way, four that wait to be told of, and those that are not applied.
        assert!(12 * default.chunk() + default.unapplied() <= default.chunks);
    }
}
