//! Where does a chunk lie, and what is in it?

use std::fmt;

use bytes::Bytes;
use wire::chunk::{Footer, ObjectError, ObjectHeader, ObjectKind};
use wire::ids::Epoch;

use super::cas::insist;
use crate::store::{ObjectName, Span, Store, StoreError};

/// A chunk: a position in the channel of an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId {
    /// Whose channel.
    pub incarnation: Epoch,
    /// Where in it; 0 is the chunk without entries that every channel begins with.
    pub position: u64,
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.incarnation, self.position)
    }
}

/// Why a chunk can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store failed, or the chunk is not there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its bytes are not those of a chunk.
    #[error("object {object} is damaged ({source}); restore it from a copy")]
    Damaged {
        /// The object.
        object: ObjectName,
        /// What is wrong with it.
        source: ObjectError,
    },
    /// It is another object than its name says.
    #[error("object {object} holds position {position} of channel {incarnation} ({kind:?}); restore it from a copy")]
    Misplaced {
        /// The object.
        object: ObjectName,
        /// The incarnation it says.
        incarnation: Epoch,
        /// The position it says.
        position: u64,
        /// The kind it says.
        kind: ObjectKind,
    },
}

/// The object at a position of a channel: `c/<incarnation>/<position>`, 16 hexadecimal digits each.
#[must_use]
pub fn chunk_name(chunk: ChunkId) -> ObjectName {
    let name = format!("c/{:016x}/{:016x}", chunk.incarnation.get(), chunk.position);
    ObjectName::parse(&name).expect("the parts are short and plain")
}

/// Reads and checks a whole chunk: the object as it stands, and what its footer lists.
///
/// # Errors
/// See [`ReadError`]. A fence is no chunk.
pub async fn read_chunk(store: &dyn Store, chunk: ChunkId) -> Result<(Bytes, Footer), ReadError> {
    let object = chunk_name(chunk);
    let bytes = insist(|| store.get(&object, Span::Whole)).await?.body;
    let damaged = |source| ReadError::Damaged { object: object.clone(), source };
    let header = ObjectHeader::decode(&bytes).map_err(damaged)?;
    check_place(chunk, &header, &[ObjectKind::Chunk], &object)?;
    let footer = Footer::decode_suffix(&bytes, bytes.len() as u64).map_err(damaged)?;
    Ok((bytes, footer))
}

/// What stands at a position, by its head alone; `None` when nothing does.
pub(super) async fn probe(store: &dyn Store, chunk: ChunkId) -> Result<Option<ObjectHeader>, ReadError> {
    let object = chunk_name(chunk);
    let span = Span::Range { start: 0, end: ObjectHeader::BYTES as u64 };
    let found = match insist(|| store.get(&object, span)).await {
        Ok(found) => found,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let header = ObjectHeader::decode(&found.body);
    let header = header.map_err(|source| ReadError::Damaged { object: object.clone(), source })?;
    check_place(chunk, &header, &[ObjectKind::Chunk, ObjectKind::Fence], &object)?;
    Ok(Some(header))
}

fn check_place(
    chunk: ChunkId,
    header: &ObjectHeader,
    kinds: &[ObjectKind],
    object: &ObjectName,
) -> Result<(), ReadError> {
    let found = ChunkId { incarnation: header.incarnation, position: header.position };
    if found == chunk && kinds.contains(&header.kind) {
        return Ok(());
    }
    let (object, kind) = (object.clone(), header.kind);
    Err(ReadError::Misplaced { object, incarnation: found.incarnation, position: found.position, kind })
}
