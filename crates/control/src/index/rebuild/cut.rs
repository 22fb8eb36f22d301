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
