//! How entries lie in an object of the store: a chunk of a channel, a fence, or a bundle of one slot.
//!
//! All numbers are little-endian. The header, [`HEADER_BYTES`] long:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `NOVC` |
//! | 4 | 2 | format, 1 |
//! | 6 | 2 | kind: 1 chunk, 2 fence, 3 bundle, 4 [snapshot](crate::snapshot) |
//! | 8 | 16 | cluster id |
//! | 24 | 16 | id of the star that wrote it |
//! | 40 | 8 | incarnation |
//! | 48 | 8 | position in the channel of that incarnation; the number of a snapshot |
//! | 56 | 8 | when it was made, milliseconds |
//! | 64 | 2 | slot, of a bundle or a snapshot |
//! | 66 | 26 | zero |
//! | 92 | 4 | CRC-32C of bytes 0..92 |
//!
//! The body is the extents, one behind the other in the order of their rows: the entries of one stream, of one epoch and
//! of revs without a gap, each behind its length (`u32`) as in a [frame of a head log](crate::log_frame).
//!
//! The footer is the extents' rows, sorted by slot, stream id and first rev, then the rows that say how far head logs are
//! settled. A row of an extent, [`EXTENT_ROW_BYTES`] long:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 2 | slot |
//! | 2 | 2 | flags: 1 has records |
//! | 4 | 4 | CRC-32C of the extent |
//! | 8 | 16 | stream id |
//! | 24 | 8 | epoch |
//! | 32 | 8 | first rev |
//! | 40 | 8 | last rev |
//! | 48 | 8 | sequence number of the first record |
//! | 56 | 8 | one past that of the last record |
//! | 64 | 8 | stamp of the first record, milliseconds |
//! | 72 | 8 | stamp of the last record, milliseconds |
//! | 80 | 8 | highest arrival, milliseconds |
//! | 88 | 4 | offset of the extent in the object |
//! | 92 | 4 | bytes of the extent, lengths included |
//! | 96 | 4 | content of its records, in bytes |
//! | 100 | 4 | entries |
//!
//! A row of a settled log is the log's id (16), the first LSN (8), and one past the last (8): as many as none are
//! restated.
//!
//! The trailer, [`TRAILER_BYTES`] long, ends the object:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | offset of the footer in the object |
//! | 8 | 8 | bytes of the object |
//! | 16 | 4 | rows of extents |
//! | 20 | 4 | rows of settled logs |
//! | 24 | 4 | CRC-32C of the footer |
//! | 28 | 12 | zero |
//! | 40 | 4 | CRC-32C of bytes 0..40 |
//! | 44 | 4 | magic `NOVE` |

mod builder;
mod footer;

pub use builder::{Built, ObjectBuilder};
pub use footer::Footer;

use crate::bytes::{array, i64_at, put_i64, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::crc::crc32c;
use crate::entry::{Entry, EntryError};
use crate::ids::{ClusterId, Epoch, LogId, Lsn, Rev, SeqNum, StarId, StreamId};
use crate::log_frame::ENTRY_PREFIX_BYTES;
use crate::slot::{SLOTS, Slot};

/// Length of the header.
pub const HEADER_BYTES: usize = 96;
/// Length of an extent's row.
pub const EXTENT_ROW_BYTES: usize = 104;
/// Length of a settled log's row.
pub const SETTLES_ROW_BYTES: usize = 32;
/// Length of the trailer.
pub const TRAILER_BYTES: usize = 48;

const MAGIC: u32 = u32::from_le_bytes(*b"NOVC");
const FORMAT: u16 = 1;
const HEADER_CRC_AT: usize = HEADER_BYTES - 4;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ObjectKind {
    /// Entries as a star committed them.
    Chunk = 1,
    /// The end of a channel: nothing that its star writes behind it counts.
    Fence = 2,
    /// Settled entries of one slot.
    Bundle = 3,
    /// Rows of streams of one slot; it has no extents.
    Snapshot = 4,
}

impl ObjectKind {
    fn of_code(code: u16) -> Option<Self> {
        [Self::Chunk, Self::Fence, Self::Bundle, Self::Snapshot].into_iter().find(|kind| *kind as u16 == code)
    }
}

/// What an object says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectHeader {
    /// What it is.
    pub kind: ObjectKind,
    /// Whose data it holds.
    pub cluster: ClusterId,
    /// The star that wrote it.
    pub star: StarId,
    /// The tenure of that star.
    pub incarnation: Epoch,
    /// Where in the channel of that tenure it stands; a snapshot's number among those of its slot and tenure.
    pub position: u64,
    /// The slot of a bundle or a snapshot; slot 0 of others.
    pub slot: Slot,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_ms: i64,
}

/// Why bytes are no object, or no part of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The end of the object that was brought is too short for its footer.
    #[error("the footer needs the last {bytes} bytes of the object")]
    NeedMore {
        /// How many bytes of the object's end are needed.
        bytes: u64,
    },
    /// Fewer bytes than the part has.
    #[error("the {what} of an object has {bytes_needed} bytes, here are {bytes}")]
    Short {
        /// Which part.
        what: &'static str,
        /// Bytes there are.
        bytes: u64,
        /// Bytes there should be.
        bytes_needed: u64,
    },
    /// Another magic.
    #[error("no {what} of an object is here: its magic is {found:08x}")]
    Magic {
        /// Which part.
        what: &'static str,
        /// What stands there.
        found: u32,
    },
    /// A format this build doesn't read.
    #[error("an object of format {found}: this build reads format {FORMAT}")]
    Format {
        /// The format found.
        found: u16,
    },
    /// Something where this build knows of nothing.
    #[error("the {what} of an object says something that this build doesn't know")]
    Unknown {
        /// Which part.
        what: &'static str,
    },
    /// A kind this build doesn't know.
    #[error("object kind {found} is unknown")]
    Kind {
        /// The kind found.
        found: u16,
    },
    /// A slot that no cluster has.
    #[error("an object speaks of slot {found}: there are {SLOTS}")]
    Slot {
        /// The slot found.
        found: u16,
    },
    /// A sum that doesn't match.
    #[error("the {what} of an object is damaged: its checksum is {found:08x}, its bytes sum to {computed:08x}")]
    Checksum {
        /// Which part.
        what: &'static str,
        /// What stands there.
        found: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// Lengths that contradict each other.
    #[error("an object of {object_bytes} bytes says that it has {found} with its footer at {footer_at}")]
    Length {
        /// Bytes there are.
        object_bytes: u64,
        /// Bytes it says there are.
        found: u64,
        /// Where its footer should begin.
        footer_at: u64,
    },
    /// A row that contradicts itself or the row before, though the sum holds.
    #[error("row {row} of the footer is wrong: {what}")]
    Row {
        /// Its place in the footer.
        row: usize,
        /// What contradicts.
        what: &'static str,
    },
    /// A row whose range is empty or goes backwards, though the sum holds.
    #[error("row {row} of the footer is wrong: its {what} go from {from} to {to}")]
    Range {
        /// Its place in the footer.
        row: usize,
        /// A range of what.
        what: &'static str,
        /// Where it begins.
        from: u64,
        /// Where it ends.
        to: u64,
    },
}

pub(crate) fn check_zero(what: &'static str, bytes: &[u8]) -> Result<(), ObjectError> {
    if bytes.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(ObjectError::Unknown { what }) }
}

pub(crate) fn check_sum(what: &'static str, found: u32, bytes: &[u8]) -> Result<(), ObjectError> {
    let computed = crc32c(bytes);
    if found == computed { Ok(()) } else { Err(ObjectError::Checksum { what, found, computed }) }
}

fn slot_of(found: u16) -> Result<Slot, ObjectError> {
    u8::try_from(found).ok().and_then(Slot::new).ok_or(ObjectError::Slot { found })
}

impl ObjectHeader {
    /// Length of the header.
    pub const BYTES: usize = HEADER_BYTES;

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        put_u32(&mut out, 0, MAGIC);
        put_u16(&mut out, 4, FORMAT);
        put_u16(&mut out, 6, self.kind as u16);
        out[8..24].copy_from_slice(&self.cluster.to_bytes());
        out[24..40].copy_from_slice(&self.star.to_bytes());
        put_u64(&mut out, 40, self.incarnation.get());
        put_u64(&mut out, 48, self.position);
        put_i64(&mut out, 56, self.created_ms);
        put_u16(&mut out, 64, self.slot.get().into());
        let sum = crc32c(&out[..HEADER_CRC_AT]);
        put_u32(&mut out, HEADER_CRC_AT, sum);
        out
    }

    /// The header at the start of `bytes`.
    ///
    /// # Errors
    /// [`ObjectError`] for anything that [`to_bytes`](Self::to_bytes) does not answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, ObjectError> {
        let Some(header) = bytes.get(..HEADER_BYTES) else {
            let (bytes, bytes_needed) = (bytes.len() as u64, HEADER_BYTES as u64);
            return Err(ObjectError::Short { what: "header", bytes, bytes_needed });
        };
        let found = u32_at(header, 0);
        if found != MAGIC {
            return Err(ObjectError::Magic { what: "header", found });
        }
        check_sum("header", u32_at(header, HEADER_CRC_AT), &header[..HEADER_CRC_AT])?;
        let (format, kind) = (u16_at(header, 4), u16_at(header, 6));
        if format != FORMAT {
            return Err(ObjectError::Format { found: format });
        }
        check_zero("header", &header[66..HEADER_CRC_AT])?;
        Ok(Self {
            kind: ObjectKind::of_code(kind).ok_or(ObjectError::Kind { found: kind })?,
            cluster: ClusterId::from_bytes(array(header, 8)),
            star: StarId::from_bytes(array(header, 24)),
            incarnation: Epoch::new(u64_at(header, 40)),
            position: u64_at(header, 48),
            slot: slot_of(u16_at(header, 64))?,
            created_ms: i64_at(header, 56),
        })
    }
}

/// Where neighbouring entries of one stream lie in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentRow {
    /// The slot of the stream.
    pub slot: Slot,
    /// The stream.
    pub stream_id: StreamId,
    /// The tenure that all its entries are of.
    pub slot_epoch: Epoch,
    /// The rev of its first entry.
    pub first_rev: Rev,
    /// The rev of its last entry; between them none is missing.
    pub last_rev: Rev,
    /// Whether it has records; without, the positions, stamps and arrival are zero.
    pub has_records: bool,
    /// Its first record.
    pub first: SeqNum,
    /// One past its last record.
    pub end: SeqNum,
    /// The stamp of its first record.
    pub first_ms: i64,
    /// The stamp of its last record.
    pub last_ms: i64,
    /// The highest arrival of its batches.
    pub arrival_ms: i64,
    /// Where it starts in the object.
    pub offset: u32,
    /// Its bytes, the lengths before entries included.
    pub bytes: u32,
    /// The content of its records, in bytes.
    pub content_bytes: u32,
    /// How many entries it has.
    pub entries: u32,
    /// The CRC-32C of its bytes.
    pub crc: u32,
}

/// Entries of a head log that an object takes over: `from..to`. With `from == to` it restates how far that log is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settles {
    /// The head log.
    pub log: LogId,
    /// The first one's LSN.
    pub from: Lsn,
    /// One past the last one's LSN.
    pub to: Lsn,
}

/// Whether these are the bytes of this extent.
///
/// # Errors
/// [`ObjectError`] when they are others, or damaged.
pub fn check_extent(row: &ExtentRow, bytes: &[u8]) -> Result<(), ObjectError> {
    let (found, bytes_needed) = (bytes.len() as u64, u64::from(row.bytes));
    if found != bytes_needed {
        return Err(ObjectError::Short { what: "extent", bytes: found, bytes_needed });
    }
    check_sum("extent", row.crc, bytes)
}

/// The entries of an extent in order, each with its own bytes; ends behind the first error.
pub fn entries(extent: &[u8]) -> impl Iterator<Item = Result<(Entry<'_>, &[u8]), EntryError>> {
    let mut rest = extent;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let taken = split_entry(rest);
        rest = taken.as_ref().map_or(&[], |(_, _, behind)| *behind);
        Some(taken.map(|(entry, bytes, _)| (entry, bytes)))
    })
}

/// The first entry of an extent, its bytes, and what is behind.
fn split_entry(extent: &[u8]) -> Result<(Entry<'_>, &[u8], &[u8]), EntryError> {
    let short = |bytes_needed| EntryError::Short { bytes: extent.len(), bytes_needed };
    let (prefix, rest) = extent.split_at_checked(ENTRY_PREFIX_BYTES).ok_or_else(|| short(ENTRY_PREFIX_BYTES))?;
    let entry_bytes = u32_at(prefix, 0) as usize;
    let (bytes, behind) =
        rest.split_at_checked(entry_bytes).ok_or_else(|| short(ENTRY_PREFIX_BYTES.saturating_add(entry_bytes)))?;
    let (entry, decoded_bytes) = Entry::decode(bytes)?;
    if decoded_bytes != entry_bytes {
        return Err(EntryError::Length { what: "its own and the one before it" });
    }
    Ok((entry, bytes, behind))
}

#[cfg(test)]
pub(crate) mod tests;
