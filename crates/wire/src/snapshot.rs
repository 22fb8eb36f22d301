//! How a snapshot holds rows of streams of one slot: what chunks said of them, for when the chunks are gone.
//!
//! A base, in one part or more, has every stream of its slot; a delta has those that changed since the snapshot before. The rows of a slot
//! are those of its last base and of the deltas after it, of each stream the one of the highest rev.
//!
//! All numbers are little-endian. First the [header of an object](crate::chunk), 96 bytes, of kind 4. Then:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 96 | 2 | flags: 1 part of a base, 2 the last part of it |
//! | 98 | 2 | channels |
//! | 100 | 4 | which part of the base it is, from 0 |
//! | 104 | 4 | bundles |
//! | 108 | 4 | streams |
//! | 112 | 8 | incarnation of the snapshot before |
//! | 120 | 8 | its number; all ones when there is none before |
//! | 128 | 24 each | bundles of the slot: epoch (8) and id (16); in a delta those that came since |
//! | | 16 each | channels: incarnation (8) and position (8) up to where the chunks are in this snapshot and those before |
//! | | | streams |
//!
//! A stream is its id (16), its state (2: 1 lives, 2 lives and has its name, 3 deleted), zero (2), the bytes of its row (4), and
//! the [row](crate::stream_row); a deleted one has none. The end, 16 bytes:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | bytes of the object |
//! | 8 | 4 | CRC-32C of the object from byte 96 to here |
//! | 12 | 4 | magic `NOVS` |

use crate::bytes::{array, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::chunk::{HEADER_BYTES, ObjectError, ObjectHeader, check_sum, check_zero};
use crate::crc::crc32c;
use crate::ids::{Epoch, StreamId};
use crate::stream_row::{StreamRow, StreamRowError};

const MAGIC: u32 = u32::from_le_bytes(*b"NOVS");
const HEAD_BYTES: usize = 32;
const BUNDLE_BYTES: usize = 24;
const CHANNEL_BYTES: usize = 16;
const STREAM_BYTES: usize = 24;
const END_BYTES: usize = 16;
const FLAG_BASE: u16 = 1;
const FLAG_BASE_END: u16 = 3;
const NONE: u64 = u64::MAX;
const LIVES: u16 = 1;
const HAS_NAME: u16 = 2;
const DELETED: u16 = 3;

/// Rows of streams of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What it says of itself.
    pub header: ObjectHeader,
    /// Which part of a base it is; `None` of a delta.
    pub base: Option<BasePart>,
    /// Incarnation and number of the snapshot of the slot before this one.
    pub previous: Option<(Epoch, u64)>,
    /// Epoch and id of bundles of the slot.
    pub bundles: Vec<(Epoch, u128)>,
    /// Incarnation and position up to where this snapshot and those before have what chunks say of streams; the last part of a
    /// base or delta alone says it.
    pub applied: Vec<(Epoch, u64)>,
    /// Streams of the slot.
    pub streams: Vec<SnapshotStream>,
}

/// A part of a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BasePart {
    /// Which, from 0.
    pub number: u32,
    /// Whether the base ends with it.
    pub is_last: bool,
}

/// What a snapshot says of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotStream {
    /// It lives.
    Lives {
        /// Its row. How many bytes it keeps is told by its extents.
        row: Box<StreamRow>,
        /// Whether its name leads to it, and not to one that was made after it.
        has_name: bool,
    },
    /// It is deleted: nothing that is found of it counts.
    Deleted(StreamId),
}

/// Why bytes are no snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Their frame is wrong.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The row of a stream is wrong, though the sum holds.
    #[error("stream {at} of a snapshot is wrong: {source}")]
    Stream {
        /// Its place.
        at: usize,
        /// What is wrong.
        source: StreamRowError,
    },
}

impl Snapshot {
    /// The bytes of the object.
    ///
    /// # Panics
    /// When it has 4 G streams or more, or 64 Ki channels.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES + HEAD_BYTES];
        out[..HEADER_BYTES].copy_from_slice(&self.header.to_bytes());
        if let Some(BasePart { number, is_last }) = self.base {
            put_u16(&mut out, 96, if is_last { FLAG_BASE_END } else { FLAG_BASE });
            put_u32(&mut out, 100, number);
        }
        put_u16(&mut out, 98, u16::try_from(self.applied.len()).expect("channels are few"));
        put_u32(&mut out, 104, count(self.bundles.len()));
        put_u32(&mut out, 108, count(self.streams.len()));
        let (epoch, number) = self.previous.unwrap_or((Epoch::ZERO, NONE));
        put_u64(&mut out, 112, epoch.get());
        put_u64(&mut out, 120, number);
        for (epoch, id) in &self.bundles {
            out.extend_from_slice(&epoch.get().to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        for (incarnation, position) in &self.applied {
            out.extend_from_slice(&incarnation.get().to_le_bytes());
            out.extend_from_slice(&position.to_le_bytes());
        }
        self.streams.iter().for_each(|stream| stream.encode(&mut out));
        let bytes = (out.len() + END_BYTES) as u64;
        out.extend_from_slice(&bytes.to_le_bytes());
        let sum = crc32c(&out[HEADER_BYTES..]);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out
    }

    /// The snapshot that these bytes are, whole.
    ///
    /// # Errors
    /// [`SnapshotError`] for anything that [`encode`](Self::encode) does not answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let header = ObjectHeader::decode(bytes)?;
        let least = HEADER_BYTES + HEAD_BYTES + END_BYTES;
        if bytes.len() < least {
            let (bytes, bytes_needed) = (bytes.len() as u64, least as u64);
            return Err(ObjectError::Short { what: "snapshot", bytes, bytes_needed }.into());
        }
        let (rest, end) = bytes.split_at(bytes.len() - END_BYTES);
        let found = u32_at(end, 12);
        if found != MAGIC {
            return Err(ObjectError::Magic { what: "end", found }.into());
        }
        check_sum("rows", u32_at(end, 8), &bytes[HEADER_BYTES..bytes.len() - 8])?;
        let (object_bytes, found) = (bytes.len() as u64, u64_at(end, 0));
        if found != object_bytes {
            return Err(ObjectError::Length { object_bytes, found, footer_at: rest.len() as u64 }.into());
        }
        let (base, previous) = decode_head(rest)?;
        let (bundles, streams) = (u32_at(rest, 104) as usize, u32_at(rest, 108) as usize);
        let mut rows = Rows { rest: &rest[HEADER_BYTES + HEAD_BYTES..], row: 0 };
        let bundles = (0..bundles).map(|_| rows.bundle()).collect::<Result<_, _>>()?;
        let applied = (0..u16_at(rest, 98)).map(|_| rows.channel()).collect::<Result<_, _>>()?;
        let streams = (0..streams).map(|at| rows.stream(at)).collect::<Result<_, _>>()?;
        if !rows.rest.is_empty() {
            return Err(rows.wrong("bytes are left behind it").into());
        }
        Ok(Self { header, base, previous, bundles, applied, streams })
    }
}

/// Incarnation and number of the snapshot before.
type Before = Option<(Epoch, u64)>;

/// Which part of a base it is, and the snapshot before; what only one of them says is zero where it is not there.
fn decode_head(bytes: &[u8]) -> Result<(Option<BasePart>, Before), ObjectError> {
    let unknown = Err(ObjectError::Unknown { what: "snapshot" });
    let (number, previous) = (u32_at(bytes, 100), (Epoch::new(u64_at(bytes, 112)), u64_at(bytes, 120)));
    let base = match u16_at(bytes, 96) {
        0 if number == 0 => None,
        FLAG_BASE => Some(BasePart { number, is_last: false }),
        FLAG_BASE_END => Some(BasePart { number, is_last: true }),
        _ => return unknown,
    };
    match previous {
        (Epoch::ZERO, NONE) => Ok((base, None)),
        (_, NONE) => unknown,
        previous => Ok((base, Some(previous))),
    }
}

fn count(rows: usize) -> u32 {
    u32::try_from(rows).expect("memory holds fewer")
}

impl SnapshotStream {
    fn encode(&self, out: &mut Vec<u8>) {
        let (stream_id, state, row) = match self {
            Self::Lives { row, has_name: true } => (row.stream_id, HAS_NAME, row.encode()),
            Self::Lives { row, has_name: false } => (row.stream_id, LIVES, row.encode()),
            Self::Deleted(stream_id) => (*stream_id, DELETED, Vec::new()),
        };
        out.extend_from_slice(&stream_id.to_bytes());
        out.extend_from_slice(&state.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&count(row.len()).to_le_bytes());
        out.extend_from_slice(&row);
    }
}

/// Rows that are read, one after the other.
struct Rows<'a> {
    rest: &'a [u8],
    row: usize,
}

impl<'a> Rows<'a> {
    fn wrong(&self, what: &'static str) -> ObjectError {
        ObjectError::Row { row: self.row, what }
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], ObjectError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or_else(|| self.wrong("it is cut short"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn bundle(&mut self) -> Result<(Epoch, u128), ObjectError> {
        let row = self.take(BUNDLE_BYTES)?;
        self.row += 1;
        Ok((Epoch::new(u64_at(row, 0)), u128::from_le_bytes(array(row, 8))))
    }

    fn channel(&mut self) -> Result<(Epoch, u64), ObjectError> {
        let row = self.take(CHANNEL_BYTES)?;
        self.row += 1;
        Ok((Epoch::new(u64_at(row, 0)), u64_at(row, 8)))
    }

    fn stream(&mut self, at: usize) -> Result<SnapshotStream, SnapshotError> {
        let head = self.take(STREAM_BYTES)?;
        let (stream_id, state) = (StreamId::from_bytes(array(head, 0)), u16_at(head, 16));
        check_zero("stream", &head[18..20])?;
        let row = self.take(u32_at(head, 20) as usize)?;
        let stream = match state {
            DELETED if row.is_empty() => SnapshotStream::Deleted(stream_id),
            LIVES | HAS_NAME => {
                let row = StreamRow::decode(row).map_err(|source| SnapshotError::Stream { at, source })?;
                if row.stream_id != stream_id {
                    return Err(self.wrong("its row is another stream's").into());
                }
                SnapshotStream::Lives { row: Box::new(row), has_name: state == HAS_NAME }
            }
            _ => return Err(self.wrong("its state is none").into()),
        };
        self.row += 1;
        Ok(stream)
    }
}

#[cfg(test)]
pub(crate) mod tests;
