//! How a group commit lies in a head log: one frame, a fixed header and the entries behind it.
//!
//! A frame starts on a [`BLOCK_BYTES`] boundary of its segment and is padded with zeroes to the next one. All numbers
//! are little-endian.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `NVLF`, never zero, so that zeroed space is no frame |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | header bytes, 80 |
//! | 8 | 4 | flags: 1 seal |
//! | 12 | 4 | entries |
//! | 16 | 8 | LSN of the first entry; of the next one to come when there are none |
//! | 24 | 8 | durable LSN: every entry at or below it was durable when the frame was built |
//! | 32 | 8 | epoch of the writer |
//! | 40 | 8 | segment id |
//! | 48 | 8 | segment salt |
//! | 56 | 4 | offset of the frame in its segment |
//! | 60 | 4 | body bytes, without the padding |
//! | 64 | 4 | CRC-32C of the body |
//! | 68 | 4 | header CRC of the frame before, in the same epoch; 0 for its first |
//! | 72 | 4 | zero |
//! | 76 | 4 | CRC-32C of bytes 0..76 |
//!
//! The body is the entries, each a `u32` length and as many bytes. Their own layout is no matter of this file.

use crate::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::crc::crc32c;
use crate::ids::{Epoch, Lsn, SegmentId};

/// Frames start on multiples of this and are padded to it.
pub const BLOCK_BYTES: usize = 4096;
/// Length of the header.
pub const HEADER_BYTES: usize = 80;
/// Length of what stands before each entry.
pub const ENTRY_PREFIX_BYTES: usize = 4;
/// Longest entry.
pub const ENTRY_BYTES_MAX: usize = 5 << 19;
/// Longest body: that of one longest entry, or of many that are as long together at most.
pub const BODY_BYTES_MAX: usize = ENTRY_BYTES_MAX + ENTRY_PREFIX_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"NVLF");
const VERSION: u16 = 1;
const FLAG_SEAL: u32 = 1;
const CRC_AT: usize = HEADER_BYTES - 4;

/// What a frame says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The writer says that it stops here, with nothing more to come in its epoch.
    pub seal: bool,
    /// How many entries the body holds.
    pub entries: u32,
    /// LSN of the first entry; of the next one to come when there are none.
    pub first_lsn: Lsn,
    /// Every entry at or below it was durable when the frame was built.
    pub durable_lsn: Lsn,
    /// The tenure of the writer.
    pub epoch: Epoch,
    /// The segment the frame was written for.
    pub segment: SegmentId,
    /// The random number of that segment.
    pub salt: u64,
    /// Where in the segment the frame was written.
    pub offset: u32,
    /// Length of the body, without the padding.
    pub body_bytes: u32,
    /// Sum of the body.
    pub body_crc: u32,
    /// Sum of the header before, in the same epoch; 0 for its first.
    pub prev_header_crc: u32,
}

/// Why bytes are no frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameHeaderError {
    /// The bytes are fewer than a header has.
    #[error("a log frame header has {HEADER_BYTES} bytes, here are {bytes}")]
    Short {
        /// How many there are.
        bytes: usize,
    },
    /// The magic is not there; so it is with space that was never written.
    #[error("no log frame starts here")]
    Absent,
    /// The sum over the header does not hold.
    #[error("the header sums to {computed:08x} and says {stored:08x}")]
    Crc {
        /// The sum of what is there.
        computed: u32,
        /// The sum that was written.
        stored: u32,
    },
    /// Written by another version of the layout.
    #[error("log frame version {version} is not known here")]
    Version {
        /// The version it says.
        version: u16,
    },
    /// A field holds what no writer writes, though the sum holds.
    #[error("a log frame with {entries} entries in {body_bytes} bytes cannot be")]
    Shape {
        /// The entries it says it has.
        entries: u32,
        /// The length it says it has.
        body_bytes: u32,
    },
}

impl FrameHeader {
    /// Writes the header into the first [`HEADER_BYTES`] of `out` and answers its sum, which the next frame repeats.
    ///
    /// # Panics
    /// When `out` is shorter than that.
    pub fn encode(&self, out: &mut [u8]) -> u32 {
        let out = &mut out[..HEADER_BYTES];
        put_u32(out, 0, MAGIC);
        put_u16(out, 4, VERSION);
        put_u16(out, 6, 80);
        put_u32(out, 8, if self.seal { FLAG_SEAL } else { 0 });
        put_u32(out, 12, self.entries);
        put_u64(out, 16, self.first_lsn.get());
        put_u64(out, 24, self.durable_lsn.get());
        put_u64(out, 32, self.epoch.get());
        put_u64(out, 40, self.segment.get());
        put_u64(out, 48, self.salt);
        put_u32(out, 56, self.offset);
        put_u32(out, 60, self.body_bytes);
        put_u32(out, 64, self.body_crc);
        put_u32(out, 68, self.prev_header_crc);
        put_u32(out, 72, 0);
        let crc = crc32c(&out[..CRC_AT]);
        put_u32(out, CRC_AT, crc);
        crc
    }

    /// Reads a header from the start of `bytes`; its length fields can be trusted afterwards.
    ///
    /// # Errors
    /// [`FrameHeaderError`] for anything that [`encode`](Self::encode) does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameHeaderError> {
        let Some(bytes) = bytes.get(..HEADER_BYTES) else {
            return Err(FrameHeaderError::Short { bytes: bytes.len() });
        };
        if u32_at(bytes, 0) != MAGIC {
            return Err(FrameHeaderError::Absent);
        }
        let (computed, stored) = (crc32c(&bytes[..CRC_AT]), u32_at(bytes, CRC_AT));
        if computed != stored {
            return Err(FrameHeaderError::Crc { computed, stored });
        }
        let (version, header_bytes, flags) = (u16_at(bytes, 4), u16_at(bytes, 6), u32_at(bytes, 8));
        let is_known = usize::from(header_bytes) == HEADER_BYTES && flags & !FLAG_SEAL == 0 && u32_at(bytes, 72) == 0;
        if version != VERSION || !is_known {
            return Err(FrameHeaderError::Version { version });
        }
        let header = Self {
            seal: flags & FLAG_SEAL != 0,
            entries: u32_at(bytes, 12),
            first_lsn: Lsn::new(u64_at(bytes, 16)),
            durable_lsn: Lsn::new(u64_at(bytes, 24)),
            epoch: Epoch::new(u64_at(bytes, 32)),
            segment: SegmentId::new(u64_at(bytes, 40)),
            salt: u64_at(bytes, 48),
            offset: u32_at(bytes, 56),
            body_bytes: u32_at(bytes, 60),
            body_crc: u32_at(bytes, 64),
            prev_header_crc: u32_at(bytes, 68),
        };
        if header.has_sound_shape() { Ok(header) } else { Err(header.shape_error()) }
    }

    fn has_sound_shape(&self) -> bool {
        let body = self.body_bytes as usize;
        body <= BODY_BYTES_MAX
            && self.entries as usize * ENTRY_PREFIX_BYTES <= body
            && (self.entries > 0 || body == 0)
            && self.first_lsn.get().checked_add(u64::from(self.entries)).is_some()
            && (self.offset as usize).is_multiple_of(BLOCK_BYTES)
    }

    fn shape_error(&self) -> FrameHeaderError {
        FrameHeaderError::Shape { entries: self.entries, body_bytes: self.body_bytes }
    }

    /// The LSN after the last entry.
    #[must_use]
    pub fn end_lsn(&self) -> Lsn {
        Lsn::new(self.first_lsn.get() + u64::from(self.entries))
    }

    /// The length on disk: header, body and padding.
    #[must_use]
    pub fn disk_bytes(&self) -> usize {
        padded_bytes(HEADER_BYTES + self.body_bytes as usize)
    }

    /// Whether `frame`, which starts with this header, holds the body that was summed.
    #[must_use]
    pub fn body_holds(&self, frame: &[u8]) -> bool {
        self.body(frame).is_some_and(|body| crc32c(body) == self.body_crc)
    }

    /// The entries of `frame`, which starts with this header, each with its offset from the frame's start.
    ///
    /// Ends early when the lengths do not add up, which a body that [holds](Self::body_holds) never shows.
    #[must_use]
    pub fn entries<'a>(&self, frame: &'a [u8]) -> Entries<'a> {
        Entries { body: self.body(frame).unwrap_or_default(), at: 0 }
    }

    fn body<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(HEADER_BYTES..HEADER_BYTES + self.body_bytes as usize)
    }
}

/// Rounds `bytes` up to whole blocks.
#[must_use]
#[inline]
pub const fn padded_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(BLOCK_BYTES)
}

/// Writes the length of an entry of `entry_bytes` in front of it.
///
/// # Panics
/// When `out` is shorter than [`ENTRY_PREFIX_BYTES`], or the entry longer than [`ENTRY_BYTES_MAX`].
#[inline]
pub fn put_entry_prefix(out: &mut [u8], entry_bytes: usize) {
    assert!(entry_bytes <= ENTRY_BYTES_MAX, "an entry of {entry_bytes} bytes is too long");
    #[expect(clippy::cast_possible_truncation, reason = "bounded just above")]
    put_u32(out, 0, entry_bytes as u32);
}

/// Walks the entries of a frame, see [`FrameHeader::entries`].
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at + ENTRY_PREFIX_BYTES;
        let len = u32_at(self.body.get(self.at..start)?, 0) as usize;
        let end = start.checked_add(len)?;
        let entry = self.body.get(start..end)?;
        self.at = end;
        Some((HEADER_BYTES + start, entry))
    }
}

#[cfg(test)]
mod tests;
