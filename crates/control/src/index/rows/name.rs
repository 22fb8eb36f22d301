//! `N`, bucket id (16), key → stream id (16): which stream has a name.

use wire::ids::{BucketId, StreamId};

use super::RowError;
use super::fields::Fields;

const TAG: u8 = b'N';

/// The row's key; with an empty `key`, what the keys of the bucket's names start with.
pub(in crate::index) fn key(bucket: BucketId, key: &str) -> Vec<u8> {
    [&[TAG][..], &bucket.to_bytes(), key.as_bytes()].concat()
}

/// The bounds of all names.
pub(in crate::index) fn all() -> std::ops::Range<Vec<u8>> {
    vec![TAG]..vec![TAG + 1]
}

pub(in crate::index) fn value(stream_id: StreamId) -> [u8; 16] {
    stream_id.to_bytes()
}

pub(in crate::index) fn decode(value: &[u8]) -> Result<StreamId, RowError> {
    let mut fields = Fields::of("a name's row", value);
    let stream_id = fields.stream_id()?;
    fields.end()?;
    Ok(stream_id)
}
