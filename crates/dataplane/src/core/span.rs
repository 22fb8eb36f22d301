//! A piece of a head log or of the store: which batches of a stream lie in it, and how much of them a reader takes.

use std::fmt;

use smallvec::{SmallVec, smallvec};
use wire::batch::VerifiedBatch;
use wire::entry::{BatchHead, ENTRY_BYTES_MAX, Entry, Place, Verb};
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

/// Where a span lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lies {
    /// In a head log, or in the ring, beside entries of other streams.
    Log {
        /// Which of the head logs of this run.
        log: u16,
        /// The segment.
        segment: SegmentId,
        /// The first byte.
        offset: u32,
    },
    /// In the store, where it holds nothing but the stream's batches and verbs.
    Store {
        /// Its first record.
        first: SeqNum,
        /// One past its last record.
        end: SeqNum,
    },
}

/// Entries, each behind its length, and where they lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span<'a> {
    /// Where.
    pub(super) lies: Lies,
    /// The bytes.
    pub(super) bytes: &'a [u8],
    /// Whether the batches in it were checked since they were read from anywhere.
    pub(super) is_checked: bool,
}

impl Span<'_> {
    /// Whether it holds records from there on, as far as the row tells.
    pub(super) fn reaches(&self, row: &Row, from: SeqNum) -> bool {
        from < row.tail.seq_num
            && match self.lies {
                Lies::Store { end, .. } => from < end,
                Lies::Log { log, segment, offset } => {
                    !extents_within(row, (log, segment, offset), self.bytes.len(), from).is_empty()
                }
            }
    }
}

/// A span that isn't what the index says it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the records {at} bytes into {lies} are damaged: {what}")]
pub(super) struct Damaged {
    lies: Lies,
    at: usize,
    what: String,
}

impl fmt::Display for Lies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log { segment, offset, .. } => write!(f, "the span at {offset} of segment {segment}"),
            Self::Store { first, end } => write!(f, "the settled records {first} to {end}"),
        }
    }
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
        let extents = match span.lies {
            Lies::Log { log, segment, offset } => extents_within(row, (log, segment, offset), span.bytes.len(), from),
            Lies::Store { .. } => smallvec![(0, span.bytes.len())],
        };
        let at = extents.first().map_or(0, |(start, _)| *start);
        Self { span, stream_id: row.stream_id, extents, extent: 0, at }
    }

    fn damaged(&self, what: impl ToString) -> Damaged {
        Damaged { lies: self.span.lies, at: self.at, what: what.to_string() }
    }

    /// Where the next entry lies among the span's bytes, at most until there.
    fn next_range(&mut self) -> Option<(usize, usize)> {
        let (_, end) = self.extents.get(self.extent).copied()?;
        if self.at < end {
            return Some((self.at, end));
        }
        self.extent += 1;
        let range = self.extents.get(self.extent).copied()?;
        self.at = range.0;
        Some(range)
    }

    fn next(&mut self) -> Result<Option<Batch<'a>>, Damaged> {
        while let Some((at, end)) = self.next_range() {
            let rest = self.span.bytes.get(at + ENTRY_PREFIX_BYTES..end).unwrap_or_default();
            let (entry, entry_bytes) = Entry::decode(rest).map_err(|error| self.damaged(error))?;
            let stream_id = entry.place().stream_id;
            if stream_id != self.stream_id {
                return Err(self.damaged(format!("records of stream {stream_id}")));
            }
            match (entry, self.span.lies) {
                (Entry::Batch { head, batch, .. }, _) => {
                    return self.batch(head, batch, &rest[..entry_bytes]).map(Some);
                }
                (Entry::Verb { .. }, Lies::Store { .. }) => self.at += ENTRY_PREFIX_BYTES + entry_bytes,
                (Entry::Verb { .. }, Lies::Log { .. }) => {
                    return Err(self.damaged("a verb where records should be"));
                }
            }
        }
        Ok(None)
    }

    fn batch(&mut self, head: BatchHead, batch: &'a [u8], entry: &'a [u8]) -> Result<Batch<'a>, Damaged> {
        let batch = if self.span.is_checked {
            VerifiedBatch::summed(batch, head.batch_crc)
        } else {
            VerifiedBatch::verify(batch, head.batch_crc)
        };
        let batch = batch.map_err(|error| self.damaged(error))?;
        self.at += ENTRY_PREFIX_BYTES + entry.len();
        Ok(Batch { head, batch, entry })
    }
}

/// The extents of a row that lie in a piece of a head log from there on, without one that is missing, as ranges of its bytes.
/// One that has grown since the piece was read ends where the piece does.
fn extents_within(
    row: &Row,
    (log, segment, offset): (u16, SegmentId, u32),
    span_bytes: usize,
    from: SeqNum,
) -> SmallVec<[(usize, usize); 8]> {
    row.extents[row.extent_of(from)..]
        .iter()
        .take_while(|extent| extent.log == log && extent.segment == segment && extent.offset >= offset)
        .map(|extent| ((extent.offset - offset) as usize, (extent.end_offset() - offset) as usize))
        .take_while(|(start, _)| *start < span_bytes)
        .map(|(start, end)| (start, end.min(span_bytes)))
        .collect()
}

/// Gathers whole entries from a span as far as the cursor's bounds allow.
pub(super) fn gather(row: &Row, span: Span<'_>, cursor: &mut Cursor, payload: &mut Vec<u8>) -> Result<(), Damaged> {
    let before = cursor.next;
    let (mut seen_end, mut is_ahead) = (None, false);
    let mut batches = Batches::of(row, span, cursor.next);
    while !cursor.is_full {
        let Some(found) = batches.next()? else { break };
        if found.head.first >= row.tail.seq_num {
            // In the store and in the index already, and soon told.
            is_ahead = true;
            break;
        }
        seen_end = Some(found.head.end().seq_num);
        if found.head.end().seq_num <= cursor.next {
            continue;
        }
        if !payload.is_empty() && payload.len() + found.entry.len() > PAYLOAD_BYTES_MAX {
            cursor.is_full = true;
            break;
        }
        cursor.cross(row, found.head.first, payload);
        let taken = cursor.take(&found.head, &found.batch);
        if taken > 0 {
            payload.extend_from_slice(found.entry);
        }
    }
    if cursor.next > before || cursor.is_full {
        return Ok(());
    }
    cursor.next = match span.lies {
        Lies::Log { .. } if seen_end.is_some_and(|end| end <= before) => {
            row.extents.get(row.extent_of(before) + 1).map_or(row.tail.seq_num, |extent| extent.first)
        }
        Lies::Store { .. } if is_ahead => row.tail.seq_num,
        Lies::Log { .. } | Lies::Store { .. } => {
            return Err(batches.damaged(format!("record {before} is not where the index says")));
        }
    };
    Ok(())
}

impl Cursor {
    /// Goes on behind records that are lost, and tells the reader that they are.
    pub(super) fn cross(&mut self, row: &Row, to: SeqNum, payload: &mut Vec<u8>) {
        if to > self.next {
            let place = Place { stream_id: row.stream_id, slot: row.slot, slot_epoch: row.epoch, rev: row.rev };
            payload.extend_from_slice(&Verb::Gap { from: self.next, to }.encode(place));
            self.next = to;
        }
    }

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

/// The first record of the span's extents stamped at or after a time, else the one after them; never one that is trimmed.
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
            if stamp >= ms {
                return Ok(found.head.first.after(at as u64).max(row.trim_point));
            }
        }
    }
    Ok(after.max(row.trim_point))
}

/// What the producer stamped each record with, if it did.
fn stamps_of(found: &Batch<'_>) -> impl Iterator<Item = Option<i64>> {
    let batch = found.batch;
    (0..batch.records()).map(move |record| batch.stamp(record))
}
