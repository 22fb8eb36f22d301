//! What must hold of the decoders, whatever bytes they are given?
//!
//! Each target of `fuzz` is one function, which panics where something doesn't hold; that bytes are refused is well. An input whose
//! layout has sums is tried twice, the second time with its sums mended, so that what lies behind a sum is reached too. The tests of
//! each crate that has targets [replay](replay) what `fuzz/corpus` holds for them.

mod corpus;
mod entries;
mod frames;
mod logs;
mod names;
mod objects;

use std::ops::Range;

pub use corpus::{Seed, Target, replay};
pub use entries::{batch, entry, mend_entries, mend_entry};
pub(crate) use frames::check_message;
pub use frames::{frames, hot_heads, messages};
pub use logs::{log_frame, segment_header, superblock};
pub use names::{config, names};
pub use objects::{bucket, object, snapshot, stream_row};

use crate::crc::crc32c;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "batch", check: batch },
    Target { name: "bucket", check: bucket },
    Target { name: "config", check: config },
    Target { name: "entry", check: entry },
    Target { name: "frames", check: frames },
    Target { name: "hot_heads", check: hot_heads },
    Target { name: "log_frame", check: log_frame },
    Target { name: "messages", check: messages },
    Target { name: "names", check: names },
    Target { name: "object", check: object },
    Target { name: "segment_header", check: segment_header },
    Target { name: "snapshot", check: snapshot },
    Target { name: "stream_row", check: stream_row },
    Target { name: "superblock", check: superblock },
];

/// Tries an input as it is, and once more with its sums mended.
pub fn with_mended_sums(bytes: &[u8], mend: impl FnOnce(&mut [u8]), check: impl Fn(&[u8])) {
    check(bytes);
    let mut mended = bytes.to_vec();
    mend(&mut mended);
    if mended != bytes {
        check(&mended);
    }
}

/// Puts the CRC-32C of the bytes in `summed` at `at`; does nothing where they end before either.
pub fn mend_sum(bytes: &mut [u8], summed: Range<usize>, at: usize) {
    let sum = bytes.get(summed).map(crc32c);
    let field = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>());
    if let (Some(sum), Some(field)) = (sum, field) {
        *field = sum.to_le_bytes();
    }
}

#[cfg(test)]
mod tests;
