//! What stands in the database of a slot: one file a row.
//!
//! A key starts with the tag of its kind; its numbers are big-endian, so that keys sort as what they name. The values' numbers are big-endian too.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `N` | bucket, key | [stream id](name) |
//! | `S` | stream id | [the stream](stream), or that it is deleted |
//! | `X` | stream id, last sequence number | [an extent](extent) |
//! | `O` | object id | [how much of an object is live](object) |
//! | `G` | due, object id | nothing: [an object to delete](queue) |
//! | `E` | due, stream id | nothing: [a stream to look at for age](queue) |
//! | `T` | due, stream id | nothing: [a deleted stream to forget](queue) |
//! | `D` | stream id | [extents below here go](cursor) |
//! | `C` | bucket | [streams](count) |
//! | `M` | | [chunks applied](applied) |

pub(super) mod applied;
pub(super) mod count;
pub(super) mod cursor;
pub(super) mod extent;
pub(super) mod fields;
pub(super) mod name;
pub(super) mod object;
pub(super) mod queue;
pub(super) mod stream;

use wire::stream_row::StreamRowError;

/// Why bytes in the index are no row of their kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// Too few bytes, or too many.
    #[error("{what} has {bytes} bytes, which is not its length")]
    Length {
        /// Which row.
        what: &'static str,
        /// Bytes there are.
        bytes: usize,
    },
    /// A choice that this build doesn't know.
    #[error("{what} has {value} where this build knows no meaning for it")]
    Value {
        /// Which row.
        what: &'static str,
        /// What stands there.
        value: u64,
    },
    /// A stream's row.
    #[error(transparent)]
    Stream(#[from] StreamRowError),
}

#[cfg(test)]
mod tests;
