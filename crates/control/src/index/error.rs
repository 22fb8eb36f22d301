//! How can the index fail?

use wire::chunk::ObjectError;
use wire::ids::{Epoch, StreamId};
use wire::reason::Reason;
use wire::slot::Slot;

use super::fold::ExtentError;
use super::rows::RowError;
use crate::channel::{ChannelError, ChunkId, ReadError};
use crate::store::StoreError;

/// Why the index could not answer, or take a chunk.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// A slot's database failed.
    #[error("the index of slot {} failed: {source}", slot.get())]
    Database {
        /// The slot.
        slot: Slot,
        /// What it says.
        source: slatedb::Error,
    },
    /// A slot has an index, by the cluster's word, and the store holds nothing of it.
    #[error("slot {} has an index, and none is in the store: it was lost; make it again with novad store rebuild-index", slot.get())]
    Missing {
        /// The slot.
        slot: Slot,
    },
    /// Another process has the slot's database.
    #[error("the index of slot {} was taken over by another writer", slot.get())]
    Fenced {
        /// The slot.
        slot: Slot,
    },
    /// Others replace the record of the last checkpoint all the time.
    #[error("meta/index was replaced by others {tries} times while it was put: does another star write to this store?")]
    Contended {
        /// How often it was tried.
        tries: usize,
    },
    /// It can't be noted that a slot has an index from now on.
    #[error("it can't be noted that a slot has an index: {0}")]
    Noted(#[from] ChannelError),
    /// A row of the index can't be read.
    #[error("a row in the index of slot {} is wrong: {source}", slot.get())]
    Row {
        /// The slot.
        slot: Slot,
        /// What is wrong.
        source: RowError,
    },
    /// A chunk doesn't fit what is applied.
    #[error("chunk {} of incarnation {} can't be applied to slot {}: {source}", at.position, at.incarnation, slot.get())]
    Extent {
        /// The chunk.
        at: ChunkId,
        /// The slot.
        slot: Slot,
        /// What doesn't fit.
        source: ExtentError,
    },
    /// Chunks between this one and the last that was applied are missing.
    #[error("chunk {} of incarnation {} comes after {applied}: those between are missing", at.position, at.incarnation)]
    Skipped {
        /// The chunk.
        at: ChunkId,
        /// The last position that was applied.
        applied: u64,
    },
    /// The bytes of a chunk are not what was written.
    #[error("chunk {} of incarnation {} can't be read: {source}", at.position, at.incarnation)]
    Chunk {
        /// The chunk.
        at: ChunkId,
        /// What is wrong with it.
        source: ObjectError,
    },
    /// The record of what is checkpointed is not what was written.
    #[error("meta/index can't be read: {source}; make it again with novad store rebuild-index")]
    Checkpoint {
        /// What is wrong with it.
        source: RowError,
    },
    /// The record is gone that says which databases are the index.
    #[error("meta/index is missing: it was lost; make it again with novad store rebuild-index")]
    RecordLost,
    /// A later start, or a rebuild, has the index.
    #[error("the index was taken over by incarnation {by}: this one is over")]
    Taken {
        /// By which.
        by: Epoch,
    },
    /// A snapshot can't be put.
    #[error("snapshots of slot {} are put by others, too: does another star write to this store?", slot.get())]
    Crowded {
        /// The slot.
        slot: Slot,
    },
    /// Extents that are to move don't belong together.
    #[error("the extents of stream {stream_id} that move to one object don't match it: {what}")]
    Move {
        /// The stream.
        stream_id: StreamId,
        /// What doesn't match.
        what: &'static str,
    },
    /// A channel that ends before it starts.
    #[error("the channel of incarnation {incarnation} is kept from {low} on and ends at {end}")]
    Channel {
        /// Its incarnation.
        incarnation: Epoch,
        /// First position kept.
        low: u64,
        /// Its end.
        end: u64,
    },
    /// A chunk can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IndexError {
    /// What a client that waits is told.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Database { source, .. } => match source.kind() {
                slatedb::ErrorKind::Unavailable | slatedb::ErrorKind::Closed(_) => Reason::Unavailable,
                _ => Reason::Internal,
            },
            Self::Store(error) | Self::Read(ReadError::Store(error)) => match error.reason() {
                Reason::Unavailable => Reason::Unavailable,
                _ => Reason::Internal,
            },
            _ => Reason::Internal,
        }
    }
}
