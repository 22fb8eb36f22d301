//! Which CPU serves which shard, and how much of the disk may each head log take?

use thiserror::Error;
use wire::superblock::SEGMENTS_MAX;

use crate::settings::Log;
use crate::units::Bytes;

/// Segments without which a head log can't work: the one written, the one zeroed ahead, the one
/// kept back for control frames, and one to be settled meanwhile.
pub const LOG_SEGMENTS_MIN: u64 = 4;

/// Percent of the disk's room that the head logs may take together; the rest is for the store's
/// folder, the index and the file system itself.
const LOG_ROOM_PERCENT: u64 = 80;

/// Which CPUs the shards and the background run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    shard_cpus: Vec<usize>,
    control_cpus: Vec<usize>,
    shares_cores: bool,
}

impl Plan {
    /// Lays `asked` shards over the CPUs that this process may run on; 0 asks for one a CPU less
    /// one for the background, and at least one.
    ///
    /// Shards take the last CPUs, since the first ones serve most interrupts. More shards than CPUs
    /// is allowed, for a data directory may move to a smaller host: they take turns on the CPUs.
    /// With no CPU to spare the background runs on all of them.
    ///
    /// # Panics
    /// When `cpus` is empty: a running process has at least one.
    #[must_use]
    pub fn new(asked: u16, cpus: &[usize]) -> Self {
        assert!(!cpus.is_empty(), "a running process may run on at least one CPU");
        let shards = if asked == 0 { (cpus.len() - 1).max(1) } else { usize::from(asked) };
        let spare = cpus.len().saturating_sub(shards);
        let (spared, for_shards) = cpus.split_at(spare);
        Self {
            shard_cpus: for_shards.iter().copied().cycle().take(shards).collect(),
            control_cpus: if spared.is_empty() { cpus.to_vec() } else { spared.to_vec() },
            shares_cores: spared.is_empty(),
        }
    }

    /// The CPU of each shard, by shard number.
    #[must_use]
    pub fn shard_cpus(&self) -> &[usize] {
        &self.shard_cpus
    }

    /// The CPUs of everything else.
    #[must_use]
    pub fn control_cpus(&self) -> &[usize] {
        &self.control_cpus
    }

    /// Whether shards share CPUs with each other or with the background.
    #[must_use]
    pub fn shares_cores(&self) -> bool {
        self.shares_cores
    }
}

/// The disk has no room for the head logs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the data directory has room for {room}, and {shards} head logs of {segments} segments of \
     {segment} need {need}: free some room, lower log.segment_bytes or serve with fewer shards",
    segments = LOG_SEGMENTS_MIN
)]
pub struct LogRoomError {
    /// Room that the head logs may take together.
    pub room: Bytes,
    /// Shards, each with a log.
    pub shards: usize,
    /// Bytes of a segment.
    pub segment: Bytes,
    /// Room that they need at least.
    pub need: Bytes,
}

/// Bytes that each of `shards` head logs may take: what the settings say, or its share of `room`
/// where that is less, in whole segments and at most as many as a superblock lists. `room` is what
/// is free plus what the logs hold already.
pub fn log_bytes_max(log: &Log, shards: usize, room: Bytes) -> Result<Bytes, LogRoomError> {
    let segment_bytes = log.segment_bytes.get();
    let usable_bytes = room.get() / 100 * LOG_ROOM_PERCENT;
    let logs = u64::try_from(shards.max(1)).unwrap_or(u64::MAX);
    let share_bytes = (usable_bytes / logs).min(log.bytes_max.get());
    let segments = (share_bytes / segment_bytes).min(SEGMENTS_MAX as u64);
    if segments < LOG_SEGMENTS_MIN {
        return Err(LogRoomError {
            room: Bytes::new(usable_bytes),
            shards,
            segment: log.segment_bytes,
            need: Bytes::new(LOG_SEGMENTS_MIN * segment_bytes * logs),
        });
    }
    Ok(Bytes::new(segments * segment_bytes))
}

#[cfg(test)]
mod tests;
