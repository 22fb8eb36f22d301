//! What must hold of the objects of the standard store, and of the rows that are kept in them?

use super::{mend_entries, mend_sum, with_mended_sums};
use crate::bucket::Bucket;
use crate::bytes::{put_u64, u16_at, u32_at, u64_at};
use crate::chunk::{self, EXTENT_ROW_BYTES, Footer, HEADER_BYTES, ObjectError, ObjectHeader, TRAILER_BYTES};
use crate::dedupe::Answer;
use crate::entry::Numbered;
use crate::ids::{BatchNo, Lsn, Position, ProducerId};
use crate::snapshot::Snapshot;
use crate::stream_row::StreamRow;

/// A chunk, a fence or a bundle, whole.
///
/// One that is taken is the same bytes once its header and footer are written again; a footer is the same from as much of the end as it
/// asks for; extents fill the body, and the entries that are read from one are all of it.
///
/// # Panics
/// When that is not so.
pub fn object(bytes: &[u8]) {
    with_mended_sums(bytes, mend_object, check_object);
}

fn mend_header(bytes: &mut [u8]) {
    mend_sum(bytes, 0..HEADER_BYTES - 4, HEADER_BYTES - 4);
}

fn mend_object(bytes: &mut [u8]) {
    mend_header(bytes);
    let Some(trailer_at) = bytes.len().checked_sub(TRAILER_BYTES) else { return };
    let object_bytes = bytes.len() as u64;
    put_u64(bytes, trailer_at + 8, object_bytes);
    let footer_at = usize::try_from(u64_at(bytes, trailer_at)).unwrap_or(usize::MAX);
    let rows = u32_at(bytes, trailer_at + 16) as usize;
    let rows_fit = trailer_at.saturating_sub(footer_at) / EXTENT_ROW_BYTES;
    for row_at in (0..rows.min(rows_fit)).map(|row| footer_at + row * EXTENT_ROW_BYTES) {
        let (start, extent_bytes) = (u32_at(bytes, row_at + 88) as usize, u32_at(bytes, row_at + 92) as usize);
        let extent = start..(start + extent_bytes).min(footer_at);
        mend_entries(bytes.get_mut(extent.clone()).unwrap_or_default());
        mend_sum(bytes, extent, row_at + 4);
    }
    mend_sum(bytes, footer_at..trailer_at, trailer_at + 24);
    mend_sum(bytes, trailer_at..trailer_at + 40, trailer_at + 40);
}

fn check_object(bytes: &[u8]) {
    let object_bytes = bytes.len() as u64;
    let whole = Footer::decode_suffix(bytes, object_bytes);
    let header = ObjectHeader::decode(bytes);
    if let Ok(header) = header {
        assert_eq!(header.to_bytes(), bytes[..HEADER_BYTES], "a header written again is the same");
    }
    let Ok(footer) = whole else { return };
    assert_eq!(footer.header, header.ok());
    let body_end = footer.extents.last().map_or(HEADER_BYTES, |row| row.offset as usize + row.bytes as usize);
    let mut again = bytes[..body_end].to_vec();
    footer.encode(&mut again);
    assert_eq!(again, bytes, "a footer written again is the same");
    check_suffixes(bytes, &footer);
    for row in &footer.extents {
        let extent = &bytes[row.offset as usize..row.offset as usize + row.bytes as usize];
        if chunk::check_extent(row, extent).is_ok() {
            check_entries(extent);
        }
    }
}

/// The footer of an object asks for more of the end until it is there.
fn check_suffixes(bytes: &[u8], footer: &Footer) {
    let mut suffix_bytes = 0;
    for _ in 0..3 {
        let suffix = &bytes[bytes.len() - suffix_bytes..];
        match Footer::decode_suffix(suffix, bytes.len() as u64) {
            Err(ObjectError::NeedMore { bytes: more }) => {
                let more = usize::try_from(more).unwrap_or(usize::MAX);
                assert!(more > suffix_bytes && more <= bytes.len(), "{more} bytes are asked for");
                suffix_bytes = more;
            }
            found => {
                let is_whole = suffix_bytes == bytes.len();
                let header = footer.header.filter(|_| is_whole);
                assert_eq!(found, Ok(Footer { header, ..footer.clone() }));
                return;
            }
        }
    }
    panic!("a footer asks for more again and again");
}

fn check_entries(extent: &[u8]) {
    let mut read = Vec::new();
    for entry in chunk::entries(extent) {
        let Ok((_, bytes)) = entry else { return };
        read.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        read.extend_from_slice(bytes);
    }
    assert_eq!(read, extent, "the entries of an extent are all of it");
}

/// A snapshot, whole.
///
/// One that is taken is the same bytes once it is written again.
///
/// # Panics
/// When that is not so.
pub fn snapshot(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        let Ok(snapshot) = Snapshot::decode(bytes) else { return };
        assert_eq!(snapshot.encode(), bytes);
    };
    with_mended_sums(bytes, mend_snapshot, check);
}

fn mend_snapshot(bytes: &mut [u8]) {
    const HEAD_END: usize = 128;
    mend_header(bytes);
    let Some(end_at) = bytes.len().checked_sub(16).filter(|at| *at >= HEAD_END) else { return };
    let object_bytes = bytes.len() as u64;
    put_u64(bytes, end_at, object_bytes);
    let (bundles, channels) = (u32_at(bytes, 104) as usize, usize::from(u16_at(bytes, 98)));
    let streams_at = HEAD_END + 24 * bundles + 16 * channels;
    let mut rest = bytes.get_mut(streams_at..end_at).unwrap_or_default();
    while rest.len() >= 24 {
        let end = rest.len().min(24 + u32_at(rest, 20) as usize);
        let (stream, behind) = rest.split_at_mut(end);
        mend_stream_row(&mut stream[24..]);
        rest = behind;
    }
    mend_sum(bytes, HEADER_BYTES..end_at + 8, end_at + 8);
}

fn mend_stream_row(bytes: &mut [u8]) {
    if let Some(sum_at) = bytes.len().checked_sub(4) {
        mend_sum(bytes, 0..sum_at, sum_at);
    }
}

/// The row of a stream.
///
/// One that is taken is the same bytes once it is written again, and so it is after it has remembered one batch more.
///
/// # Panics
/// When that is not so.
pub fn stream_row(bytes: &[u8]) {
    with_mended_sums(bytes, mend_stream_row, check_stream_row);
}

fn check_stream_row(bytes: &[u8]) {
    let Ok(mut row) = StreamRow::decode(bytes) else { return };
    assert_eq!(row.encode(), bytes);
    let no = BatchNo::new(row.rev.get());
    for (producer, one_shot) in [(1, false), (row.epoch.get(), false), (2, true)] {
        let numbered = Numbered { producer: ProducerId::new(producer), no, one_shot };
        let start = Position::new(row.trim_point, row.arrival_ms);
        let answer = Answer { no, batch_crc: 3, records: 4, start, last_ms: row.created_at_ms, lsn: Lsn::ZERO };
        let _seen = row.dedupe.look(numbered, answer.batch_crc);
        row.dedupe.note(numbered, answer);
        assert_eq!(StreamRow::decode(&row.encode()).as_ref(), Ok(&row));
    }
}

/// The row of a bucket.
///
/// One that is taken is the same once it is written and read again.
///
/// # Panics
/// When that is not so.
pub fn bucket(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        let Ok(bucket) = Bucket::decode(bytes) else { return };
        assert_eq!(Bucket::decode(&bucket.encode()), Ok(bucket));
    };
    with_mended_sums(bytes, |mended| mend_sum(mended, 12..bytes.len(), 8), check);
}
