//! How much may one client, and all of them together, ask of the HTTP surface, and what happens past it?

use std::time::Duration;

/// Bytes of the head of a request, and of what is read ahead of its body. More, or more than the 100 headers that hyper
/// takes: 431.
pub(super) const HEAD_BYTES_MAX: usize = 32 << 10;
/// Time in which the head of a request must be there, and for which a connection may be idle between two. Longer: closed.
pub(super) const HEAD_WAIT_MAX: Duration = Duration::from_secs(30);
/// Time in which the body of a request must be there. Longer: 408.
pub(super) const BODY_WAIT_MAX: Duration = Duration::from_secs(30);
/// Time for which the client of an answer may take no byte of it. Longer: closed.
pub(super) const WRITE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Bytes of the body of an append: the content of a batch with every byte escaped, and room for the rest. More: 413.
pub(super) const APPEND_BODY_BYTES_MAX: usize = 6 * wire::limits::BATCH_CONTENT_BYTES_MAX + (2 << 20);
/// Bytes of any other body. More: 413.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;
/// Bytes of a body, or of an answer, that are not counted against [`HELD_BYTES_MAX`].
pub(super) const UNCOUNTED_BYTES: usize = 16 << 10;
/// Bytes of larger bodies and answers held at once. Full: 429 with a time to come back.
pub(super) const HELD_BYTES_MAX: usize = 256 << 20;
/// Longest wait of a read at the tail, in milliseconds. More: 400.
pub(super) const WAIT_MS_MAX: u64 = 60_000;
/// Streams that are followed at once, for all their readers together. Full: 429.
pub(super) const FEEDS_MAX: usize = 512;
/// Content that is kept of each for its readers, in bytes. A reader further behind reads for itself.
pub(super) const FEED_BYTES_MAX: usize = 256 << 10;
/// Time for which a stream is followed after its last reader left.
pub(super) const FEED_LINGER: Duration = Duration::from_secs(5);
/// Most content that a reader who is behind takes at once, in bytes.
pub(super) const CATCH_UP_BYTES: u32 = 128 << 10;
/// Silence on an event stream after which its reader gets a comment, so that proxies keep it.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
/// Time that each reader of a stream puts between two rounds of all of them, up to [`ROUND_MAX`]: many readers share what
/// waking them costs, a few are told at once.
pub(super) const ROUND_PER_READER: Duration = Duration::from_micros(15);
/// Longest time between two rounds.
pub(super) const ROUND_MAX: Duration = Duration::from_millis(15);
/// Longest `Idempotency-Key`, in bytes. More: 400.
pub(super) const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// Longest `X-Request-Id` that is taken over; another is drawn in place of a longer one.
pub(super) const REQUEST_ID_BYTES_MAX: usize = 64;
/// Time in which a star must answer what `/readyz` and `/metrics` ask.
pub(super) const PROBE_WAIT_MAX: Duration = Duration::from_secs(3);
