//! What must hold of what a verification keeps, whatever became of it?

use wire::fuzzing::{Target, mend_sum, with_mended_sums};

use crate::verify::journal;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[Target { name: "verify_journal", check: verify_journal }];

/// The journal of a writer, or of the readers.
///
/// What it says of each stream is that again when it is written anew, and nothing that is torn changes it.
///
/// # Panics
/// When that is not so.
pub fn verify_journal(bytes: &[u8]) {
    let mend = |bytes: &mut [u8]| bytes.chunks_mut(24).for_each(|entry| mend_sum(entry, 0..20, 20));
    with_mended_sums(bytes, mend, journal::check);
}

#[cfg(test)]
mod tests;
