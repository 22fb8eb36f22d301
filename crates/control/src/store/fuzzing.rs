//! What must hold of what closes an object, and of the names of files?

use xxhash_rust::xxh3::xxh3_64;

use super::layout::{TRAILER_BYTES, Trailer};
use super::local::path;

/// An object as it is stored: its body, then the closing bytes.
pub(crate) fn check_trailer(bytes: &[u8]) {
    let Some((body, trailer)) = bytes.split_last_chunk::<TRAILER_BYTES>() else { return };
    check_closing(body, trailer);
    let mut mended = *trailer;
    mended[24..32].copy_from_slice(&(body.len() as u64).to_le_bytes());
    let own = xxh3_64(&mended[..40]);
    mended[40..].copy_from_slice(&own.to_le_bytes());
    check_closing(body, &mended);
}

fn check_closing(body: &[u8], closing: &[u8; TRAILER_BYTES]) {
    let Ok(trailer) = Trailer::decode(closing, body.len() as u64) else { return };
    let again = trailer.encode();
    assert_eq!(Trailer::decode(&again, body.len() as u64).as_ref(), Ok(&trailer));
    if trailer.check(body).is_ok() {
        assert_eq!(Trailer::of(body, trailer.nonce), trailer, "a body that checks is the one that was put");
    }
}

pub(crate) fn check_file_name(text: &str) {
    path::check(text);
}

#[cfg(test)]
pub(crate) mod tests;
