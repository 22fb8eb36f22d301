//! Whether an entry may be appended: asked before a sequence number is assigned.

/// What an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoomClass {
    /// Records.
    Data,
    /// What can make room (a trim, a delete) or must never fail for want of it: may use the reserve.
    Control,
}

/// Why an entry cannot be appended now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Too much waits for the disk, or the next segment is still being made: passes by itself, see
    /// [`wait_for_room`](crate::Log::wait_for_room).
    #[error("the log is busy")]
    Busy,
    /// The log has as many segments as it may, or the disk is full: passes when something is settled or more is allowed.
    #[error(
        "the log is full: {used_bytes} of {log_bytes_max} bytes are used, the most that log.bytes_max and the disk allow"
    )]
    Full {
        /// Bytes of all segments.
        used_bytes: u64,
        /// The most they may be.
        log_bytes_max: u64,
    },
    /// What is left of the disk is kept back to trim, delete and settle: passes when there is room on it again.
    #[error("the disk is full: {free_bytes} bytes are free, and {kept_bytes} are kept back to trim, delete and settle")]
    Disk {
        /// Bytes that are free.
        free_bytes: u64,
        /// Bytes that are kept back of them.
        kept_bytes: u64,
    },
    /// The log is being sealed or has failed: does not pass.
    #[error("the log is closed")]
    Closed,
}

/// As many wait for room as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{waiters} already wait for room in the log")]
pub struct TooManyWaiters {
    /// How many wait.
    pub waiters: usize,
}
