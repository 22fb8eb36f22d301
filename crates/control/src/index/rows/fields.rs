//! How are the fields of a row read, one after the other?

use wire::ids::StreamId;
use wire::slot::Slot;

use super::RowError;
use crate::channel::ChunkId;
use crate::index::object_id::ObjectId;
use wire::ids::Epoch;

const CHUNK: u8 = 0;
const BUNDLE: u8 = 1;

/// Takes fields off the front of a row.
#[derive(Debug)]
pub(in crate::index) struct Fields<'a> {
    what: &'static str,
    bytes: usize,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(in crate::index) fn of(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes: bytes.len(), rest: bytes }
    }

    fn length(&self) -> RowError {
        RowError::Length { what: self.what, bytes: self.bytes }
    }

    pub(in crate::index) fn array<const N: usize>(&mut self) -> Result<[u8; N], RowError> {
        let (field, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.length())?;
        self.rest = rest;
        Ok(*field)
    }

    pub(in crate::index) fn u8(&mut self) -> Result<u8, RowError> {
        Ok(self.array::<1>()?[0])
    }

    pub(in crate::index) fn u32(&mut self) -> Result<u32, RowError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(in crate::index) fn u64(&mut self) -> Result<u64, RowError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(in crate::index) fn i64(&mut self) -> Result<i64, RowError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(in crate::index) fn stream_id(&mut self) -> Result<StreamId, RowError> {
        Ok(StreamId::from_bytes(self.array()?))
    }

    /// Checks that `found` is the tag.
    pub(in crate::index) fn tag(&mut self, tag: u8) -> Result<(), RowError> {
        let found = self.u8()?;
        if found == tag { Ok(()) } else { Err(self.value(found.into())) }
    }

    pub(in crate::index) fn value(&self, value: u64) -> RowError {
        RowError::Value { what: self.what, value }
    }

    pub(in crate::index) fn object_id(&mut self) -> Result<ObjectId, RowError> {
        match self.u8()? {
            CHUNK => {
                let incarnation = Epoch::new(self.u64()?);
                Ok(ObjectId::Chunk(ChunkId { incarnation, position: self.u64()? }))
            }
            BUNDLE => {
                let number = self.u8()?;
                let slot = Slot::new(number).ok_or_else(|| self.value(number.into()))?;
                let epoch = Epoch::new(self.u64()?);
                Ok(ObjectId::Bundle { slot, epoch, id: u128::from_be_bytes(self.array()?) })
            }
            found => Err(self.value(found.into())),
        }
    }

    /// What is left.
    pub(in crate::index) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Checks that nothing is left.
    pub(in crate::index) fn end(self) -> Result<(), RowError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.length()) }
    }
}

/// Puts an object id: a byte of its kind, then incarnation and position (u64), or slot (u8), epoch (u64) and id (u128).
pub(in crate::index) fn put_object_id(out: &mut Vec<u8>, object: ObjectId) {
    match object {
        ObjectId::Chunk(ChunkId { incarnation, position }) => {
            out.push(CHUNK);
            out.extend_from_slice(&incarnation.get().to_be_bytes());
            out.extend_from_slice(&position.to_be_bytes());
        }
        ObjectId::Bundle { slot, epoch, id } => {
            out.extend_from_slice(&[BUNDLE, slot.get()]);
            out.extend_from_slice(&epoch.get().to_be_bytes());
            out.extend_from_slice(&id.to_be_bytes());
        }
    }
}
