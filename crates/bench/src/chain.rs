//! How does each record of a stream prove what came before it?
//!
//! A body is its place in the stream's writing (u64, little-endian), the hash of the body before (u64), its branch (u64: which of
//! several attempts at this place it is), then bytes drawn from all three. So one record alone shows whether its bytes are its own, and two in a row show whether anything is missing between
//! them, stands twice or stands in another order.

use xxhash_rust::xxh3::xxh3_64;

use crate::random::Random;

/// Shortest body, in bytes.
pub(crate) const BODY_BYTES_MIN: usize = 32;
const PLACE: std::ops::Range<usize> = 0..8;
const BEFORE: std::ops::Range<usize> = 8..16;
const BRANCH: std::ops::Range<usize> = 16..24;

/// Where a stream's writing stands: how many records, and the hash of the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Link {
    /// Records so far; the next one has this place.
    pub(crate) place: u64,
    /// The hash of the last one; 0 before the first.
    pub(crate) hash: u64,
}

/// Why a body does not follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("it has {bytes} bytes, fewer than any")]
    Short { bytes: usize },
    #[error("its bytes are not those of record {place}")]
    Bytes { place: u64 },
    #[error("it is record {found} where record {expected} was due")]
    Place { expected: u64, found: u64 },
    #[error("it is record {place}, and follows another one than stands before it")]
    Before { place: u64 },
}

impl Link {
    /// Writes the next body, of so many bytes (at least [`BODY_BYTES_MIN`]), and goes on to it.
    pub(crate) fn write(&mut self, branch: u64, body: &mut [u8]) {
        body[PLACE].copy_from_slice(&self.place.to_le_bytes());
        body[BEFORE].copy_from_slice(&self.hash.to_le_bytes());
        body[BRANCH].copy_from_slice(&branch.to_le_bytes());
        fill(*self, branch, &mut body[BRANCH.end..]);
        *self = self.past(body);
    }

    /// Checks that a body is the next one, and goes on to it.
    pub(crate) fn follow(&mut self, body: &[u8]) -> Result<(), Broken> {
        let found = Self::before(body)?;
        if found.place != self.place {
            return Err(Broken::Place { expected: self.place, found: found.place });
        }
        if found.hash != self.hash {
            return Err(Broken::Before { place: found.place });
        }
        *self = self.past(body);
        Ok(())
    }

    /// Where the writing stood before a body, as it says itself; its bytes are checked.
    pub(crate) fn before(body: &[u8]) -> Result<Self, Broken> {
        if body.len() < BODY_BYTES_MIN {
            return Err(Broken::Short { bytes: body.len() });
        }
        let number = |range: std::ops::Range<usize>| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&body[range]);
            u64::from_le_bytes(bytes)
        };
        let link = Self { place: number(PLACE), hash: number(BEFORE) };
        let mut filler = vec![0; body.len() - BRANCH.end];
        fill(link, number(BRANCH), &mut filler);
        if filler == body[BRANCH.end..] { Ok(link) } else { Err(Broken::Bytes { place: link.place }) }
    }

    /// Where the writing stands after a body that stands at this place.
    pub(crate) fn past(self, body: &[u8]) -> Self {
        // 0 is kept for "nothing yet".
        Self { place: self.place + 1, hash: xxh3_64(body).max(1) }
    }
}

fn fill(link: Link, branch: u64, out: &mut [u8]) {
    Random::new(link.place ^ link.hash.rotate_left(17) ^ branch.rotate_left(40)).fill_printable(out);
}

#[cfg(test)]
mod tests {
    use super::{Broken, Link};

    fn bodies(count: usize) -> Vec<Vec<u8>> {
        let mut link = Link::default();
        let body = |_| {
            let mut body = vec![0; 40];
            link.write(0, &mut body);
            body
        };
        (0..count).map(body).collect()
    }

    fn check(bodies: &[Vec<u8>]) -> Result<(), Broken> {
        let mut link = Link::default();
        bodies.iter().try_for_each(|body| link.follow(body))
    }

    #[test]
    fn bodies_follow_each_other_and_nothing_else() {
        let good = bodies(5);
        assert_eq!(check(&good), Ok(()));
        let without = [&good[..2], &good[3..]].concat();
        assert_eq!(check(&without), Err(Broken::Place { expected: 2, found: 3 }));
        let twice = [&good[..3], &good[2..]].concat();
        assert_eq!(check(&twice), Err(Broken::Place { expected: 3, found: 2 }));
        let mut swapped = good.clone();
        swapped.swap(1, 2);
        assert_eq!(check(&swapped), Err(Broken::Place { expected: 1, found: 2 }));
        let mut flipped = good.clone();
        flipped[1][30] ^= 1;
        assert_eq!(check(&flipped), Err(Broken::Bytes { place: 1 }));
        let mut other = Link { place: 2, hash: 77 };
        let mut body = vec![0; 40];
        other.write(0, &mut body);
        assert_eq!(check(&[&good[..2], &[body]].concat()), Err(Broken::Before { place: 2 }));
        assert_eq!(check(&[vec![1; 3]]), Err(Broken::Short { bytes: 3 }));
    }

    #[test]
    fn a_record_alone_says_where_the_writing_stood() {
        let good = bodies(3);
        let mut link = Link::before(&good[2]).unwrap();
        assert_eq!(link.place, 2);
        link.follow(&good[2]).unwrap();
        assert_eq!(link.place, 3);
        let (mut one, mut other) = (link, link);
        one.write(1, &mut [0; 40]);
        other.write(2, &mut [0; 40]);
        assert_ne!(one.hash, other.hash, "two attempts at a place are told apart");
    }
}
