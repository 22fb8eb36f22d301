//! Why can settled records not be read?

use std::sync::Arc;

use wire::ids::StreamId;
use wire::reason::Reason;

use crate::core::extent_walk::WalkError;
use crate::index::IndexError;
use crate::store::{ObjectName, StoreError};

/// Why a read of settled records failed. What is damaged or missing is left as it stands, and nothing of it is served.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The index didn't say where they lie.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The store didn't bring them.
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// An object that the index names isn't there.
    #[error(
        "object {object} is missing: the index has {bytes} bytes of stream {stream_id} at byte {at} of it; restore it from a copy \
         of the store"
    )]
    Missing {
        /// The object.
        object: ObjectName,
        /// Whose records.
        stream_id: StreamId,
        /// Where they start in the object.
        at: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// An object is shorter than what the index says it holds.
    #[error(
        "object {object} has {object_bytes} bytes, and the index has {bytes} bytes of stream {stream_id} at byte {at} of it; \
         restore it from a copy of the store"
    )]
    Short {
        /// The object.
        object: ObjectName,
        /// Whose records.
        stream_id: StreamId,
        /// Where they start in the object.
        at: u64,
        /// How many bytes.
        bytes: u64,
        /// Bytes of the object.
        object_bytes: u64,
    },
    /// Bytes that are not those that were settled.
    #[error(
        "object {object} is damaged: its {bytes} bytes of stream {stream_id} at byte {at} sum to {computed:08x}, not {expected:08x}; \
         restore it from a copy of the store"
    )]
    Damaged {
        /// The object.
        object: ObjectName,
        /// Whose records.
        stream_id: StreamId,
        /// Where they start in the object.
        at: u64,
        /// How many bytes.
        bytes: u64,
        /// What the index says that they sum to.
        expected: u32,
        /// What they sum to.
        computed: u32,
    },
    /// Bytes that are not the entries that were settled.
    #[error(
        "object {object} is damaged in its {bytes} bytes of stream {stream_id} at byte {at}: {fault}; restore it from a copy of the \
         store"
    )]
    Entries {
        /// The object.
        object: ObjectName,
        /// Whose records.
        stream_id: StreamId,
        /// Where they start in the object.
        at: u64,
        /// How many bytes.
        bytes: u64,
        /// What is wrong with them.
        fault: WalkError,
    },
}

impl HistoryError {
    /// What a client that waits for the records is told.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Index(error) => error.reason(),
            Self::Store(error) => error.reason(),
            Self::Missing { .. } | Self::Short { .. } | Self::Damaged { .. } | Self::Entries { .. } => Reason::Internal,
        }
    }

    /// Whether what came is not what was settled, so that asking the index and the store afresh may help: bytes can be changed
    /// on their way, and records move from one object to another.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Index(_) => false,
            Self::Store(error) => matches!(**error, StoreError::Corrupt { .. }),
            Self::Missing { .. } | Self::Short { .. } | Self::Damaged { .. } | Self::Entries { .. } => true,
        }
    }
}
