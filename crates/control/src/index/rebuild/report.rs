//! What does a rebuild tell?

use std::fmt;

use wire::ids::{SeqNum, StreamId};
use wire::slot::Slot;

use crate::store::ObjectName;

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// With what.
    pub what: &'static str,
    /// So many are done.
    pub done: u64,
    /// Of so many.
    pub total: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rebuilt {
    /// Which databases were made.
    pub generation: u64,
    /// Snapshots that were read.
    pub snapshots: u64,
    /// Chunks that were looked for.
    pub chunks: u64,
    /// Bundles that were looked at.
    pub bundles: u64,
    /// Streams that live.
    pub streams: u64,
    /// Their records.
    pub records: u64,
    /// The content of these, in bytes.
    pub bytes: u64,
    /// What is missing or damaged.
    pub missing: Vec<Missing>,
    /// Whether the new databases are the index.
    pub is_in_place: bool,
}

/// Something that is missing or damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// An object.
    Object {
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// Records of a stream.
    Records {
        /// The stream.
        stream_id: StreamId,
        /// Its key.
        key: String,
        /// The first one.
        from: SeqNum,
        /// One past the last one.
        to: SeqNum,
        /// Objects that may hold them: missing or damaged ones of the slot.
        objects: Vec<String>,
    },
    /// What there is of a stream doesn't follow from what is known of it.
    Stream {
        /// The slot.
        slot: Slot,
        /// The stream.
        stream_id: StreamId,
        /// Why.
        what: String,
    },
}

impl Missing {
    /// An object that is lost by an error; `None` when the error is another one.
    pub(super) fn of_object(name: &ObjectName, error: &impl ToString, is_lost: bool) -> Option<Self> {
        is_lost.then(|| Self::Object { name: name.to_string(), what: error.to_string() })
    }

    pub(super) fn of_stream(slot: Slot, stream_id: StreamId, what: &impl ToString) -> Self {
        Self::Stream { slot, stream_id, what: what.to_string() }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { name, what } => write!(f, "object {name}: {what}"),
            Self::Records { stream_id, key, from, to, objects } => {
                write!(f, "records {from} to {to} of stream {key:?} ({stream_id}) are in no object")?;
                if !objects.is_empty() {
                    write!(f, "; missing or damaged are {}", objects.join(", "))?;
                }
                Ok(())
            }
            Self::Stream { slot, stream_id, what } => write!(f, "stream {stream_id} of slot {}: {what}", slot.get()),
        }
    }
}
