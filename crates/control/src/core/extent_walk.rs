//! Which part of a large extent does a reader want, and is it whole?
//!
//! An extent is entries of one stream, each behind its length (u32, little-endian). The walk starts at one of them, takes the
//! bytes as they come, leaves out the batches that lie before what is wanted, and stops at an entry's end when it has enough.
//! Every byte that it keeps lies under a sum of its entry, which it checks: so the rest of the extent need not be there.

use bytes::Bytes;
use wire::crc::crc32c;
use wire::entry::{ENTRY_BYTES_MAX, Entry, EntryError};
use wire::handoff::HistoryFrom;
use wire::ids::{SeqNum, StreamId};
use wire::log_frame::ENTRY_PREFIX_BYTES;

use super::read_plan::reaches;

/// Why the bytes are not entries of the stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalkError {
    /// An entry is none.
    #[error("{0}")]
    Entry(#[from] EntryError),
    /// What stands before an entry is not its length.
    #[error("{found} stands before an entry as its length, and it has {expected} bytes")]
    Length {
        /// What stands there.
        found: usize,
        /// What the entry says, or the longest there is.
        expected: usize,
    },
    /// An entry of another stream.
    #[error("an entry of stream {found} lies among those of {expected}")]
    Stream {
        /// Whose it is.
        found: StreamId,
        /// Whose it should be.
        expected: StreamId,
    },
    /// The bytes end within an entry.
    #[error("it ends within an entry, {bytes} bytes after that began")]
    Torn {
        /// Bytes of the entry that are there.
        bytes: usize,
    },
    /// The records that the index promises are not there.
    #[error("its records end before {end}, which the index says is their end")]
    Missing {
        /// One past the last record promised.
        end: SeqNum,
    },
}

/// Of what the walk keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Whose entries.
    pub(crate) stream_id: StreamId,
    /// Where they start.
    pub(crate) from: HistoryFrom,
    /// One past the last record of the extent.
    pub(crate) end: SeqNum,
    /// Bytes to keep at most; one batch in any case.
    pub(crate) bytes_max: u64,
}

/// A walk through the bytes of an extent.
#[derive(Debug)]
pub(crate) struct Walk {
    wanted: Wanted,
    /// Where the next entry to be judged starts in the extent.
    at: u64,
    /// The start of an entry whose rest has not come.
    carried: Vec<u8>,
    kept: Vec<Bytes>,
    kept_bytes: u64,
    first: Option<SeqNum>,
    end: SeqNum,
    is_done: bool,
}

/// What a walk kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The entries, in order, cut anywhere.
    pub(crate) pieces: Vec<Bytes>,
    /// The first record.
    pub(crate) first: SeqNum,
    /// One past the last record.
    pub(crate) end: SeqNum,
    /// Where in the extent the next entry starts.
    pub(crate) next_at: u64,
}

enum Verdict {
    Skip,
    Keep,
    Stop,
}

impl Walk {
    /// A walk from the entry that starts at `at` in the extent.
    pub(crate) fn new(wanted: Wanted, at: u64) -> Self {
        Self {
            wanted,
            at,
            carried: Vec::new(),
            kept: Vec::new(),
            kept_bytes: 0,
            first: None,
            end: SeqNum::ZERO,
            is_done: false,
        }
    }

    /// Whether it has enough.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Where in the extent it is likely to end.
    pub(crate) fn horizon(&self) -> u64 {
        self.at + self.wanted.bytes_max.saturating_sub(self.kept_bytes).max(1)
    }

    /// Takes the bytes that follow.
    pub(crate) fn push(&mut self, piece: &Bytes) -> Result<(), WalkError> {
        let mut at = self.complete_carried(piece)?;
        let mut run = at..at;
        while !self.is_done {
            let rest = &piece[at..];
            let whole = prefixed_bytes(rest)?.filter(|bytes| *bytes <= rest.len());
            let Some(bytes) = whole else {
                self.carried.extend_from_slice(rest);
                break;
            };
            match self.judge(&rest[..bytes])? {
                Verdict::Stop => break,
                Verdict::Keep => run.end = at + bytes,
                Verdict::Skip => run = at + bytes..at + bytes,
            }
            at += bytes;
        }
        if !run.is_empty() {
            self.kept.push(piece.slice(run));
        }
        Ok(())
    }

    /// Ends the walk: at the extent's end, or when it is done.
    pub(crate) fn finish(self) -> Result<Cut, WalkError> {
        if !self.is_done && !self.carried.is_empty() {
            return Err(WalkError::Torn { bytes: self.carried.len() });
        }
        let (Some(first), true) = (self.first, self.is_done || self.end == self.wanted.end) else {
            return Err(WalkError::Missing { end: self.wanted.end });
        };
        Ok(Cut { pieces: self.kept, first, end: self.end, next_at: self.at })
    }

    /// Adds to the entry that began in an earlier piece; how many bytes of this one belong to it.
    fn complete_carried(&mut self, piece: &[u8]) -> Result<usize, WalkError> {
        let mut used = 0;
        while !self.carried.is_empty() && used < piece.len() {
            let need = prefixed_bytes(&self.carried)?.unwrap_or(ENTRY_PREFIX_BYTES);
            let take = (need - self.carried.len()).min(piece.len() - used);
            self.carried.extend_from_slice(&piece[used..used + take]);
            used += take;
            if prefixed_bytes(&self.carried)? == Some(self.carried.len()) {
                self.take_carried()?;
            }
        }
        Ok(used)
    }

    /// Judges the carried entry, which is whole.
    fn take_carried(&mut self) -> Result<(), WalkError> {
        let entry = Bytes::from(std::mem::take(&mut self.carried));
        if let Verdict::Keep = self.judge(&entry)? {
            self.kept.push(entry);
        }
        Ok(())
    }

    /// Judges one entry with its length before it.
    fn judge(&mut self, prefixed: &[u8]) -> Result<Verdict, WalkError> {
        let bytes = prefixed.len() - ENTRY_PREFIX_BYTES;
        let (entry, expected) = Entry::decode(&prefixed[ENTRY_PREFIX_BYTES..])?;
        if expected != bytes {
            return Err(WalkError::Length { found: bytes, expected });
        }
        let (found, expected) = (entry.place().stream_id, self.wanted.stream_id);
        if found != expected {
            return Err(WalkError::Stream { found, expected });
        }
        // Verbs behind the last record come along: nobody would ask for them again.
        let is_full = self.kept_bytes + prefixed.len() as u64 > self.wanted.bytes_max && self.end != self.wanted.end;
        if self.first.is_some() && is_full {
            self.is_done = true;
            return Ok(Verdict::Stop);
        }
        self.at += prefixed.len() as u64;
        if let Entry::Batch { head, batch, .. } = entry {
            if !reaches(self.wanted.from, head.end()) {
                self.kept.clear();
                self.kept_bytes = 0;
                return Ok(Verdict::Skip);
            }
            let computed = crc32c(batch);
            if computed != head.batch_crc {
                return Err(EntryError::Checksum { what: "batch", found: head.batch_crc, computed }.into());
            }
            self.first.get_or_insert(head.first);
            self.end = head.end().seq_num;
        }
        self.kept_bytes += prefixed.len() as u64;
        Ok(Verdict::Keep)
    }
}

/// Bytes of the entry that `bytes` start with, its length before it counted in; `None` when not even the length is there.
fn prefixed_bytes(bytes: &[u8]) -> Result<Option<usize>, WalkError> {
    let Some(prefix) = bytes.first_chunk::<ENTRY_PREFIX_BYTES>() else {
        return Ok(None);
    };
    let found = u32::from_le_bytes(*prefix) as usize;
    if found > ENTRY_BYTES_MAX {
        return Err(WalkError::Length { found, expected: ENTRY_BYTES_MAX });
    }
    Ok(Some(ENTRY_PREFIX_BYTES + found))
}

#[cfg(test)]
pub(crate) mod tests;
