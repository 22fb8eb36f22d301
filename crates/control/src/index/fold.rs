//! What do the entries of a chunk make of a stream? Values in, values out.

use wire::batch::VerifiedBatch;
use wire::chunk::{ExtentRow, entries};
use wire::config::Retention;
use wire::crc::crc32c;
use wire::entry::{Entry, EntryError};
use wire::ids::{Rev, SeqNum, StreamId};
use wire::log_frame::ENTRY_PREFIX_BYTES;
use wire::stream_row::{Applied, FoldError, StreamRow};

use super::age::is_empty;
use super::object_id::ObjectId;
use super::rows::extent::Located;

/// Why an extent can't be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtentError {
    /// Its place is not in its object.
    #[error(
        "the extent of stream {stream_id} is at {offset} with {bytes} bytes, past the end of its object's {object_bytes}"
    )]
    Place {
        /// The stream.
        stream_id: StreamId,
        /// Where it starts.
        offset: u32,
        /// Its bytes.
        bytes: u32,
        /// The object's bytes.
        object_bytes: usize,
    },
    /// One of its entries can't be read.
    #[error("an entry of stream {stream_id} can't be read: {source}")]
    Entry {
        /// The stream.
        stream_id: StreamId,
        /// What is wrong with it.
        source: EntryError,
    },
    /// It has no entry.
    #[error("the extent of stream {stream_id} is empty")]
    Empty {
        /// The stream.
        stream_id: StreamId,
    },
    /// An entry of another stream lies in it.
    #[error("an entry of stream {found} lies among those of stream {stream_id}")]
    Foreign {
        /// Whose extent it is.
        stream_id: StreamId,
        /// Whose entry was found.
        found: StreamId,
    },
    /// Entries are missing, or don't follow from what is applied.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

/// A stream after the entries of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folded {
    /// Its row, or the last one it had if it is deleted.
    pub(super) row: Box<StreamRow>,
    /// Whether any entry was not applied before.
    pub(super) is_changed: bool,
    /// Whether it came to be in this chunk.
    pub(super) is_created: bool,
    /// Whether it was deleted in this chunk.
    pub(super) is_deleted: bool,
    /// Where its records lie that were not applied before.
    pub(super) extents: Vec<Located>,
    /// Where its trim point was before.
    pub(super) trimmed_from: SeqNum,
    /// Whether it held no record before.
    pub(super) was_empty: bool,
    /// Whether it was set how long its records, or itself, are kept.
    pub(super) is_set: bool,
    /// When it became empty, was made, or was set so while it was empty; the last of these, if any of them came to pass.
    pub(super) empty_ms: Option<i64>,
}

/// What of a row tells since when it is empty: the trim point, and how long records and the stream itself are kept.
type Kept = (SeqNum, Retention, u64);

fn kept(row: &StreamRow) -> Kept {
    (row.trim_point, row.config.retention, row.config.delete_on_empty_ms)
}

fn bytes_of<'a>(extent: &ExtentRow, body: &'a [u8]) -> Result<&'a [u8], ExtentError> {
    let ExtentRow { stream_id, offset, bytes, .. } = *extent;
    let start = offset as usize;
    body.get(start..start.saturating_add(bytes as usize)).ok_or(ExtentError::Place {
        stream_id,
        offset,
        bytes,
        object_bytes: body.len(),
    })
}

/// Folds extents of one stream, in their order, over its row.
pub(super) struct Folding {
    row: Option<Box<StreamRow>>,
    is_changed: bool,
    is_created: bool,
    is_deleted: bool,
    extents: Vec<Located>,
    trimmed_from: SeqNum,
    was_empty: bool,
    is_set: bool,
    empty_ms: Option<i64>,
    /// The time of what is taken.
    at_ms: i64,
}

/// The new part of an extent: from its first entry that was not applied before.
#[derive(Debug, Default)]
struct Fresh {
    start: usize,
    entries: u32,
    first_rev: Rev,
    content_bytes: u32,
    arrival_ms: i64,
    /// First and end of its records, and the stamps before the first and of the last.
    records: Option<(SeqNum, SeqNum, i64, i64)>,
}

impl Folding {
    /// Begins over the row of a stream; `None` is one that is not known.
    pub(super) fn over(row: Option<Box<StreamRow>>) -> Self {
        let trimmed_from = row.as_ref().map_or(SeqNum::ZERO, |row| row.trim_point);
        let was_empty = row.as_ref().is_none_or(|row| is_empty(row));
        Self {
            row,
            is_changed: false,
            is_created: false,
            is_deleted: false,
            extents: Vec::new(),
            trimmed_from,
            was_empty,
            is_set: false,
            empty_ms: None,
            at_ms: 0,
        }
    }

    /// What is taken from here on is of a chunk that was made then.
    pub(super) fn set_time(&mut self, at_ms: i64) {
        self.at_ms = at_ms;
    }

    /// Takes the next extent, of `object` with this body; what was applied before changes nothing.
    pub(super) fn take(&mut self, extent: &ExtentRow, object: ObjectId, body: &[u8]) -> Result<(), ExtentError> {
        let is_old = self.row.as_ref().is_some_and(|row| extent.last_rev <= row.rev);
        if is_old || self.is_deleted {
            return Ok(());
        }
        let bytes = bytes_of(extent, body)?;
        let stream_id = extent.stream_id;
        let before = self.row.as_deref().map(kept);
        let mut fresh: Option<Fresh> = None;
        let mut at = 0;
        for entry in entries(bytes) {
            let (entry, entry_bytes) = entry.map_err(|source| ExtentError::Entry { stream_id, source })?;
            let start = at;
            at += ENTRY_PREFIX_BYTES + entry_bytes.len();
            let found = entry.place().stream_id;
            if found != stream_id {
                return Err(ExtentError::Foreign { stream_id, found });
            }
            if !self.fold(&entry)? {
                continue;
            }
            let fresh = fresh.get_or_insert_with(|| Fresh { start, first_rev: entry.place().rev, ..Fresh::default() });
            self.is_changed = true;
            fresh.note(&entry, stream_id)?;
            if self.is_deleted {
                break;
            }
        }
        self.note_kept(before);
        let (Some(fresh), Some(row)) = (fresh, &mut self.row) else { return Ok(()) };
        let is_whole = fresh.start == 0;
        let content_bytes = if is_whole { extent.content_bytes } else { fresh.content_bytes };
        row.bytes += u64::from(content_bytes);
        let Some((first, end, before_ms, last_ms)) = fresh.records else { return Ok(()) };
        #[expect(clippy::cast_possible_truncation, reason = "within the extent, whose bytes are a u32")]
        let start = fresh.start as u32;
        self.extents.push(Located {
            object,
            offset: extent.offset + start,
            bytes: extent.bytes - start,
            content_bytes,
            entries: fresh.entries,
            crc: if is_whole { extent.crc } else { crc32c(&bytes[fresh.start..]) },
            first,
            end,
            first_rev: fresh.first_rev,
            last_rev: row.rev,
            slot_epoch: extent.slot_epoch,
            first_ms: if is_whole { extent.first_ms } else { before_ms },
            last_ms,
            arrival_ms: fresh.arrival_ms,
        });
        Ok(())
    }

    /// Notes what has changed of how long it is kept, and whether it is empty since.
    fn note_kept(&mut self, before: Option<Kept>) {
        let Some(row) = self.row.as_deref() else { return };
        let (trim_point, retention, delete_on_empty_ms) = kept(row);
        let was_set = |before: Kept| (before.1, before.2) != (retention, delete_on_empty_ms);
        let is_set = before.is_some_and(was_set);
        self.is_set |= is_set;
        if is_empty(row) && (is_set || before.is_none_or(|before| before.0 < trim_point)) {
            self.empty_ms = Some(self.at_ms);
        }
    }

    /// What the stream is now; `None` when nothing was taken of one that is not known.
    pub(super) fn end(self) -> Option<Folded> {
        let Self {
            row, is_changed, is_created, is_deleted, extents, trimmed_from, was_empty, is_set, empty_ms, ..
        } = self;
        let row = row?;
        Some(Folded { row, is_changed, is_created, is_deleted, extents, trimmed_from, was_empty, is_set, empty_ms })
    }

    /// Applies an entry; whether it was new.
    fn fold(&mut self, entry: &Entry<'_>) -> Result<bool, ExtentError> {
        if let Some(row) = &mut self.row {
            // Content is counted by extent.
            let applied = row.apply(entry, 0)?;
            self.is_deleted |= applied == Applied::Deleted;
            return Ok(applied != Applied::Ignored);
        }
        let place = entry.place();
        let created = match entry {
            Entry::Verb { verb, .. } if place.rev == Rev::ZERO.next() => StreamRow::created(place, verb),
            _ => None,
        };
        let Some(row) = created else {
            let (stream_id, rev, epoch) = (place.stream_id, place.rev, place.slot_epoch);
            return Err(FoldError::Hole { stream_id, applied: Rev::ZERO, rev, epoch }.into());
        };
        (self.row, self.is_created) = (Some(Box::new(row)), true);
        Ok(true)
    }
}

impl Fresh {
    /// Counts an entry. The content of a whole extent stands in its row; that of a part is in its batches.
    fn note(&mut self, entry: &Entry<'_>, stream_id: StreamId) -> Result<(), ExtentError> {
        self.entries += 1;
        let Entry::Batch { head, batch, .. } = entry else { return Ok(()) };
        if self.start > 0 {
            let rev = head.place.rev;
            let batch = VerifiedBatch::summed(batch, head.batch_crc);
            let batch = batch.map_err(|source| FoldError::Batch { stream_id, rev, source })?;
            self.content_bytes += batch.content_bytes();
        }
        self.arrival_ms = self.arrival_ms.max(head.stamping.arrival_ms);
        let (first, before_ms) = match self.records {
            Some((first, _, before_ms, _)) => (first, before_ms),
            None => (head.first, head.stamping.previous_ms),
        };
        self.records = Some((first, head.end().seq_num, before_ms, head.last_ms));
        Ok(())
    }
}
