//! Which numbers follow from a seed, and what sums up a run.

/// Numbers that follow from a seed alone.
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    /// The numbers of `seed`.
    #[must_use]
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number (splitmix64, by Sebastiano Vigna).
    pub(crate) fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = end.max(1) as u64;
        usize::try_from(self.next_number() % end).unwrap_or(0)
    }

    /// Whether something happens that happens `parts` times in 1,000.
    pub(crate) fn happens(&mut self, parts: u32) -> bool {
        self.next_number() % 1000 < u64::from(parts)
    }
}

/// What happened, summed up in the order in which it did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trace(u64);

impl Trace {
    /// Adds one thing.
    pub(crate) fn note(&mut self, what: u64) {
        self.0 = Draw(self.0.rotate_left(5) ^ what).next_number();
    }

    /// The sum so far.
    pub(crate) fn sum(self) -> u64 {
        self.0
    }
}
