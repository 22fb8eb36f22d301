//! What a log counts.

use std::time::Duration;

use wire::ids::Lsn;

/// The state and the counters of a log since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogMetrics {
    /// Commits started, those without entries included.
    pub commits: u64,
    /// Commits without entries.
    pub heartbeats: u64,
    /// Entries made durable.
    pub entries: u64,
    /// Bytes of frames, without padding.
    pub frame_bytes: u64,
    /// Bytes of padding.
    pub padding_bytes: u64,
    /// How long the oldest entry of a commit had waited for its start, in microseconds: a moving average.
    pub wait_ewma_us: u64,
    /// How long a commit took on the disk, in microseconds: a moving average.
    pub flush_ewma_us: u64,
    /// Bytes of all segment files.
    pub used_bytes: u64,
    /// Segments that were freed because all in them was settled.
    pub freed_segments: u64,
    /// The first entry that is kept.
    pub first_lsn: Lsn,
}

/// How long the commit took by which entries became durable last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitTimes {
    /// From its start until its bytes were written.
    pub write: Duration,
    /// From there until it was durable, and all before it. Where a write is durable by itself, that is the wait for those before
    /// it alone.
    pub sync: Duration,
}

/// The counters behind [`LogMetrics`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) commits: u64,
    pub(crate) heartbeats: u64,
    pub(crate) entries: u64,
    pub(crate) frame_bytes: u64,
    pub(crate) padding_bytes: u64,
    pub(crate) wait_ewma: Duration,
    pub(crate) failed: bool,
}

impl Counts {
    pub(crate) fn on_started(&mut self, bytes: usize, padded: usize, wait: Duration) {
        self.commits += 1;
        self.frame_bytes += bytes as u64;
        self.padding_bytes += (padded - bytes) as u64;
        self.wait_ewma = (self.wait_ewma * 7 + wait) / 8;
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
