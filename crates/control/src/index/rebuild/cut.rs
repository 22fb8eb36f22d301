//! What is the row of a part of an extent?

use wire::batch::VerifiedBatch;
use wire::chunk::{ExtentRow, entries};
use wire::crc::crc32c;
use wire::entry::Entry;
use wire::ids::SeqNum;
use wire::log_frame::ENTRY_PREFIX_BYTES;
use wire::stream_row::FoldError;

use crate::index::fold::ExtentError;
use crate::index::object_id::ObjectId;
use crate::index::rows::extent::Located;

/// The row of a whole extent.
pub(super) fn whole(row: &ExtentRow, object: ObjectId) -> Located {
    Located {
        object,
        offset: row.offset,
        bytes: row.bytes,
        content_bytes: row.content_bytes,
        entries: row.entries,
        crc: row.crc,
        first: row.first,
        end: row.end,
        first_rev: row.first_rev,
        last_rev: row.last_rev,
        slot_epoch: row.slot_epoch,
        first_ms: row.first_ms,
        last_ms: row.last_ms,
        arrival_ms: row.arrival_ms,
    }
}

/// The row of the batches of an extent that have records in `from..to`, with the verbs before and between them; `None` when there are
/// none.
pub(super) fn cut(
    (row, object): (&ExtentRow, ObjectId),
    bytes: &[u8],
    (from, to): (SeqNum, SeqNum),
) -> Result<Option<Located>, ExtentError> {
    let stream_id = row.stream_id;
    let (mut start, mut at, mut count) = (0, 0, 0);
    let mut found: Option<Located> = None;
    let mut first_rev = row.first_rev;
    for entry in entries(bytes) {
        let (entry, entry_bytes) = entry.map_err(|source| ExtentError::Entry { stream_id, source })?;
        at += ENTRY_PREFIX_BYTES + entry_bytes.len();
        let rev = entry.place().rev;
        count += 1;
        let Entry::Batch { head, batch, .. } = &entry else { continue };
        let end = head.end().seq_num;
        if end <= from {
            (start, count, first_rev) = (at, 0, rev.next());
            continue;
        }
        if head.first >= to {
            break;
        }
        if let Some(before) = found.as_ref().filter(|before| head.first < before.end) {
            return Err(FoldError::Records { stream_id, rev, first: head.first, tail: before.end }.into());
        }
        let batch = VerifiedBatch::summed(batch, head.batch_crc);
        let batch = batch.map_err(|source| FoldError::Batch { stream_id, rev, source })?;
        let (first, first_ms, content_bytes, arrival_ms) = match &found {
            Some(found) => (found.first, found.first_ms, found.content_bytes, found.arrival_ms),
            None => (head.first, head.stamping.previous_ms, 0, 0),
        };
        #[expect(clippy::cast_possible_truncation, reason = "within the extent, whose bytes are a u32")]
        let (offset, length) = (row.offset + start as u32, (at - start) as u32);
        found = Some(Located {
            object,
            offset,
            bytes: length,
            content_bytes: content_bytes + batch.content_bytes(),
            entries: count,
            crc: crc32c(&bytes[start..at]),
            first,
            end,
            first_rev,
            last_rev: rev,
            slot_epoch: row.slot_epoch,
            first_ms,
            last_ms: head.last_ms,
            arrival_ms: arrival_ms.max(head.stamping.arrival_ms),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::ChunkId;
    use crate::core::extent_walk::tests::{STREAM, Sample, batch, bytes_of};
    use crate::index::rebuild::places::tests::extent;
    use wire::ids::{Epoch, Rev};

    fn check(samples: &[Sample], from: u64) -> Result<Option<Located>, ExtentError> {
        let row = ExtentRow { stream_id: STREAM, ..extent(&(0..9)) };
        let object = ObjectId::Chunk(ChunkId { incarnation: Epoch::new(1), position: 1 });
        cut((&row, object), &bytes_of(samples), (SeqNum::new(from), SeqNum::new(9)))
    }

    #[test]
    fn a_cut_begins_with_the_batch_that_is_wanted_and_records_that_go_backwards_are_refused() {
        let samples = [batch(1, 0, 3, 60), batch(2, 3, 2, 20), batch(3, 4, 1, 10)];
        let found = check(&samples[..2], 3).unwrap().unwrap();
        assert_eq!((found.first, found.end, found.first_rev), (SeqNum::new(3), SeqNum::new(5), Rev::new(2)));
        let (rev, first, tail) = (Rev::new(3), SeqNum::new(4), SeqNum::new(5));
        let backwards = FoldError::Records { stream_id: STREAM, rev, first, tail };
        assert_eq!(check(&samples, 1), Err(backwards.into()));
    }
}
