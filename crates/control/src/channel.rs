//! Who may write to a store, and when is what was written committed?
//!
//! A star that [`join`]s gets an incarnation that no other has, and a channel: objects `c/<incarnation>/<position>`, each made
//! only if it was absent. A chunk is committed once it and every one before it stands and no fence does. Whoever takes over
//! fences the channel first, so that what it finds there is all there will ever be. The [`Uploader`] fills the channel.

mod cas;
mod cluster;
mod fence;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod join;
mod keeper;
mod lease;
mod logs;
mod put;
mod read;
mod uploader;

pub use cas::ClusterError;
pub use cluster::ClusterDecodeError;
pub use join::{JoinError, JoinRequest, Joined, PriorChannel, join, take_over};
pub use keeper::{Channel, ChannelError, Fenced};
pub use lease::LeaseDecodeError;
pub use logs::{LogFacts, LogFault};
pub use read::{ChunkId, ReadError, chunk_name, read_chunk};
pub use uploader::{CommittedChunk, UploadOptions, Uploader, UploaderHandle};

pub(crate) use cas::object as cluster_object;
pub(crate) use cas::{look, open, open_known};
pub(crate) use keeper::HANGS_AFTER;
pub(crate) use logs::KnownLogs;

use crate::shell::unix_ms;

#[cfg(test)]
mod tests;
