//! Objects to begin with.

use super::*;
use crate::store::PutNonce;

/// An object as it is stored.
pub(crate) fn sample() -> Vec<u8> {
    let body = b"the body of an object";
    [&body[..], &Trailer::of(body, PutNonce::from_bytes([5; 16])).encode()].concat()
}
