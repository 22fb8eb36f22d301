//! `X`, stream id (16), last sequence number (u64) → where an extent lies and what it holds.
//!
//! The value: format (u8, 1), object id, then u32 offset, bytes, content bytes, entries, CRC-32C; then u64 first sequence number, first rev,
//! last rev, slot epoch; then i64 first stamp, last stamp, highest arrival. The key has the last sequence number, so one seek
//! finds the extent that holds a record, or the first one after it.

use std::ops::Range;

use wire::ids::{Epoch, Rev, SeqNum, StreamId};

use super::RowError;
use super::fields::{Fields, put_object_id};
use crate::index::object_id::ObjectId;

const TAG: u8 = b'X';
const FORMAT: u8 = 1;

/// An extent: contiguous entries of one stream, and where they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The object that holds it.
    pub object: ObjectId,
    /// Where in the object it starts.
    pub offset: u32,
    /// Its bytes: entries, each behind its length.
    pub bytes: u32,
    /// Content of its records, in bytes.
    pub content_bytes: u32,
    /// Its entries.
    pub entries: u32,
    /// The CRC-32C of its bytes.
    pub crc: u32,
    /// Its first record.
    pub first: SeqNum,
    /// One past its last record.
    pub end: SeqNum,
    /// The rev of its first entry.
    pub first_rev: Rev,
    /// The rev of its last entry.
    pub last_rev: Rev,
    /// The tenure that wrote it.
    pub slot_epoch: Epoch,
    /// A stamp that its first record is not below.
    pub first_ms: i64,
    /// The stamp of its last record.
    pub last_ms: i64,
    /// The highest arrival of its batches.
    pub arrival_ms: i64,
}

fn key_at(stream_id: StreamId, last: u64) -> Vec<u8> {
    [&[TAG][..], &stream_id.to_bytes(), &last.to_be_bytes()].concat()
}

/// The key of the extent that ends before `end`, if the stream has one; there is none that ends before the first record.
pub(in crate::index) fn ending(stream_id: StreamId, end: SeqNum) -> Option<Vec<u8>> {
    end.get().checked_sub(1).map(|last| key_at(stream_id, last))
}

/// The bounds of a stream's extents that hold records at or after `from`.
pub(in crate::index) fn from(stream_id: StreamId, from: SeqNum) -> Range<Vec<u8>> {
    let mut end = key_at(stream_id, u64::MAX);
    end.push(0);
    key_at(stream_id, from.get())..end
}

/// The bounds of a stream's extents that end at or before `end`.
pub(in crate::index) fn below(stream_id: StreamId, end: SeqNum) -> Range<Vec<u8>> {
    key_at(stream_id, 0)..key_at(stream_id, end.get())
}

impl Located {
    pub(in crate::index) fn key(&self, stream_id: StreamId) -> Vec<u8> {
        assert!(self.end > self.first, "an extent row has records");
        key_at(stream_id, self.end.get() - 1)
    }

    pub(in crate::index) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(104);
        out.push(FORMAT);
        put_object_id(&mut out, self.object);
        for field in [self.offset, self.bytes, self.content_bytes, self.entries, self.crc] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        for field in [self.first.get(), self.first_rev.get(), self.last_rev.get(), self.slot_epoch.get()] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        for field in [self.first_ms, self.last_ms, self.arrival_ms] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out
    }

    pub(in crate::index) fn decode(key: &[u8], value: &[u8]) -> Result<Self, RowError> {
        let mut fields = Fields::of("an extent's key", key);
        fields.tag(TAG)?;
        fields.stream_id()?;
        let last = fields.u64()?;
        fields.end()?;
        let mut fields = Fields::of("an extent's row", value);
        fields.tag(FORMAT)?;
        let located = Self {
            object: fields.object_id()?,
            offset: fields.u32()?,
            bytes: fields.u32()?,
            content_bytes: fields.u32()?,
            entries: fields.u32()?,
            crc: fields.u32()?,
            first: SeqNum::new(fields.u64()?),
            end: SeqNum::new(last.checked_add(1).ok_or(RowError::Value { what: "an extent's key", value: last })?),
            first_rev: Rev::new(fields.u64()?),
            last_rev: Rev::new(fields.u64()?),
            slot_epoch: Epoch::new(fields.u64()?),
            first_ms: fields.i64()?,
            last_ms: fields.i64()?,
            arrival_ms: fields.i64()?,
        };
        if located.first >= located.end {
            return Err(fields.value(located.first.get()));
        }
        fields.end()?;
        Ok(located)
    }
}
