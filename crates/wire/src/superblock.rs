//! How a head log says what it is and where its older segments end.
//!
//! The file `super` holds [`COPIES`] copies of [`COPY_BYTES`] each, written one after the other, so that a torn write
//! harms one. All numbers are little-endian.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `NVSB` |
//! | 4 | 4 | CRC-32C of all that follows the copy number, up to the last segment |
//! | 8 | 4 | copy number, outside the sum, so that copies sum alike |
//! | 12 | 2 | version, 1 |
//! | 14 | 2 | flags: 1 clean |
//! | 16 | 8 | incompatible features: a reader that does not know a bit refuses |
//! | 24 | 16 | id of the log |
//! | 40 | 8 | sequence: each superblock of a log has one more than the one before |
//! | 48 | 4 | CRC-32C of the superblock before; 0 for the first |
//! | 52 | 4 | how many segments are listed |
//! | 56 | 8 | epoch: nothing of a lower one is written any more |
//! | 64 | 8 | durable LSN: every entry at or below it was durable |
//! | 72 | 8 | next segment id: none at or above it was used when this was written |
//! | 80 | 8 | first segment id: what lies below was freed on purpose |
//! | 88 | 8 | first LSN that is still kept |
//! | 96 | 40 each | segments that have ended |
//!
//! | at | bytes | field of a segment |
//! |---|---|---|
//! | 0 | 8 | segment id |
//! | 8 | 8 | salt |
//! | 16 | 8 | epoch |
//! | 24 | 8 | end LSN: the one after its last entry |
//! | 32 | 4 | end offset: the log holds nothing of it from here on |
//! | 36 | 4 | flags: 1 loss accepted, an operator knows that it is damaged |

use crate::bytes::{array, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::crc::crc32c;
use crate::ids::{Epoch, LogId, Lsn, SegmentId};
use crate::log_frame::padded_bytes;

/// How many copies the file holds.
pub const COPIES: usize = 4;
/// Where one copy starts after another.
pub const COPY_BYTES: usize = 64 << 10;
/// Most segments that fit.
pub const SEGMENTS_MAX: usize = (COPY_BYTES - HEADER_BYTES) / SEGMENT_BYTES;
/// Features that a reader of this version knows: none yet.
const INCOMPAT_KNOWN: u64 = 0;

const MAGIC: u32 = u32::from_le_bytes(*b"NVSB");
const VERSION: u16 = 1;
const FLAG_CLEAN: u16 = 1;
const FLAG_LOSS_ACCEPTED: u32 = 1;
const SUMMED_FROM: usize = 12;
const HEADER_BYTES: usize = 96;
const SEGMENT_BYTES: usize = 40;

/// What a head log knows of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The writer flushed, sealed and stopped.
    pub clean: bool,
    /// Features without which the log cannot be read.
    pub incompat: u64,
    /// The log.
    pub log: LogId,
    /// One more than that of the superblock before.
    pub sequence: u64,
    /// Sum of the superblock before; 0 for the first.
    pub parent_crc: u32,
    /// Nothing of a lower epoch is written any more.
    pub epoch: Epoch,
    /// Every entry at or below it was durable.
    pub durable_lsn: Lsn,
    /// No segment at or above it was used.
    pub next_segment: SegmentId,
    /// What lies below was freed on purpose.
    pub first_segment: SegmentId,
    /// The first LSN that is still kept.
    pub first_lsn: Lsn,
    /// Where segments end that no one appends to, by id.
    pub segments: Vec<EndedSegment>,
}

/// A segment that no one appends to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedSegment {
    /// Its id.
    pub segment: SegmentId,
    /// Its random number.
    pub salt: u64,
    /// The tenure it was written in.
    pub epoch: Epoch,
    /// The LSN after its last entry.
    pub end_lsn: Lsn,
    /// The log holds nothing of it from here on.
    pub end_offset: u32,
    /// An operator knows that it is damaged, and said to go on without what is lost.
    pub loss_accepted: bool,
}

/// Why bytes are no superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// The bytes are fewer than they say, or the magic is not there.
    #[error("no superblock of a head log starts here")]
    Absent,
    /// The sum does not hold.
    #[error("the superblock sums to {computed:08x} and says {stored:08x}")]
    Crc {
        /// The sum of what is there.
        computed: u32,
        /// The sum that was written.
        stored: u32,
    },
    /// Written by another version of the layout.
    #[error("superblock version {version} is not known here; a newer nova has written this log")]
    Version {
        /// The version it says.
        version: u16,
    },
    /// Written with features that are not known here.
    #[error("the log needs features {incompat:#x} that are not known here; a newer nova has written it")]
    Incompatible {
        /// The bits that are not known.
        incompat: u64,
    },
    /// It lists more segments than fit.
    #[error("a superblock lists at most {SEGMENTS_MAX} segments, this one {segments}")]
    TooMany {
        /// How many it lists.
        segments: usize,
    },
}

impl Superblock {
    /// The bytes of copy number `copy`, padded to whole blocks.
    ///
    /// # Errors
    /// [`SuperblockError::TooMany`] when the segments do not fit.
    pub fn encode(&self, copy: u32) -> Result<Vec<u8>, SuperblockError> {
        let count = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        if count as usize > SEGMENTS_MAX {
            return Err(SuperblockError::TooMany { segments: self.segments.len() });
        }
        let end = HEADER_BYTES + self.segments.len() * SEGMENT_BYTES;
        let mut out = vec![0; padded_bytes(end)];
        put_u32(&mut out, 0, MAGIC);
        put_u32(&mut out, 8, copy);
        put_u16(&mut out, 12, VERSION);
        put_u16(&mut out, 14, if self.clean { FLAG_CLEAN } else { 0 });
        put_u64(&mut out, 16, self.incompat);
        out[24..40].copy_from_slice(&self.log.to_bytes());
        put_u64(&mut out, 40, self.sequence);
        put_u32(&mut out, 48, self.parent_crc);
        put_u32(&mut out, 52, count);
        put_u64(&mut out, 56, self.epoch.get());
        put_u64(&mut out, 64, self.durable_lsn.get());
        put_u64(&mut out, 72, self.next_segment.get());
        put_u64(&mut out, 80, self.first_segment.get());
        put_u64(&mut out, 88, self.first_lsn.get());
        for (segment, at) in self.segments.iter().zip(out[HEADER_BYTES..end].chunks_exact_mut(SEGMENT_BYTES)) {
            segment.encode(at);
        }
        let crc = crc32c(&out[SUMMED_FROM..end]);
        put_u32(&mut out, 4, crc);
        Ok(out)
    }

    /// Reads the copy at the start of `bytes`, and its sum.
    ///
    /// # Errors
    /// [`SuperblockError`] when it is none that this version can use.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u32), SuperblockError> {
        if bytes.len() < HEADER_BYTES || u32_at(bytes, 0) != MAGIC {
            return Err(SuperblockError::Absent);
        }
        let segments = u32_at(bytes, 52) as usize;
        if segments > SEGMENTS_MAX {
            return Err(SuperblockError::TooMany { segments });
        }
        let end = HEADER_BYTES + segments * SEGMENT_BYTES;
        let summed = bytes.get(SUMMED_FROM..end).ok_or(SuperblockError::Absent)?;
        let (computed, stored) = (crc32c(summed), u32_at(bytes, 4));
        if computed != stored {
            return Err(SuperblockError::Crc { computed, stored });
        }
        let (version, flags, incompat) = (u16_at(bytes, 12), u16_at(bytes, 14), u64_at(bytes, 16));
        let listed = || bytes[HEADER_BYTES..end].chunks_exact(SEGMENT_BYTES);
        let is_known = flags & !FLAG_CLEAN == 0 && listed().all(|row| u32_at(row, 36) & !FLAG_LOSS_ACCEPTED == 0);
        if version != VERSION || !is_known {
            return Err(SuperblockError::Version { version });
        }
        if incompat & !INCOMPAT_KNOWN != 0 {
            return Err(SuperblockError::Incompatible { incompat: incompat & !INCOMPAT_KNOWN });
        }
        let superblock = Self {
            clean: flags & FLAG_CLEAN != 0,
            incompat,
            log: LogId::from_bytes(array(bytes, 24)),
            sequence: u64_at(bytes, 40),
            parent_crc: u32_at(bytes, 48),
            epoch: Epoch::new(u64_at(bytes, 56)),
            durable_lsn: Lsn::new(u64_at(bytes, 64)),
            next_segment: SegmentId::new(u64_at(bytes, 72)),
            first_segment: SegmentId::new(u64_at(bytes, 80)),
            first_lsn: Lsn::new(u64_at(bytes, 88)),
            segments: listed().map(EndedSegment::decode).collect(),
        };
        Ok((superblock, computed))
    }
}

impl EndedSegment {
    fn encode(&self, out: &mut [u8]) {
        put_u64(out, 0, self.segment.get());
        put_u64(out, 8, self.salt);
        put_u64(out, 16, self.epoch.get());
        put_u64(out, 24, self.end_lsn.get());
        put_u32(out, 32, self.end_offset);
        put_u32(out, 36, if self.loss_accepted { FLAG_LOSS_ACCEPTED } else { 0 });
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            segment: SegmentId::new(u64_at(bytes, 0)),
            salt: u64_at(bytes, 8),
            epoch: Epoch::new(u64_at(bytes, 16)),
            end_lsn: Lsn::new(u64_at(bytes, 24)),
            end_offset: u32_at(bytes, 32),
            loss_accepted: u32_at(bytes, 36) & FLAG_LOSS_ACCEPTED != 0,
        }
    }
}

#[cfg(test)]
mod tests;
