//! What ends the process: the disk said no to bytes that a log had given it.

use std::io;

use wire::ids::SegmentId;

/// A write or a sync that failed. Nothing is acked after it, and it is never tried again: what the disk holds now is known
/// only after a restart.
#[derive(Debug, thiserror::Error)]
pub enum FatalError {
    /// A write failed.
    #[error("writing {bytes} bytes at {offset} of segment {segment} failed: {source}")]
    Write {
        /// The segment.
        segment: SegmentId,
        /// Where in its file.
        offset: u32,
        /// How many bytes.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A write ended before all was written.
    #[error("only {written} of {bytes} bytes were written at {offset} of segment {segment}")]
    Short {
        /// The segment.
        segment: SegmentId,
        /// Where in its file.
        offset: u32,
        /// How many bytes there were.
        bytes: usize,
        /// How many were written.
        written: usize,
    },
    /// A sync failed.
    #[error("syncing segment {segment} failed: {source}")]
    Sync {
        /// The segment.
        segment: SegmentId,
        /// What the system said.
        source: io::Error,
    },
    /// A segment could not be made, for another reason than want of space.
    #[error("making segment {segment} failed: {source}")]
    Create {
        /// The segment.
        segment: SegmentId,
        /// What the system said.
        source: io::Error,
    },
    /// The superblock could not be written.
    #[error("writing the superblock failed: {source}")]
    Superblock {
        /// What the system said.
        source: io::Error,
    },
}

/// Says `error` in one line on standard error and ends the process at once: what a log does with a fatal error when its
/// owner has nothing better.
pub fn abort(error: &FatalError) {
    tracing::error!(%error, "the head log has failed");
    eprintln!("nova: the head log has failed: {error}");
    std::process::abort();
}
