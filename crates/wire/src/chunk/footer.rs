//! What an object holds, as its end says: the rows of its extents and of the head logs it settles.

use std::ops::Range;

use super::{
    EXTENT_ROW_BYTES, ExtentRow, HEADER_BYTES, ObjectError, ObjectHeader, SETTLES_ROW_BYTES, Settles, TRAILER_BYTES,
    check_sum, check_zero, slot_of,
};
use crate::bytes::{array, i64_at, put_i64, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::crc::crc32c;
use crate::ids::{Epoch, LogId, Lsn, Rev, SeqNum, StreamId};

const MAGIC: u32 = u32::from_le_bytes(*b"NOVE");
const FLAG_RECORDS: u16 = 1;
const CRC_AT: usize = 40;
/// What a row says of the records of its extent: positions, stamps and arrival.
const RECORDS_AT: Range<usize> = 48..88;

/// What an object holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    /// What the object says of itself; `None` when its start was not at hand.
    pub header: Option<ObjectHeader>,
    /// Its extents, by slot, stream id and first rev.
    pub extents: Vec<ExtentRow>,
    /// The head logs that it settles.
    pub settles: Vec<Settles>,
}

impl Footer {
    /// Reads the footer from the last bytes of an object of `object_bytes`; from all of them also the header.
    ///
    /// # Errors
    /// [`ObjectError::NeedMore`] when `suffix` is too short; other [`ObjectError`]s when it is no object's end.
    pub fn decode_suffix(suffix: &[u8], object_bytes: u64) -> Result<Self, ObjectError> {
        let smallest = (HEADER_BYTES + TRAILER_BYTES) as u64;
        if object_bytes < smallest {
            return Err(ObjectError::Short { what: "whole", bytes: object_bytes, bytes_needed: smallest });
        }
        let suffix_bytes = suffix.len() as u64;
        if suffix_bytes < TRAILER_BYTES as u64 {
            return Err(ObjectError::NeedMore { bytes: TRAILER_BYTES as u64 });
        }
        let trailer = Trailer::decode(&suffix[suffix.len() - TRAILER_BYTES..])?;
        let footer_bytes = trailer.rows_bytes() + TRAILER_BYTES as u64;
        let footer_at = trailer.footer_at;
        let is_sound = trailer.object_bytes == object_bytes
            && suffix_bytes <= object_bytes
            && footer_at >= HEADER_BYTES as u64
            && footer_at.checked_add(footer_bytes) == Some(object_bytes);
        if !is_sound {
            return Err(ObjectError::Length { object_bytes, found: trailer.object_bytes, footer_at });
        }
        if suffix_bytes < footer_bytes {
            return Err(ObjectError::NeedMore { bytes: footer_bytes });
        }
        let Ok(footer_bytes) = usize::try_from(footer_bytes) else { unreachable!("at most the length of a slice") };
        let rows = &suffix[suffix.len() - footer_bytes..suffix.len() - TRAILER_BYTES];
        check_sum("footer", trailer.crc, rows)?;
        let (extents, settles) = rows.split_at(trailer.extents as usize * EXTENT_ROW_BYTES);
        let is_whole = suffix_bytes == object_bytes;
        Ok(Self {
            header: is_whole.then(|| ObjectHeader::decode(suffix)).transpose()?,
            extents: decode_extents(extents, footer_at)?,
            settles: decode_settles(settles, trailer.extents as usize)?,
        })
    }

    /// Appends the footer and the trailer to `out`, which holds the object up to there.
    #[expect(clippy::cast_possible_truncation, reason = "an object has less than 4 GiB")]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let footer_at = out.len();
        let settles_at = footer_at + self.extents.len() * EXTENT_ROW_BYTES;
        let end = settles_at + self.settles.len() * SETTLES_ROW_BYTES;
        out.resize(end + TRAILER_BYTES, 0);
        for (row, at) in self.extents.iter().zip(out[footer_at..settles_at].chunks_exact_mut(EXTENT_ROW_BYTES)) {
            encode_extent(row, at);
        }
        for (row, at) in self.settles.iter().zip(out[settles_at..end].chunks_exact_mut(SETTLES_ROW_BYTES)) {
            at[..16].copy_from_slice(&row.log.to_bytes());
            put_u64(at, 16, row.from.get());
            put_u64(at, 24, row.to.get());
        }
        let trailer = Trailer {
            footer_at: footer_at as u64,
            object_bytes: out.len() as u64,
            extents: self.extents.len() as u32,
            settles: self.settles.len() as u32,
            crc: crc32c(&out[footer_at..end]),
        };
        trailer.encode(&mut out[end..]);
    }
}

struct Trailer {
    footer_at: u64,
    object_bytes: u64,
    extents: u32,
    settles: u32,
    crc: u32,
}

impl Trailer {
    fn rows_bytes(&self) -> u64 {
        u64::from(self.extents) * EXTENT_ROW_BYTES as u64 + u64::from(self.settles) * SETTLES_ROW_BYTES as u64
    }

    fn encode(&self, out: &mut [u8]) {
        put_u64(out, 0, self.footer_at);
        put_u64(out, 8, self.object_bytes);
        put_u32(out, 16, self.extents);
        put_u32(out, 20, self.settles);
        put_u32(out, 24, self.crc);
        let sum = crc32c(&out[..CRC_AT]);
        put_u32(out, CRC_AT, sum);
        put_u32(out, CRC_AT + 4, MAGIC);
    }

    fn decode(bytes: &[u8]) -> Result<Self, ObjectError> {
        let found = u32_at(bytes, CRC_AT + 4);
        if found != MAGIC {
            return Err(ObjectError::Magic { what: "trailer", found });
        }
        check_sum("trailer", u32_at(bytes, CRC_AT), &bytes[..CRC_AT])?;
        check_zero("trailer", &bytes[28..CRC_AT])?;
        Ok(Self {
            footer_at: u64_at(bytes, 0),
            object_bytes: u64_at(bytes, 8),
            extents: u32_at(bytes, 16),
            settles: u32_at(bytes, 20),
            crc: u32_at(bytes, 24),
        })
    }
}

fn encode_extent(row: &ExtentRow, out: &mut [u8]) {
    put_u16(out, 0, row.slot.get().into());
    put_u16(out, 2, if row.has_records { FLAG_RECORDS } else { 0 });
    put_u32(out, 4, row.crc);
    out[8..24].copy_from_slice(&row.stream_id.to_bytes());
    put_u64(out, 24, row.slot_epoch.get());
    put_u64(out, 32, row.first_rev.get());
    put_u64(out, 40, row.last_rev.get());
    put_u64(out, 48, row.first.get());
    put_u64(out, 56, row.end.get());
    put_i64(out, 64, row.first_ms);
    put_i64(out, 72, row.last_ms);
    put_i64(out, 80, row.arrival_ms);
    put_u32(out, 88, row.offset);
    put_u32(out, 92, row.bytes);
    put_u32(out, 96, row.content_bytes);
    put_u32(out, 100, row.entries);
}

fn decode_extent(bytes: &[u8]) -> Result<ExtentRow, ObjectError> {
    Ok(ExtentRow {
        slot: slot_of(u16_at(bytes, 0))?,
        stream_id: StreamId::from_bytes(array(bytes, 8)),
        slot_epoch: Epoch::new(u64_at(bytes, 24)),
        first_rev: Rev::new(u64_at(bytes, 32)),
        last_rev: Rev::new(u64_at(bytes, 40)),
        has_records: u16_at(bytes, 2) & FLAG_RECORDS != 0,
        first: SeqNum::new(u64_at(bytes, 48)),
        end: SeqNum::new(u64_at(bytes, 56)),
        first_ms: i64_at(bytes, 64),
        last_ms: i64_at(bytes, 72),
        arrival_ms: i64_at(bytes, 80),
        offset: u32_at(bytes, 88),
        bytes: u32_at(bytes, 92),
        content_bytes: u32_at(bytes, 96),
        entries: u32_at(bytes, 100),
        crc: u32_at(bytes, 4),
    })
}

/// The rows, which fill the body from the header to `footer_at` without a gap.
fn decode_extents(bytes: &[u8], footer_at: u64) -> Result<Vec<ExtentRow>, ObjectError> {
    let mut rows: Vec<ExtentRow> = Vec::with_capacity(bytes.len() / EXTENT_ROW_BYTES);
    let mut end = HEADER_BYTES as u64;
    for (at, bytes) in bytes.chunks_exact(EXTENT_ROW_BYTES).enumerate() {
        let wrong = |what| ObjectError::Row { row: at, what };
        let row = decode_extent(bytes)?;
        if u16_at(bytes, 2) & !FLAG_RECORDS != 0 {
            return Err(wrong("its flags are unknown"));
        }
        if rows.last().is_some_and(|before| sort_key(before) > sort_key(&row)) {
            return Err(wrong("it is out of order"));
        }
        if u64::from(row.offset) != end {
            return Err(wrong("its extent does not start where the one before ends"));
        }
        check_ranges(at, &row)?;
        if !row.has_records && check_zero("row", &bytes[RECORDS_AT]).is_err() {
            return Err(wrong("it has no records and says where they are"));
        }
        end += u64::from(row.bytes);
        rows.push(row);
    }
    if end != footer_at {
        return Err(ObjectError::Row { row: rows.len(), what: "the extents do not end where the footer begins" });
    }
    Ok(rows)
}

/// An extent has an entry, and who has records has one.
fn check_ranges(at: usize, row: &ExtentRow) -> Result<(), ObjectError> {
    let wrong = |what, from, to| Err(ObjectError::Range { row: at, what, from, to });
    if row.entries == 0 {
        return wrong("entries", 0, 0);
    }
    if row.last_rev < row.first_rev {
        return wrong("revs", row.first_rev.get(), row.last_rev.get());
    }
    if row.has_records && row.end <= row.first {
        return wrong("records", row.first.get(), row.end.get());
    }
    Ok(())
}

fn decode_settles(bytes: &[u8], rows_before: usize) -> Result<Vec<Settles>, ObjectError> {
    let decode = |(at, bytes): (usize, &[u8])| {
        let log = LogId::from_bytes(array(bytes, 0));
        let (from, to) = (Lsn::new(u64_at(bytes, 16)), Lsn::new(u64_at(bytes, 24)));
        if from > to {
            let (row, what, from, to) = (rows_before + at, "settled LSNs", from.get(), to.get());
            return Err(ObjectError::Range { row, what, from, to });
        }
        Ok(Settles { log, from, to })
    };
    bytes.chunks_exact(SETTLES_ROW_BYTES).enumerate().map(decode).collect()
}

pub(super) fn sort_key(row: &ExtentRow) -> impl Ord + use<> {
    (row.slot, row.stream_id, row.first_rev)
}
