//! How large may each internal queue and buffer grow, and what happens when it is full?
//!
//! None of these is a setting: no operator could choose them well. Sizes that clients see are
//! limits and stand in `wire`.

/// Requests that wait in one shard's mailbox from each other shard. Full: the sender stops reading
/// from the connection that the request came from until there is room.
pub const MAILBOX_REQUESTS_MAX: usize = 1_024;

/// Connections that the kernel holds for a shard until it accepts them. Full: the kernel drops the
/// handshake, and the client tries again.
pub const ACCEPT_BACKLOG: i32 = 1_024;

/// Appends and verbs of one shard that wait for a commit. Full: the shard stops reading from
/// producers until the oldest commit is durable.
pub const COMMIT_WAITERS_MAX: usize = 65_536;

/// Requests that wait for one stream's state to be loaded. Full: answered `resource_exhausted`.
pub const LOAD_WAITERS_MAX: usize = 1_024;

/// Segment files that one shard's history reader holds open. Full: the least recently read one is
/// closed.
pub const HISTORY_FILES_OPEN_MAX: usize = 64;

/// Subscriptions that one shard serves on one stream. Full: answered `resource_exhausted`.
pub const STREAM_SUBSCRIBERS_MAX: usize = 16_384;
