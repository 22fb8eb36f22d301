//! What must hold of the layouts of a head log?

use super::{mend_sum, with_mended_sums};
use crate::bytes::u32_at;
use crate::log_frame::{self, BLOCK_BYTES, ENTRY_PREFIX_BYTES, FrameHeader};
use crate::segment::{self, SegmentHeader};
use crate::superblock::Superblock;

/// A frame of a head log.
///
/// A header that is taken is the same bytes once it is written again, and its entries lie in the body, one behind the other.
///
/// # Panics
/// When that is not so.
pub fn log_frame(bytes: &[u8]) {
    let mend = |bytes: &mut [u8]| {
        if bytes.len() >= log_frame::HEADER_BYTES {
            let body_bytes = u32_at(bytes, 60) as usize;
            mend_sum(bytes, log_frame::HEADER_BYTES..log_frame::HEADER_BYTES + body_bytes, 64);
        }
        mend_sum(bytes, 0..76, 76);
    };
    with_mended_sums(bytes, mend, check_log_frame);
}

fn check_log_frame(bytes: &[u8]) {
    let Ok(header) = FrameHeader::decode(bytes) else { return };
    let mut again = [0; log_frame::HEADER_BYTES];
    let crc = header.encode(&mut again);
    assert_eq!((&again[..], crc), (&bytes[..log_frame::HEADER_BYTES], u32_at(bytes, 76)));
    let body_end = log_frame::HEADER_BYTES + header.body_bytes as usize;
    assert!(header.disk_bytes().is_multiple_of(BLOCK_BYTES) && header.disk_bytes() >= body_end);
    assert!(header.end_lsn() >= header.first_lsn);
    assert!(!header.body_holds(bytes) || bytes.len() >= body_end, "a body that holds is there");
    let mut end = log_frame::HEADER_BYTES;
    for (at, entry) in header.entries(bytes) {
        assert_eq!(at, end + ENTRY_PREFIX_BYTES, "entries lie one behind the other");
        assert_eq!(Some(entry), bytes.get(at..at + entry.len()));
        end = at + entry.len();
    }
    assert!(end <= body_end);
}

/// The first block of a segment.
///
/// A header that is taken is the same bytes once it is written again.
///
/// # Panics
/// When that is not so.
pub fn segment_header(bytes: &[u8]) {
    let check = |bytes: &[u8]| {
        let Ok(header) = SegmentHeader::decode(bytes) else { return };
        let mut again = [0; BLOCK_BYTES];
        header.encode(&mut again);
        assert_eq!(again[..segment::HEADER_BYTES], bytes[..segment::HEADER_BYTES]);
    };
    with_mended_sums(bytes, |bytes| mend_sum(bytes, 8..segment::HEADER_BYTES, 4), check);
}

/// A copy of the superblock.
///
/// One that is taken is the same bytes once it is written again.
///
/// # Panics
/// When that is not so.
pub fn superblock(bytes: &[u8]) {
    let end = |bytes: &[u8]| 96 + 40 * bytes.get(52..56).map_or(0, |count| u32_at(count, 0) as usize);
    let check = |bytes: &[u8]| {
        let Ok((superblock, crc)) = Superblock::decode(bytes) else { return };
        let again = superblock.encode(u32_at(bytes, 8)).expect("as many segments fit");
        assert_eq!(again[..end(bytes)], bytes[..end(bytes)]);
        assert_eq!(crc, u32_at(bytes, 4));
    };
    with_mended_sums(bytes, |mended| mend_sum(mended, 12..end(bytes), 4), check);
}
