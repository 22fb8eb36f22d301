//! How a value becomes an archive and comes back, always checked.
//!
//! Archives are rkyv 0.8 with `little_endian` and `unaligned`, so that their bytes are the same on every host and at
//! every address. They hold integers, fixed arrays and byte vectors only; a version always stands outside of them.

use rkyv::api::high::{HighDeserializer, HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::Failure;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::{Archive, Deserialize, Serialize};

/// Bytes that are no archive of the type they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes don't validate as what they should hold")]
pub(crate) struct NotAnArchive;

/// Appends the archive of `value` to `out`.
///
/// # Panics
/// Never for values of this crate: writing to a vector cannot fail.
pub(crate) fn put<T>(value: &T, out: &mut Vec<u8>)
where
    T: for<'a> Serialize<HighSerializer<Vec<u8>, ArenaHandle<'a>, Failure>>,
{
    let taken = std::mem::take(out);
    match rkyv::api::high::to_bytes_in::<_, Failure>(value, taken) {
        Ok(bytes) => *out = bytes,
        Err(Failure) => unreachable!("a vector takes every write"),
    }
}

/// The value that `bytes` are the archive of.
pub(crate) fn get<T>(bytes: &[u8]) -> Result<T, NotAnArchive>
where
    T: Archive,
    T::Archived: for<'a> CheckBytes<HighValidator<'a, Failure>> + Deserialize<T, HighDeserializer<Failure>>,
{
    rkyv::from_bytes::<T, Failure>(bytes).map_err(|Failure| NotAnArchive)
}

/// The archived value in place, checked.
pub(crate) fn view<T>(bytes: &[u8]) -> Result<&T, NotAnArchive>
where
    T: rkyv::Portable + for<'a> CheckBytes<HighValidator<'a, Failure>>,
{
    rkyv::access::<T, Failure>(bytes).map_err(|Failure| NotAnArchive)
}
