//! `O`, object id → live bytes (u64), bytes (u64), created (i64, ms): how much of an object extents still point to.
//!
//! Of a chunk there is one row in each slot that has extents in it, for that slot's bytes alone.

use std::ops::Range;

use wire::ids::Epoch;
use wire::slot::Slot;

use super::RowError;
use super::fields::{Fields, put_object_id};
use crate::channel::ChunkId;
use crate::index::object_id::ObjectId;

const TAG: u8 = b'O';

/// How much of an object is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::index) struct ObjectRow {
    /// Bytes of extents that a row points to.
    pub(in crate::index) live_bytes: u64,
    /// Bytes of the extents it was made with, of this slot.
    pub(in crate::index) bytes: u64,
    /// When it was made.
    pub(in crate::index) created_ms: i64,
}

pub(in crate::index) fn key(object: ObjectId) -> Vec<u8> {
    let mut key = vec![TAG];
    put_object_id(&mut key, object);
    key
}

/// The bounds of the objects from one to another, both among them.
pub(in crate::index) fn from_to(first: ObjectId, last: ObjectId) -> Range<Vec<u8>> {
    key(first)..[&key(last)[..], &[0]].concat()
}

/// The bounds of the chunks of a channel.
pub(in crate::index) fn chunks_of(incarnation: Epoch) -> Range<Vec<u8>> {
    let first = |incarnation| key(ObjectId::Chunk(ChunkId { incarnation, position: 0 }));
    first(incarnation)..first(incarnation.next())
}

/// The bounds of all chunks.
pub(in crate::index) fn chunks() -> Range<Vec<u8>> {
    let first = ChunkId { incarnation: Epoch::ZERO, position: 0 };
    key(ObjectId::Chunk(first))..bundles().start
}

/// The bounds of all bundles.
pub(in crate::index) fn bundles() -> Range<Vec<u8>> {
    let first = Slot::all().next().map(|slot| ObjectId::Bundle { slot, epoch: Epoch::ZERO, id: 0 });
    first.map_or_else(Vec::new, key)..vec![TAG + 1]
}

pub(in crate::index) fn decode_key(key: &[u8]) -> Result<ObjectId, RowError> {
    let mut fields = Fields::of("an object's key", key);
    fields.tag(TAG)?;
    let object = fields.object_id()?;
    fields.end()?;
    Ok(object)
}

impl ObjectRow {
    pub(in crate::index) fn encode(&self) -> Vec<u8> {
        [self.live_bytes.to_be_bytes(), self.bytes.to_be_bytes(), self.created_ms.to_be_bytes()].concat()
    }

    pub(in crate::index) fn decode(value: &[u8]) -> Result<Self, RowError> {
        let mut fields = Fields::of("an object's row", value);
        let row = Self { live_bytes: fields.u64()?, bytes: fields.u64()?, created_ms: fields.i64()? };
        fields.end()?;
        Ok(row)
    }
}
