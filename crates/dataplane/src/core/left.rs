//! Which names may the index know, of a bucket that it knew none of when the run began?
//!
//! Those that have left memory since. They are told by a filter: a name that it does not know never left; of those that never did, a few
//! in a hundred count as if. It takes a byte and a half a name, and what a shard may spend on it is bounded: past that all
//! names count as having left, and each is looked up.

use std::hash::{DefaultHasher, Hash, Hasher};

use wire::ids::BucketId;

/// Bits of the filter for each name.
const BITS_A_NAME: usize = 12;
/// Bits that a name sets, all in one block: with this many, one name in a hundred counts as if it were there, about.
const PROBES: u32 = 6;
/// Bits of a block, which is a line of the processor's cache.
const BLOCK_BITS: usize = 512;
/// Names of the first layer.
const FIRST_NAMES: usize = 1 << 14;
/// How much larger than the one before a layer is.
const GROWTH: usize = 4;

/// The names that have left memory.
#[derive(Debug)]
pub(crate) struct LeftNames {
    layers: Vec<Layer>,
    /// Names that all layers have room for, at most.
    names_max: usize,
    /// It took more names than that.
    is_full: bool,
}

/// A filter for some of the names.
#[derive(Debug)]
struct Layer {
    blocks: Vec<[u64; BLOCK_BITS / 64]>,
    /// Names that it has room for still.
    room: usize,
}

impl LeftNames {
    /// None yet, and room for so many, about.
    pub(crate) fn new(names_max: usize) -> Self {
        Self { layers: Vec::new(), names_max, is_full: false }
    }

    /// A name leaves memory.
    pub(crate) fn note(&mut self, bucket: BucketId, key: &str) {
        if self.is_full {
            return;
        }
        if self.layers.last().is_none_or(|layer| layer.room == 0) {
            self.grow();
        }
        match self.layers.last_mut() {
            Some(layer) if layer.room > 0 => layer.note(hash(bucket, key)),
            Some(_) | None => (self.layers, self.is_full) = (Vec::new(), true),
        }
    }

    /// Whether a name may have left memory.
    pub(crate) fn may_have(&self, bucket: BucketId, key: &str) -> bool {
        let hash = hash(bucket, key);
        self.is_full || self.layers.iter().any(|layer| layer.may_have(hash))
    }

    fn grow(&mut self) {
        let before: usize = self.layers.iter().map(Layer::names).sum();
        let wanted = self.layers.last().map_or(FIRST_NAMES, |layer| layer.names() * GROWTH);
        let names = wanted.min(self.names_max.saturating_sub(before));
        if names > 0 {
            self.layers.push(Layer::new(names));
        }
    }
}

impl Layer {
    fn new(names: usize) -> Self {
        let blocks = vec![[0; BLOCK_BITS / 64]; (names * BITS_A_NAME).div_ceil(BLOCK_BITS)];
        Self { room: blocks.len() * BLOCK_BITS / BITS_A_NAME, blocks }
    }

    /// Names that it was made for.
    fn names(&self) -> usize {
        self.blocks.len() * BLOCK_BITS / BITS_A_NAME
    }

    fn note(&mut self, hash: u64) {
        let at = self.block_of(hash);
        for bit in bits(hash) {
            self.blocks[at][bit / 64] |= 1 << (bit % 64);
        }
        self.room -= 1;
    }

    fn may_have(&self, hash: u64) -> bool {
        let block = &self.blocks[self.block_of(hash)];
        bits(hash).all(|bit| block[bit / 64] >> (bit % 64) & 1 == 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "below the number of blocks")]
    fn block_of(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.blocks.len() as u128) >> 64) as usize
    }
}

/// The bits of a name in its block, which the upper part of its hash chooses.
#[expect(clippy::cast_possible_truncation, reason = "below the bits of a block")]
fn bits(hash: u64) -> impl Iterator<Item = usize> {
    // Nine bits each, of a product that the whole hash goes into.
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..PROBES).map(move |probe| (mixed >> (9 * probe + 10)) as usize % BLOCK_BITS)
}

fn hash(bucket: BucketId, key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (bucket, key).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: BucketId = BucketId::from_bytes([7; 16]);
    const NAMES: usize = 400_000;

    #[test]
    fn a_name_that_left_is_never_taken_for_one_that_did_not_and_few_others_are_taken_for_it() {
        let mut left = LeftNames::new(usize::MAX);
        assert!(!left.may_have(BUCKET, "0"));
        for number in 0..NAMES {
            left.note(BUCKET, &number.to_string());
        }
        assert!((0..NAMES).all(|number| left.may_have(BUCKET, &number.to_string())));
        let wrong = (NAMES..2 * NAMES).filter(|number| left.may_have(BUCKET, &number.to_string())).count();
        assert!(wrong < NAMES / 25, "{wrong} of {NAMES}");
        let other = BucketId::from_bytes([8; 16]);
        let wrong = (0..NAMES).filter(|number| left.may_have(other, &number.to_string())).count();
        assert!(wrong < NAMES / 25, "{wrong} of {NAMES} of another bucket");
    }

    #[test]
    fn with_more_names_than_there_is_room_for_all_count_as_having_left() {
        let mut left = LeftNames::new(40_000);
        let mut noted = 0;
        while !left.may_have(BUCKET, "none") {
            left.note(BUCKET, &noted.to_string());
            noted += 1;
            assert!(noted < 42_000, "it is bounded");
        }
        assert!(noted > 40_000 && left.layers.is_empty());
        let mut none = LeftNames::new(0);
        none.note(BUCKET, "a");
        assert!(none.may_have(BUCKET, "b"));
    }
}
