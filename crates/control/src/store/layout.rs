//! How does an object lie in a file, or in a bucket?
//!
//! The body first, so that a range of it is a range of what is stored, then 48 closing bytes, little-endian. They hold the nonce of
//! the put, so that what is stored twice is never the same bytes twice: an ETag that is a hash of the bytes names one put. Sizes
//! and ranges that a store answers are those of the body alone.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | `NVOB` |
//! | 4 | 2 | layout version, 1 |
//! | 6 | 2 | zero |
//! | 8 | 16 | nonce of the put |
//! | 24 | 8 | bytes of body |
//! | 32 | 8 | xxh3-64 of the body |
//! | 40 | 8 | xxh3-64 of the 40 bytes above |

use xxhash_rust::xxh3::xxh3_64;

use super::{CorruptObject, ObjectMeta, PutNonce, Version};

/// Bytes that close every object.
pub(in crate::store) const TRAILER_BYTES: usize = 48;
const MAGIC: [u8; 4] = *b"NVOB";
const LAYOUT: u16 = 1;

/// What the closing bytes say of the body before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Trailer {
    pub(in crate::store) nonce: PutNonce,
    pub(in crate::store) body_bytes: u64,
    body_hash: u64,
}

impl Trailer {
    /// Describes a body that is about to be written.
    pub(in crate::store) fn of(body: &[u8], nonce: PutNonce) -> Self {
        Self { nonce, body_bytes: body.len() as u64, body_hash: xxh3_64(body) }
    }

    /// The closing bytes.
    pub(in crate::store) fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut out = [0; TRAILER_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&LAYOUT.to_le_bytes());
        out[8..24].copy_from_slice(&self.nonce.to_bytes());
        out[24..32].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[32..40].copy_from_slice(&self.body_hash.to_le_bytes());
        let own = xxh3_64(&out[0..40]);
        out[40..48].copy_from_slice(&own.to_le_bytes());
        out
    }

    /// Reads the closing bytes of an object that has `body_bytes` before them.
    pub(in crate::store) fn decode(bytes: &[u8; TRAILER_BYTES], body_bytes: u64) -> Result<Self, CorruptObject> {
        let (fields, own) = bytes.split_at(40);
        if fields[0..4] != MAGIC || xxh3_64(fields).to_le_bytes() != own {
            return Err(CorruptObject::Trailer(TRAILER_BYTES));
        }
        let found = u16::from_le_bytes(array(&fields[4..6]));
        if found != LAYOUT {
            return Err(CorruptObject::Layout { found, known: LAYOUT });
        }
        let trailer = Self {
            nonce: PutNonce::from_bytes(array(&fields[8..24])),
            body_bytes: u64::from_le_bytes(array(&fields[24..32])),
            body_hash: u64::from_le_bytes(array(&fields[32..40])),
        };
        if trailer.body_bytes != body_bytes {
            return Err(CorruptObject::Length { found: body_bytes, expected: trailer.body_bytes });
        }
        Ok(trailer)
    }

    /// Says whether `body`, read whole, is what was written.
    pub(in crate::store) fn check(&self, body: &[u8]) -> Result<(), CorruptObject> {
        let found = xxh3_64(body);
        if found != self.body_hash {
            return Err(CorruptObject::Body { found, expected: self.body_hash });
        }
        Ok(())
    }

    /// Content and put together name the version, so that equal bytes written twice are two versions.
    pub(in crate::store) fn version(&self) -> Version {
        Version::new(&format!("{:016x}-{}", self.body_hash, self.nonce))
    }

    pub(in crate::store) fn meta(&self) -> ObjectMeta {
        ObjectMeta { size_bytes: self.body_bytes, version: self.version(), nonce: self.nonce }
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(bytes);
    out
}
