//! What must hold of what is in the store and in the index, whatever bytes stand there?

use bytes::Bytes;
use wire::batch::VerifiedBatch;
use wire::chunk::entries;
use wire::entry::Entry;
use wire::fuzzing::{Target, mend_entries, with_mended_sums};
use wire::handoff::HistoryFrom;
use wire::ids::{SeqNum, StreamId};

use crate::channel::fuzzing::{check_cluster, check_lease};
use crate::core::extent_walk::{Walk, WalkError, Wanted};
use crate::index::fuzzing::{check_names, check_record};
use crate::settle::clock;
use crate::store::fuzzing::{check_file_name, check_trailer};

pub use crate::index::fuzzing::{fold, index_rows};

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "extent_walk", check: extent_walk },
    Target { name: "fold", check: fold },
    Target { name: "index_rows", check: index_rows },
    Target { name: "object_names", check: object_names },
    Target { name: "store_meta", check: store_meta },
];

/// The objects that are replaced, and what closes every object: the first byte says which.
///
/// What is taken is the same once it is written and read again.
///
/// # Panics
/// When that is not so.
pub fn store_meta(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which {
        0 => check_cluster(bytes),
        1 => check_lease(bytes),
        2 => with_mended_sums(bytes, mend_state_sum, clock::check),
        3 => check_record(bytes),
        _ => check_trailer(bytes),
    }
}

/// Mends the sum at 8, of the two bytes before it and of all that is behind it.
pub(crate) fn mend_state_sum(bytes: &mut [u8]) {
    if bytes.len() >= 12 {
        let sum = wire::crc::crc32c(&[&bytes[6..8], &bytes[12..]].concat());
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A text as the name of an object, or of a file in a local store.
///
/// A name that is taken leads to one place, and what stands there back to it.
///
/// # Panics
/// When that is not so.
pub fn object_names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    check_file_name(text);
    check_names(text);
}

/// An extent, and what a reader wants of it: three bytes say how it arrives, from where on and how much.
///
/// What is kept of it does not depend on the pieces that it arrives in, and is whole batches of the stream that stand in it.
///
/// # Panics
/// When that is not so.
pub fn extent_walk(bytes: &[u8]) {
    let [piece_bytes, from, bytes_max, extent @ ..] = bytes else { return };
    with_mended_sums(extent, mend_entries, |extent| {
        let Some(wanted) = wanted(extent, *from, *bytes_max) else { return };
        let at_once = walk(extent, extent.len(), wanted);
        assert_eq!(walk(extent, usize::from(*piece_bytes) + 1, wanted), at_once, "pieces make no difference");
        if let Ok((kept, first, end, next_at)) = at_once {
            check_kept(extent, &kept, next_at);
            assert!(end <= wanted.end, "{first} to {end} of an extent that ends at {}", wanted.end);
        }
    });
}

fn wanted(extent: &[u8], from: u8, bytes_max: u8) -> Option<Wanted> {
    let read: Vec<Entry<'_>> = entries(extent).map_while(|entry| Some(entry.ok()?.0)).collect();
    let end = read.iter().filter_map(|entry| match entry {
        Entry::Batch { head, .. } => Some(head.end().seq_num),
        Entry::Verb { .. } => None,
    });
    let end = end.max()?;
    let stream_id = read.first().map_or_else(StreamId::default, |entry| entry.place().stream_id);
    let from = match from {
        0..128 => HistoryFrom::SeqNum(SeqNum::new(end.get().saturating_sub(from.into()))),
        128.. => HistoryFrom::Timestamp(i64::from(from) * 100),
    };
    Some(Wanted { stream_id, from, end, bytes_max: u64::from(bytes_max) * 16 })
}

type Kept = (Vec<u8>, SeqNum, SeqNum, u64);

fn walk(extent: &[u8], piece_bytes: usize, wanted: Wanted) -> Result<Kept, WalkError> {
    let mut walk = Walk::new(wanted, 0);
    for piece in extent.chunks(piece_bytes) {
        if walk.is_done() {
            break;
        }
        assert!(walk.horizon() > 0);
        walk.push(&Bytes::copy_from_slice(piece))?;
    }
    let cut = walk.finish()?;
    Ok((cut.pieces.concat(), cut.first, cut.end, cut.next_at))
}

fn check_kept(extent: &[u8], kept: &[u8], next_at: u64) {
    let end = usize::try_from(next_at).unwrap_or(usize::MAX);
    assert!(extent.get(..end).is_some_and(|read| read.ends_with(kept)), "what is kept stands in the extent");
    for entry in entries(kept) {
        let (entry, _) = entry.expect("whole entries are kept");
        if let Entry::Batch { head, batch, .. } = entry {
            let _judged = VerifiedBatch::verify(batch, head.batch_crc);
        }
    }
}

#[cfg(test)]
mod tests;
