//! Where do printable bytes and numbers that nobody else has come from?

use std::io;

use crate::error::BenchError;

/// A number that no other run has; never 0.
///
/// Producers must not share one: the server would take new batches for resent ones.
pub(crate) fn unique_number() -> Result<u64, BenchError> {
    let number = getrandom::u64().map_err(|error| BenchError::System {
        action: "drawing a random number",
        source: io::Error::other(error.to_string()),
    })?;
    Ok(number.max(1))
}

/// Pseudo-random numbers by a fixed rule (SplitMix64, Steele and others 2014): the same on every host.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0 when that is 0; even enough for loads.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// A number above 0 and at most 1.
    pub(crate) fn unit(&mut self) -> f64 {
        const BITS: u64 = 53;
        (crate::progress::as_f64(self.next() >> (64 - BITS)) + 1.0) / crate::progress::as_f64(1 << BITS)
    }

    /// Fills with letters, digits, `-` and `_`.
    pub(crate) fn fill_printable(&mut self, out: &mut [u8]) {
        const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
        for chunk in out.chunks_mut(8) {
            let random = self.next().to_le_bytes();
            for (byte, random) in chunk.iter_mut().zip(random) {
                *byte = LETTERS[usize::from(random & 63)];
            }
        }
    }
}
