//! The bounds that every surface enforces alike.

/// Shortest bucket name, in bytes.
pub const BUCKET_NAME_BYTES_MIN: usize = 3;
/// Longest bucket name, in bytes.
pub const BUCKET_NAME_BYTES_MAX: usize = 63;
/// Longest key, in bytes of UTF-8.
pub const KEY_BYTES_MAX: usize = 512;
/// Most content (bodies, header names and header values) of a record, in bytes.
pub const RECORD_CONTENT_BYTES_MAX: usize = 1 << 20;
/// Most headers of a record.
pub const RECORD_HEADERS_MAX: usize = 100;
/// Most content of a batch, in bytes.
pub const BATCH_CONTENT_BYTES_MAX: usize = 1 << 20;
/// Most records of a batch.
pub const BATCH_RECORDS_MAX: usize = 1_000;
/// Longest fencing token, in bytes of UTF-8.
pub const FENCING_TOKEN_BYTES_MAX: usize = 36;
/// Longest creation token of a bucket, in bytes of UTF-8.
pub const CREATION_TOKEN_BYTES_MAX: usize = 64;
/// Longest location of a bucket, in bytes of UTF-8.
pub const LOCATION_BYTES_MAX: usize = 64;
/// Most rows of a list page; more is clamped to it.
pub const LIST_PAGE_MAX: u32 = 1_000;
/// Rows of a list page when none are asked for.
pub const LIST_PAGE_DEFAULT: u32 = 100;
/// Most records of a read page; more is clamped to it.
pub const READ_PAGE_RECORDS_MAX: u32 = 1_000;
/// Most content of a read page, in bytes; more is clamped to it, and one record is always answered.
pub const READ_PAGE_BYTES_MAX: u32 = 1 << 20;
/// Batches of a session in flight, when the star sets nothing else.
pub const APPEND_WINDOW_DEFAULT: u32 = 16;
/// Longest linger of a producer, in milliseconds.
pub const LINGER_MS_MAX: u64 = 1_000;

/// Longest encoded batch, in bytes: the content, and per record its end, stamp, header count and header lengths.
pub const BATCH_BYTES_MAX: usize =
    BATCH_CONTENT_BYTES_MAX + BATCH_RECORDS_MAX * (4 + 8 + 1 + RECORD_HEADERS_MAX * 8) + 64;
/// Longest body of a frame before its sender has been let in, in bytes.
pub const FRAME_BODY_BYTES_BEFORE_HELLO_MAX: usize = 64 << 10;
/// Longest body of any frame, in bytes.
pub const FRAME_BODY_BYTES_MAX: usize = 4 << 20;
