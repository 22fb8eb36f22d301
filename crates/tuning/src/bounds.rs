//! How large may the internal queues and tables grow that the host carries, and what happens when one is full?
//!
//! None of these is a setting: no operator could choose them well. Sizes that clients see are
//! limits and stand in `wire`.

/// Requests, and as many answers, that wait in one shard's mailbox for each other shard. Full: the
/// sender stops reading from the connection that the request came from until there is room.
pub const MAILBOX_REQUESTS_MAX: usize = 1_024;

/// Connections that the kernel holds for a shard until it accepts them. Full: the kernel drops the
/// handshake, and the client tries again.
pub const ACCEPT_BACKLOG: i32 = 1_024;

/// Segment files that one shard's history reader holds open. Full: the least recently read one is
/// closed.
pub const HISTORY_FILES_OPEN_MAX: usize = 64;
