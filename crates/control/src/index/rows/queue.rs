//! What waits for a time: `G`, due (u64 ms), object id: an object to delete; `E`, due (u64 ms), stream id: a stream whose oldest
//! records may be too old; `T`, due (u64 ms), stream id: a deleted stream to forget. The values are empty.
//!
//! Times before 1970 count as 1970.

use std::ops::Range;

use wire::ids::StreamId;

use super::RowError;
use super::fields::{Fields, put_object_id};
use crate::index::object_id::ObjectId;

/// Which queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::index) enum Queue {
    Dead = b'G',
    Age = b'E',
    Forget = b'T',
}

impl Queue {
    fn start(self, due_ms: i64) -> Vec<u8> {
        [&[self as u8][..], &due_ms.max(0).to_be_bytes()].concat()
    }

    /// The bounds of what is due at `now_ms`.
    pub(in crate::index) fn due(self, now_ms: i64) -> Range<Vec<u8>> {
        vec![self as u8]..self.start(now_ms.saturating_add(1))
    }

    pub(in crate::index) fn stream_key(self, due_ms: i64, stream_id: StreamId) -> Vec<u8> {
        [&self.start(due_ms)[..], &stream_id.to_bytes()].concat()
    }

    pub(in crate::index) fn decode_stream(self, key: &[u8]) -> Result<(i64, StreamId), RowError> {
        let mut fields = Fields::of("a queue's row", key);
        fields.tag(self as u8)?;
        let row = (fields.i64()?, fields.stream_id()?);
        fields.end()?;
        Ok(row)
    }
}

/// The key of an object to delete.
pub(in crate::index) fn dead_key(due_ms: i64, object: ObjectId) -> Vec<u8> {
    let mut key = Queue::Dead.start(due_ms);
    put_object_id(&mut key, object);
    key
}

pub(in crate::index) fn decode_dead(key: &[u8]) -> Result<(i64, ObjectId), RowError> {
    let mut fields = Fields::of("a queue's row", key);
    fields.tag(Queue::Dead as u8)?;
    let row = (fields.i64()?, fields.object_id()?);
    fields.end()?;
    Ok(row)
}
