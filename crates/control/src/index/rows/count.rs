//! `C`, bucket id (16) → u64: how many streams of a bucket lie in the slot.

use wire::ids::BucketId;

use super::RowError;
use super::fields::Fields;

const TAG: u8 = b'C';

pub(in crate::index) fn key(bucket: BucketId) -> Vec<u8> {
    [&[TAG][..], &bucket.to_bytes()].concat()
}

pub(in crate::index) fn value(streams: u64) -> [u8; 8] {
    streams.to_be_bytes()
}

pub(in crate::index) fn decode(value: &[u8]) -> Result<u64, RowError> {
    let mut fields = Fields::of("a bucket's count", value);
    let streams = fields.u64()?;
    fields.end()?;
    Ok(streams)
}
