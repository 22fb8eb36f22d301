//! How can a step of settling fail?

use wire::ids::StreamId;

use crate::channel::ChannelError;
use crate::index::IndexError;
use crate::store::StoreError;

/// Why a step did not do all it could. It is taken again later.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The index failed.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The star may write no more, or the cluster can't be changed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// What was copied is not what the index says.
    #[error("the entries of stream {stream_id} can't be copied: {what}")]
    Copy {
        /// The stream.
        stream_id: StreamId,
        /// What is wrong with them.
        what: String,
    },
}
