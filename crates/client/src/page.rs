//! How log entries become the records that were asked for.

use bytes::Bytes;
use wire::batch::{BatchError, VerifiedBatch};
use wire::entry::{BatchHead, Entry, EntryError, Verb};
use wire::hot::RecordsHead;
use wire::ids::{Position, SeqNum, StreamId};

use crate::record::Record;

/// Records in order, and where the stream stood when they were read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The records; fewer than `start..end` has numbers only where the stream has a gap.
    pub records: Vec<Record>,
    /// Where the page starts.
    pub start: SeqNum,
    /// Where the next page starts.
    pub end: SeqNum,
    /// The committed tail.
    pub tail: Position,
    /// Records below it are gone.
    pub trim_point: SeqNum,
    /// Whether nothing was left up to the tail within what was asked for.
    pub at_tail: bool,
    /// The stream that the records are of; none where there are none.
    pub stream_id: Option<StreamId>,
}

/// Why a payload is not the records that its head promises.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageError {
    #[error("{0}")]
    Entry(#[from] EntryError),
    #[error("the batch at {first} is wrong: {error}")]
    Batch { first: SeqNum, error: BatchError },
    #[error("the batch at {first} has {found} records where its head says {expected}")]
    Records { first: SeqNum, expected: u16, found: u16 },
    #[error("the batch at {first} ends at stamp {found} where its head says {expected}")]
    Stamps { first: SeqNum, expected: i64, found: i64 },
    #[error("the records {from}..{to} are missing")]
    Missing { from: SeqNum, to: SeqNum },
    #[error("an entry of stream {found} among those of {expected}")]
    Stream { expected: StreamId, found: StreamId },
}

/// Decodes the records `from..head.end` of a payload, every batch checked, each body a slice of `payload`.
///
/// `from` may lie after the head's start (what was delivered before is cut off), not before what the payload covers.
pub(crate) fn decode(
    head: &RecordsHead,
    from: SeqNum,
    payload: &Bytes,
    stream_id: Option<StreamId>,
) -> Result<Page, PageError> {
    let mut cut = Cut { next: from, end: head.end, payload, records: Vec::new() };
    let mut rest = &payload[..];
    let mut read_id = None;
    while !rest.is_empty() {
        let (entry, entry_bytes) = Entry::decode(rest)?;
        rest = &rest[entry_bytes..];
        let found = entry.place().stream_id;
        if let Some(expected) = stream_id.filter(|expected| *expected != found) {
            return Err(PageError::Stream { expected, found });
        }
        read_id = Some(found);
        match entry {
            Entry::Batch { head, batch, .. } => cut.batch(&head, batch)?,
            Entry::Verb { verb: Verb::Gap { from, to }, .. } if from <= cut.next => {
                cut.next = cut.next.max(to.min(cut.end));
            }
            Entry::Verb { .. } => {}
        }
    }
    if cut.next < cut.end {
        return Err(PageError::Missing { from: cut.next, to: cut.end });
    }
    Ok(Page {
        records: cut.records,
        start: from,
        end: head.end.max(from),
        tail: head.tail,
        trim_point: head.trim_point,
        at_tail: head.at_tail,
        stream_id: read_id,
    })
}

struct Cut<'a> {
    /// The next record that is due.
    next: SeqNum,
    end: SeqNum,
    payload: &'a Bytes,
    records: Vec<Record>,
}

impl Cut<'_> {
    fn batch(&mut self, head: &BatchHead, batch: &[u8]) -> Result<(), PageError> {
        let first = head.first;
        let batch = VerifiedBatch::verify(batch, head.batch_crc).map_err(|error| PageError::Batch { first, error })?;
        if batch.records() != head.records {
            let (expected, found) = (head.records, batch.records());
            return Err(PageError::Records { first, expected, found });
        }
        let last = first.after(u64::from(head.records));
        if last <= self.next || first >= self.end {
            return Ok(());
        }
        if first > self.next {
            return Err(PageError::Missing { from: self.next, to: first });
        }
        let due = last.min(self.end).since(self.next);
        self.records.reserve(usize::try_from(due).unwrap_or(usize::MAX));
        let mut timestamp_ms = head.stamping.previous_ms;
        for (record, seq_num) in batch.iter().zip((first.get()..last.get()).map(SeqNum::new)) {
            timestamp_ms = head.stamping.effective(record.timestamp_ms, timestamp_ms);
            if seq_num < self.next || seq_num >= self.end {
                continue;
            }
            let slice = |bytes: &[u8]| self.payload.slice_ref(bytes);
            self.records.push(Record {
                seq_num,
                timestamp_ms,
                headers: record.headers().map(|(name, value)| (slice(name), slice(value))).collect(),
                body: slice(record.body),
            });
        }
        if timestamp_ms != head.last_ms {
            let (expected, found) = (head.last_ms, timestamp_ms);
            return Err(PageError::Stamps { first, expected, found });
        }
        self.next = last.min(self.end);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
