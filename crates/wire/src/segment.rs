//! How a segment file of a head log begins: one block that says which file it is.
//!
//! Frames ([`log_frame`](crate::log_frame)) follow from [`FRAMES_AT`] on. The block is written once, when the file is
//! made and zeroed, before it gets its name. All numbers are little-endian; what is left of the block is zero.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `NVSG` |
//! | 4 | 4 | CRC-32C of bytes 8..72 |
//! | 8 | 2 | version, 1 |
//! | 10 | 6 | zero |
//! | 16 | 16 | id of the log |
//! | 32 | 8 | segment id |
//! | 40 | 8 | salt, random, repeated in each frame |
//! | 48 | 8 | epoch of the writer |
//! | 56 | 4 | bytes of the file |
//! | 60 | 12 | zero |

use crate::bytes::{array, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::crc::crc32c;
use crate::ids::{Epoch, LogId, SegmentId};
use crate::log_frame::BLOCK_BYTES;

/// Where the first frame of a segment starts.
pub const FRAMES_AT: u32 = 4096;
/// Length of the fields; the rest of the block is zero.
pub const HEADER_BYTES: usize = 72;

const MAGIC: u32 = u32::from_le_bytes(*b"NVSG");
const VERSION: u16 = 1;

/// What a segment file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log it belongs to.
    pub log: LogId,
    /// Its own id, which its name repeats.
    pub segment: SegmentId,
    /// Its random number: a frame without it was not written for this file.
    pub salt: u64,
    /// The tenure of the writer, the only one that ever writes to it.
    pub epoch: Epoch,
    /// Length of the file.
    pub bytes: u32,
}

/// Why a block is no segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SegmentHeaderError {
    /// The bytes are fewer than a header has, or the magic is not there.
    #[error("no segment of a head log starts here")]
    Absent,
    /// The sum does not hold.
    #[error("the segment header sums to {computed:08x} and says {stored:08x}")]
    Crc {
        /// The sum of what is there.
        computed: u32,
        /// The sum that was written.
        stored: u32,
    },
    /// Written by another version of the layout.
    #[error("segment version {version} is not known here")]
    Version {
        /// The version it says.
        version: u16,
    },
}

impl SegmentHeader {
    /// Fills the first block of `out`.
    ///
    /// # Panics
    /// When `out` is shorter than a block.
    pub fn encode(&self, out: &mut [u8]) {
        let out = &mut out[..BLOCK_BYTES];
        out.fill(0);
        put_u32(out, 0, MAGIC);
        put_u16(out, 8, VERSION);
        out[16..32].copy_from_slice(&self.log.to_bytes());
        put_u64(out, 32, self.segment.get());
        put_u64(out, 40, self.salt);
        put_u64(out, 48, self.epoch.get());
        put_u32(out, 56, self.bytes);
        let crc = crc32c(&out[8..HEADER_BYTES]);
        put_u32(out, 4, crc);
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`SegmentHeaderError`] when it is none of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, SegmentHeaderError> {
        let Some(bytes) = bytes.get(..HEADER_BYTES) else {
            return Err(SegmentHeaderError::Absent);
        };
        if u32_at(bytes, 0) != MAGIC {
            return Err(SegmentHeaderError::Absent);
        }
        let (computed, stored) = (crc32c(&bytes[8..]), u32_at(bytes, 4));
        if computed != stored {
            return Err(SegmentHeaderError::Crc { computed, stored });
        }
        let version = u16_at(bytes, 8);
        let is_known = bytes[10..16].iter().chain(&bytes[60..]).all(|byte| *byte == 0);
        if version != VERSION || !is_known {
            return Err(SegmentHeaderError::Version { version });
        }
        Ok(Self {
            log: LogId::from_bytes(array(bytes, 16)),
            segment: SegmentId::new(u64_at(bytes, 32)),
            salt: u64_at(bytes, 40),
            epoch: Epoch::new(u64_at(bytes, 48)),
            bytes: u32_at(bytes, 56),
        })
    }
}

#[cfg(test)]
mod tests;
