//! What does settling count?

/// What was done since the start, and what is still to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SettleCounts {
    /// Bundles made, those of rewrites too.
    pub bundles: u64,
    /// Their bytes.
    pub bundle_bytes: u64,
    /// Extents that moved to them.
    pub extents_moved: u64,
    /// Streams whose extents changed while they were copied, and stay where they are.
    pub streams_stale: u64,
    /// Bundles that were rewritten.
    pub bundles_rewritten: u64,
    /// Chunks that went.
    pub chunks_deleted: u64,
    /// Bundles that went because nothing pointed to them.
    pub objects_deleted: u64,
    /// Objects that went because nothing knew of them.
    pub orphans_deleted: u64,
    /// Trims that streams were asked for.
    pub trims_asked: u64,
    /// Objects that could not be copied because they are missing or damaged.
    pub unreadable: u64,
    /// Chunks that extents point to.
    pub backlog_chunks: u64,
    /// Bytes of these extents.
    pub backlog_bytes: u64,
    /// When the oldest of these chunks was made, in milliseconds; 0 when there is none.
    pub backlog_oldest_ms: i64,
    /// Whether records are not dropped by their age, for the wall clock is not believed.
    pub retention_stopped: bool,
}
