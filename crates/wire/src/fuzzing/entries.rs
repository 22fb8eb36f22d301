//! What must hold of batches, and of the entries that they go into?

use super::{mend_sum, with_mended_sums};
use crate::batch::{BatchBuilder, RecordView, VerifiedBatch};
use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::crc::crc32c;
use crate::entry::{self, Entry, batch_entry_bytes, encode_batch, encode_batch_with};
use crate::limits::BATCH_BYTES_MAX;
use crate::log_frame::ENTRY_PREFIX_BYTES;

/// A batch, whose sum is taken for right.
///
/// One that is taken is within every bound of the builder, which makes the same records of it.
///
/// # Panics
/// When that is not so.
pub fn batch(bytes: &[u8]) {
    let Ok(batch) = VerifiedBatch::verify(bytes, crc32c(bytes)) else { return };
    let mut builder = BatchBuilder::new();
    for record in &batch {
        let headers: Vec<_> = record.headers().collect();
        assert_eq!(builder.push(record.timestamp_ms, &headers, record.body), Ok(()), "a record within the bounds");
    }
    let counted = (usize::from(batch.records()), batch.content_bytes() as usize);
    assert_eq!((builder.records(), builder.content_bytes()), counted);
    let mut again = Vec::new();
    let crc = builder.finish(&mut again).expect("it has records");
    assert!(again.len() <= BATCH_BYTES_MAX, "{} bytes", again.len());
    let again = VerifiedBatch::verify(&again, crc).expect("the builder makes batches");
    assert!(again.iter().map(parts).eq(batch.iter().map(parts)), "the records are the same");
    assert!((0..batch.records()).all(|record| again.stamp(record) == batch.stamp(record)));
}

type Parts<'a> = (Option<i64>, Vec<(&'a [u8], &'a [u8])>, &'a [u8]);

fn parts(record: RecordView<'_>) -> Parts<'_> {
    (record.timestamp_ms, record.headers().collect(), record.body)
}

/// An entry, and what stands behind it.
///
/// One that is taken is the same bytes once it is written again, and a peek tells the same of it.
///
/// # Panics
/// When that is not so.
pub fn entry(bytes: &[u8]) {
    let mend = |bytes: &mut [u8]| {
        mend_entry(bytes);
    };
    with_mended_sums(bytes, mend, check_entry);
}

fn check_entry(bytes: &[u8]) {
    let peeked = entry::peek(bytes);
    let Ok((entry, entry_bytes)) = Entry::decode(bytes) else { return };
    let peeked = peeked.expect("a peek looks at less");
    assert_eq!((peeked.place, peeked.entry_bytes), (entry.place(), entry_bytes));
    assert_eq!(encoded(&entry), bytes[..entry_bytes], "an entry written again is the same");
    assert!(Entry::decode(&bytes[..entry_bytes - 1]).is_err(), "an entry that is cut is none");
    let Entry::Batch { head, batch, .. } = entry else {
        assert_eq!(peeked.records, None);
        return;
    };
    let records = peeked.records.expect("a batch has records");
    assert_eq!((records.first, records.records, records.last_ms), (head.first, head.records, head.last_ms));
    assert!(head.end().seq_num >= head.first);
    if let Ok(batch) = VerifiedBatch::verify(batch, head.batch_crc) {
        assert!(head.stamping.last(&batch) >= head.stamping.previous_ms, "stamps never fall");
    }
}

fn encoded(entry: &Entry<'_>) -> Vec<u8> {
    match entry {
        Entry::Verb { place, verb } => verb.encode(*place),
        Entry::Batch { head, batch, effect: Some(effect) } => encode_batch_with(head, batch, effect),
        Entry::Batch { head, batch, effect: None } => {
            let mut out = vec![0; batch_entry_bytes(batch.len())];
            encode_batch(head, batch, &mut out);
            out
        }
    }
}

/// Mends the lengths and sums of the entry that `bytes` start with; answers how many of them it takes.
pub fn mend_entry(bytes: &mut [u8]) -> usize {
    const BATCH: u8 = 1;
    let Some(length) = bytes.get(4..8).map(|length| u32_at(length, 0) as usize) else { return bytes.len() };
    let end = length.min(bytes.len());
    let entry = &mut bytes[..end];
    let small = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    if entry.first() == Some(&BATCH) && end >= batch_entry_bytes(0) {
        let behind = end - batch_entry_bytes(0);
        let effect_bytes = usize::from(u16_at(entry, 100)).min(behind);
        put_u32(entry, 4, small(end));
        put_u32(entry, 92, small(behind - effect_bytes));
        put_u16(entry, 100, u16::try_from(effect_bytes).unwrap_or(u16::MAX));
        mend_sum(entry, batch_entry_bytes(0)..end - effect_bytes, 96);
        put_u32(entry, 104, 0);
        if effect_bytes > 0 {
            mend_sum(entry, end - effect_bytes..end, 104);
        }
        mend_sum(entry, 0..108, 108);
    } else if end >= 44 {
        put_u32(entry, 4, small(end));
        mend_sum(entry, 0..end - 4, end - 4);
    }
    end.max(1)
}

/// Mends the entries of an extent, each behind its length.
pub fn mend_entries(mut extent: &mut [u8]) {
    while extent.len() > ENTRY_PREFIX_BYTES {
        let end = extent.len().min(ENTRY_PREFIX_BYTES.saturating_add(u32_at(extent, 0) as usize));
        let (prefixed, behind) = extent.split_at_mut(end);
        mend_entry(&mut prefixed[ENTRY_PREFIX_BYTES..]);
        extent = behind;
    }
}
