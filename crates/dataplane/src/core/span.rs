//! A piece of a head log: which batches of a stream lie in it, and how much of them a reader takes.

use smallvec::SmallVec;
use wire::batch::VerifiedBatch;
use wire::entry::{BatchHead, ENTRY_BYTES_MAX, Entry};
use wire::hot::RECORDS_HEAD_BYTES;
use wire::ids::{SegmentId, SeqNum, StreamId};
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::log_frame::ENTRY_PREFIX_BYTES;

use super::row::Row;

/// Longest payload: whole entries, of which two always fit a frame together with its head.
pub(super) const PAYLOAD_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX - RECORDS_HEAD_BYTES;
const _: () = assert!(2 * ENTRY_BYTES_MAX <= PAYLOAD_BYTES_MAX);

/// How far a reader is, and what still bounds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor {
    /// The next record it wants.
    pub(crate) next: SeqNum,
    /// Records it may still take.
    pub(crate) records_left: u64,
    /// Content it may still take, in bytes; one record is taken in any case.
    pub(crate) bytes_left: u64,
    /// Stops at the first record stamped at or after it.
    pub(crate) until_ms: Option<i64>,
    /// Whether it took one yet.
    pub(crate) has_taken: bool,
    /// Whether a bound stopped it.
    pub(crate) is_full: bool,
}

/// Bytes of a head log, and where they lie in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span<'a> {
    /// Which of the head logs of this run.
    pub(super) log: u16,
    /// The segment.
    pub(super) segment: SegmentId,
    /// The first byte.
    pub(super) offset: u32,
    /// The bytes.
    pub(super) bytes: &'a [u8],
    /// Whether the batches in it were checked since they were read from anywhere.
    pub(super) is_checked: bool,
}

/// A span that isn't what the index says it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the records at {offset} of segment {segment} are damaged: {what}")]
pub(super) struct Damaged {
    segment: SegmentId,
    offset: u32,
    what: String,
}

/// The batches of a row in a span, from the extent of a record on.
struct Batches<'a> {
    span: Span<'a>,
    stream_id: StreamId,
    extents: SmallVec<[(usize, usize); 8]>,
    extent: usize,
    at: usize,
}

/// One batch in a span.
struct Batch<'a> {
    head: BatchHead,
    batch: VerifiedBatch<'a>,
    entry: &'a [u8],
}

impl<'a> Batches<'a> {
    fn of(row: &Row, span: Span<'a>, from: SeqNum) -> Self {
        let span_end = span.offset as usize + span.bytes.len();
        let extents: SmallVec<[(usize, usize); 8]> = row.extents[row.extent_of(from)..]
            .iter()
            .take_while(|extent| {
                extent.log == span.log
                    && extent.segment == span.segment
                    && extent.offset >= span.offset
                    && extent.end_offset() as usize <= span_end
            })
            .map(|extent| ((extent.offset - span.offset) as usize, (extent.end_offset() - span.offset) as usize))
            .collect();
        let at = extents.first().map_or(0, |(start, _)| *start);
        Self { span, stream_id: row.stream_id, extents, extent: 0, at }
    }

    fn damaged(&self, what: impl ToString) -> Damaged {
        #[expect(clippy::cast_possible_truncation, reason = "a span lies in a segment")]
        let offset = self.span.offset + self.at as u32;
        Damaged { segment: self.span.segment, offset, what: what.to_string() }
    }

    fn next(&mut self) -> Result<Option<Batch<'a>>, Damaged> {
        let Some((_, mut end)) = self.extents.get(self.extent).copied() else { return Ok(None) };
        if self.at >= end {
            self.extent += 1;
            let Some((start, next_end)) = self.extents.get(self.extent).copied() else { return Ok(None) };
            (self.at, end) = (start, next_end);
        }
        let rest = self.span.bytes.get(self.at + ENTRY_PREFIX_BYTES..end).unwrap_or_default();
        let (entry, entry_bytes) = Entry::decode(rest).map_err(|error| self.damaged(error))?;
        let Entry::Batch { head, batch, .. } = entry else {
            return Err(self.damaged("a verb where records should be"));
        };
        if head.place.stream_id != self.stream_id {
            return Err(self.damaged(format!("records of stream {}", head.place.stream_id)));
        }
        let batch = if self.span.is_checked {
            VerifiedBatch::summed(batch, head.batch_crc)
        } else {
            VerifiedBatch::verify(batch, head.batch_crc)
        };
        let batch = batch.map_err(|error| self.damaged(error))?;
        self.at += ENTRY_PREFIX_BYTES + entry_bytes;
        Ok(Some(Batch { head, batch, entry: &rest[..entry_bytes] }))
    }
}

/// Gathers whole entries from a span as far as the cursor's bounds allow.
pub(super) fn gather(row: &Row, span: Span<'_>, cursor: &mut Cursor, payload: &mut Vec<u8>) -> Result<(), Damaged> {
    let before = cursor.next;
    let mut seen_end = None;
    let mut batches = Batches::of(row, span, cursor.next);
    while !cursor.is_full {
        let Some(found) = batches.next()? else { break };
        seen_end = Some(found.head.end().seq_num);
        if found.head.end().seq_num <= cursor.next {
            continue;
        }
        if !payload.is_empty() && payload.len() + found.entry.len() > PAYLOAD_BYTES_MAX {
            cursor.is_full = true;
            break;
        }
        // A gap: what lies between is lost, and the reader crosses it.
        cursor.next = cursor.next.max(found.head.first);
        let taken = cursor.take(&found.head, &found.batch);
        if taken > 0 {
            payload.extend_from_slice(found.entry);
        }
    }
    if cursor.next == before && !cursor.is_full {
        if seen_end.is_some_and(|end| end <= before) {
            let following = row.extents.get(row.extent_of(before) + 1);
            cursor.next = following.map_or(row.tail.seq_num, |extent| extent.first);
            return Ok(());
        }
        return Err(batches.damaged(format!("record {before} is not where the index says")));
    }
    Ok(())
}

impl Cursor {
    /// Takes as many records of a batch as the bounds allow, and says how many.
    fn take(&mut self, head: &BatchHead, batch: &VerifiedBatch<'_>) -> u64 {
        let skip = self.next.since(head.first);
        let wanted = u64::from(head.records) - skip;
        let whole = skip == 0
            && wanted <= self.records_left
            && u64::from(batch.content_bytes()) <= self.bytes_left
            && self.until_ms.is_none_or(|until_ms| head.last_ms < until_ms);
        if whole {
            self.advance(wanted, u64::from(batch.content_bytes()));
            return wanted;
        }
        let mut stamp = head.stamping.previous_ms;
        let mut taken = 0;
        for (at, record) in batch.iter().enumerate() {
            stamp = head.stamping.effective(record.timestamp_ms, stamp);
            if (at as u64) < skip {
                continue;
            }
            let bytes = record.content_bytes() as u64;
            let fits = self.records_left > 0 && (bytes <= self.bytes_left || !self.has_taken);
            if !fits || self.until_ms.is_some_and(|until_ms| stamp >= until_ms) {
                self.is_full = true;
                break;
            }
            self.advance(1, bytes);
            taken += 1;
        }
        taken
    }

    fn advance(&mut self, records: u64, content_bytes: u64) {
        self.next = self.next.after(records);
        self.records_left -= records;
        self.bytes_left = self.bytes_left.saturating_sub(content_bytes);
        self.has_taken = true;
        self.is_full = self.records_left == 0 || self.bytes_left == 0;
    }
}

/// The first record of the span's extents stamped at or after a time, else the one after them.
pub(super) fn find(row: &Row, span: Span<'_>, (within, ms): (SeqNum, i64)) -> Result<SeqNum, Damaged> {
    let mut batches = Batches::of(row, span, within);
    let mut after = within;
    while let Some(found) = batches.next()? {
        after = found.head.end().seq_num;
        if found.head.last_ms < ms {
            continue;
        }
        let mut stamp = found.head.stamping.previous_ms;
        for (at, client) in stamps_of(&found).enumerate() {
            stamp = found.head.stamping.effective(client, stamp);
            let seq_num = found.head.first.after(at as u64);
            if stamp >= ms && seq_num >= row.trim_point {
                return Ok(seq_num);
            }
        }
    }
    Ok(after)
}

/// What the producer stamped each record with, if it did.
fn stamps_of(found: &Batch<'_>) -> impl Iterator<Item = Option<i64>> {
    let batch = found.batch;
    (0..batch.records()).map(move |record| batch.stamp(record))
}
