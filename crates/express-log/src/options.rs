//! How large a log and its commits may be.

use wire::log_frame::{BLOCK_BYTES, BODY_BYTES_MAX};
use wire::superblock::SEGMENTS_MAX;

/// Smallest segment.
const SEGMENT_BYTES_MIN: u32 = 8 << 20;
/// Largest segment.
const SEGMENT_BYTES_MAX: u32 = 1 << 30;

/// How a commit becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Each write is durable when it ends (`O_DSYNC`).
    Dsync,
    /// A write, then an fdatasync.
    Fdatasync,
}

/// How large a log and its commits may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of a segment file, whole blocks, 8 MiB to 1 GiB.
    pub segment_bytes: u32,
    /// Most bytes of all segments, at least three of them.
    pub log_bytes_max: u64,
    /// Most commits in flight, 1 to 16: more shorten the wait of small commits and add padding.
    pub commits_in_flight: usize,
    /// So many pending bytes start a commit though another is in flight.
    pub commit_start_bytes: usize,
    /// A commit takes no further entry beyond this; a longer entry goes alone.
    pub commit_bytes_max: usize,
    /// With so many bytes not yet durable, there is no room until some are.
    pub pending_bytes_max: usize,
    /// How a commit becomes durable.
    pub sync: SyncMode,
    /// Blank segments made ahead, besides the one that is kept back for control entries; 1 to 8.
    pub ready_segments: usize,
    /// Blank segments made ahead while nothing is written, at least as many: zeroing them under load costs commits half
    /// of the disk; 1 to 64.
    pub idle_segments: usize,
    /// Writes a small commit in place, blocking the thread, when nothing is in flight.
    pub inline_commit: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            log_bytes_max: 16 << 30,
            commits_in_flight: 2,
            commit_start_bytes: 64 << 10,
            commit_bytes_max: 1 << 20,
            pending_bytes_max: 8 << 20,
            sync: SyncMode::Dsync,
            ready_segments: 1,
            idle_segments: 4,
            inline_commit: false,
        }
    }
}

/// An option that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}; it must be {min} to {max}")]
pub struct OptionsError {
    /// Which.
    pub name: &'static str,
    /// What it is.
    pub value: u64,
    /// The least it may be; all sizes in whole blocks of 4096.
    pub min: u64,
    /// The most it may be.
    pub max: u64,
}

impl LogOptions {
    /// Answers whether a log can work with these.
    ///
    /// # Errors
    /// [`OptionsError`] with the first that cannot be.
    pub fn check(&self) -> Result<(), OptionsError> {
        let block = BLOCK_BYTES as u64;
        let segment = u64::from(self.segment_bytes);
        let longest = (BODY_BYTES_MAX + 2 * BLOCK_BYTES) as u64;
        let check = |name, value: u64, unit: u64, min: u64, max: u64| {
            let holds = (min..=max).contains(&value) && value.is_multiple_of(unit);
            if holds { Ok(()) } else { Err(OptionsError { name, value, min, max }) }
        };
        check("segment_bytes", segment, block, SEGMENT_BYTES_MIN.into(), SEGMENT_BYTES_MAX.into())?;
        check("log_bytes_max", self.log_bytes_max, 1, 3 * segment, segment * SEGMENTS_MAX as u64)?;
        check("commits_in_flight", self.commits_in_flight as u64, 1, 1, 16)?;
        check("commit_start_bytes", self.commit_start_bytes as u64, 1, 1, self.commit_bytes_max as u64)?;
        check("commit_bytes_max", self.commit_bytes_max as u64, block, block, longest.min(2 << 20))?;
        check("pending_bytes_max", self.pending_bytes_max as u64, 1, 2 * longest, 1 << 30)?;
        check("idle_segments", self.idle_segments as u64, 1, self.ready_segments as u64, 64)?;
        check("ready_segments", self.ready_segments as u64, 1, 1, 8)
    }
}
