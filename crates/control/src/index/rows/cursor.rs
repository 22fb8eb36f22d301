//! `D`, stream id (16) → u64: the stream's extents that end at or before this sequence number are still to be dropped.

use wire::ids::{SeqNum, StreamId};

use super::RowError;
use super::fields::Fields;

const TAG: u8 = b'D';

pub(in crate::index) fn key(stream_id: StreamId) -> Vec<u8> {
    [&[TAG][..], &stream_id.to_bytes()].concat()
}

/// The bounds of all cursors.
pub(in crate::index) fn all() -> std::ops::Range<Vec<u8>> {
    vec![TAG]..vec![TAG + 1]
}

pub(in crate::index) fn value(below: SeqNum) -> [u8; 8] {
    below.get().to_be_bytes()
}

pub(in crate::index) fn decode(key: &[u8], value: &[u8]) -> Result<(StreamId, SeqNum), RowError> {
    let mut fields = Fields::of("a cursor's key", key);
    fields.tag(TAG)?;
    let stream_id = fields.stream_id()?;
    fields.end()?;
    let mut fields = Fields::of("a cursor", value);
    let below = SeqNum::new(fields.u64()?);
    fields.end()?;
    Ok((stream_id, below))
}
