//! What may the index cost, and when does it go to the store?

use std::time::Duration;

const MIB: u64 = 1 << 20;

/// When what is applied goes to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointPolicy {
    /// At the latest after this.
    pub every: Duration,
    /// At the latest after so many chunks: what a replay reads.
    pub chunks_max: u64,
    /// At the latest after so many bytes of chunks.
    pub chunk_bytes_max: u64,
    /// At the latest when the index holds so many bytes of rows in memory.
    pub row_bytes_max: u64,
}

impl Default for CheckpointPolicy {
    fn default() -> Self {
        Self { every: Duration::from_secs(300), chunks_max: 1024, chunk_bytes_max: 128 * MIB, row_bytes_max: 192 * MIB }
    }
}

/// What was applied since a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SinceCheckpoint {
    /// Chunks.
    pub chunks: u64,
    /// Their bytes.
    pub chunk_bytes: u64,
    /// Bytes of rows written for them.
    pub row_bytes: u64,
}

impl CheckpointPolicy {
    /// Whether it is time, `elapsed` after the last checkpoint. Never when nothing was applied.
    #[must_use]
    pub fn is_due(&self, since: &SinceCheckpoint, elapsed: Duration) -> bool {
        since.chunks > 0
            && (elapsed >= self.every
                || since.chunks >= self.chunks_max
                || since.chunk_bytes >= self.chunk_bytes_max
                || since.row_bytes >= self.row_bytes_max)
    }
}

/// What the index may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexOptions {
    /// Bytes of blocks that all slots together keep in memory.
    pub cache_bytes: u64,
    /// Rows of streams that a slot keeps in memory, about.
    pub hot_rows: usize,
    /// When what is applied goes to the store.
    pub checkpoint: CheckpointPolicy,
    /// How long an object that nothing points to stays, in milliseconds; longer than any read of it takes.
    pub dead_grace_ms: i64,
    /// How long it is remembered that a stream was deleted, in milliseconds; longer than its entries may come again.
    pub forget_after_ms: i64,
    /// How old files of the databases are before they are removed once nothing refers to them.
    pub garbage_age: Duration,
    /// How long a slot's garbage may wait for its removal.
    pub garbage_every: Duration,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 * MIB,
            hot_rows: 1024,
            checkpoint: CheckpointPolicy::default(),
            dead_grace_ms: 3_600_000,
            forget_after_ms: 86_400_000,
            garbage_age: Duration::from_secs(600),
            garbage_every: Duration::from_secs(600),
        }
    }
}
