//! Which slot a stream lies in.

use xxhash_rust::xxh3::Xxh3;

use crate::ids::BucketId;
use crate::names::Key;

/// Slots of a cluster; fixed when it is made.
pub const SLOTS: u8 = 64;

/// One of the [`SLOTS`] that streams are spread over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Slot(u8);

impl Slot {
    /// The slot of a stream: xxh3-64 over the bucket id's 16 bytes and the key's bytes, modulo [`SLOTS`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a remainder by 64 fits a byte")]
    pub fn of(bucket: BucketId, key: &Key) -> Self {
        let mut hash = Xxh3::new();
        hash.update(&bucket.to_bytes());
        hash.update(key.as_str().as_bytes());
        Self((hash.digest() % u64::from(SLOTS)) as u8)
    }

    /// The slot of this number; `None` when there is none.
    #[must_use]
    #[inline]
    pub const fn new(number: u8) -> Option<Self> {
        if number < SLOTS { Some(Self(number)) } else { None }
    }

    /// Its number, `0..SLOTS`.
    #[must_use]
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Every slot in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SLOTS).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashed_bytes_never_change() {
        let bucket = BucketId::from_bytes(*b"0123456789abcdef");
        let slot = |key: &str| Slot::of(bucket, &Key::new(key).unwrap()).get();
        assert_eq!([slot("a"), slot("orders/eu"), slot("ü")], [4, 39, 57]);
    }
}
