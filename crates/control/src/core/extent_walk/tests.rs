use bytes::Bytes;
use wire::batch::BatchBuilder;
use wire::entry::{BatchHead, Entry, Numbered, Place, Stamping, Verb, batch_entry_bytes, encode_batch};
use wire::handoff::HistoryFrom;
use wire::ids::{Epoch, Rev, SeqNum, StreamId};
use wire::slot::Slot;

use super::{Cut, Walk, WalkError, Wanted};
use crate::core::read_plan::reaches;

pub(crate) const STREAM: StreamId = StreamId::from_bytes([7; 16]);

/// An entry behind its length; of a verb, `first` is where the stream stands.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) bytes: Vec<u8>,
    pub(crate) first: u64,
    pub(crate) records: u16,
    pub(crate) last_ms: i64,
}

impl Sample {
    pub(crate) fn end(&self) -> u64 {
        self.first + u64::from(self.records)
    }

    fn of(entry: &[u8], first: u64, records: u16) -> Self {
        let prefix = u32::try_from(entry.len()).unwrap().to_le_bytes();
        Self { bytes: [&prefix, entry].concat(), first, records, last_ms: first_ms(first + u64::from(records)) }
    }
}

/// The stamp of the record before `seq_num`.
fn first_ms(seq_num: u64) -> i64 {
    i64::try_from(seq_num * 10).unwrap()
}

fn place(rev: u64) -> Place {
    let slot = Slot::new(5).unwrap();
    Place { stream_id: STREAM, slot, slot_epoch: Epoch::new(1), rev: Rev::new(rev) }
}

/// A batch of `records` that have `body_bytes` together, about.
pub(crate) fn batch(rev: u64, first: u64, records: u16, body_bytes: usize) -> Sample {
    let mut builder = BatchBuilder::new();
    for record in 0..records {
        let fill = u8::try_from((first + u64::from(record)) % 251).unwrap();
        builder.push::<&str, &str>(None, &[], &vec![fill; body_bytes / usize::from(records)]).unwrap();
    }
    let mut bytes = Vec::new();
    let batch_crc = builder.finish(&mut bytes).unwrap();
    let last_ms = first_ms(first + u64::from(records));
    let head = BatchHead {
        place: place(rev),
        first: SeqNum::new(first),
        records,
        stamping: Stamping { arrival_ms: last_ms, previous_ms: first_ms(first), capped: true, client_stamps: false },
        last_ms,
        numbered: Numbered::default(),
        session_epoch: 0,
        batch_crc,
    };
    let mut entry = vec![0; batch_entry_bytes(bytes.len())];
    encode_batch(&head, &bytes, &mut entry);
    Sample::of(&entry, first, records)
}

pub(crate) fn verb(rev: u64, at: u64) -> Sample {
    Sample::of(&Verb::Trim { to: SeqNum::new(0) }.encode(place(rev)), at, 0)
}

/// Entries from `first` on, one kind behind the other.
fn stream(first: u64, entries: u64) -> Vec<Sample> {
    let mut at = first;
    let mut all = Vec::new();
    for no in 0..entries {
        let sample = match no % 5 {
            0 | 3 => verb(no + 1, at),
            kind => batch(no + 1, at, u16::try_from(kind).unwrap(), 40 * usize::try_from(kind).unwrap()),
        };
        at = sample.end();
        all.push(sample);
    }
    all
}

pub(crate) fn bytes_of(samples: &[Sample]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.bytes.iter().copied()).collect()
}

fn wanted(samples: &[Sample], from: HistoryFrom, bytes_max: u64) -> Wanted {
    Wanted { stream_id: STREAM, from, end: SeqNum::new(samples.last().unwrap().end()), bytes_max }
}

fn walk(bytes: &[u8], wanted: Wanted, at: usize, piece_bytes: usize) -> Result<Cut, WalkError> {
    let mut walk = Walk::new(wanted, at as u64);
    for piece in bytes[at..].chunks(piece_bytes) {
        if walk.is_done() {
            break;
        }
        walk.push(&Bytes::copy_from_slice(piece))?;
    }
    walk.finish()
}

/// What a walk should keep, by looking at all entries.
fn expected(samples: &[Sample], from: HistoryFrom, bytes_max: u64) -> (Vec<u8>, u64, u64) {
    let is_before = |sample: &Sample| {
        let end = wire::ids::Position::new(SeqNum::new(sample.end()), sample.last_ms);
        sample.records > 0 && !reaches(from, end)
    };
    let start = samples.iter().rposition(is_before).map_or(0, |at| at + 1);
    let mut kept: Vec<&Sample> = Vec::new();
    for sample in &samples[start..] {
        let bytes: usize = kept.iter().map(|sample| sample.bytes.len()).sum();
        let has_batch = kept.iter().any(|sample| sample.records > 0);
        let is_at_end = sample.records == 0 && sample.first == samples.last().unwrap().end();
        if has_batch && !is_at_end && (bytes + sample.bytes.len()) as u64 > bytes_max {
            break;
        }
        kept.push(sample);
    }
    let first = kept.iter().find(|sample| sample.records > 0).unwrap().first;
    let end = kept.iter().rfind(|sample| sample.records > 0).unwrap().end();
    (kept.iter().flat_map(|sample| sample.bytes.iter().copied()).collect(), first, end)
}

#[test]
fn it_keeps_the_same_wherever_the_bytes_are_cut() {
    let samples = stream(100, 24);
    let bytes = bytes_of(&samples);
    let last = samples.last().unwrap().end();
    let froms = (98..last).map(|seq_num| HistoryFrom::SeqNum(SeqNum::new(seq_num)));
    let times = (99..=last).map(|seq_num| HistoryFrom::Timestamp(first_ms(seq_num) - 3));
    for from in froms.chain(times) {
        for bytes_max in [0, 300, 777, 1 << 20] {
            let (kept, first, end) = expected(&samples, from, bytes_max);
            for piece_bytes in [1, 3, 64, 500, bytes.len()] {
                let cut = walk(&bytes, wanted(&samples, from, bytes_max), 0, piece_bytes).unwrap();
                assert_eq!((cut.first.get(), cut.end.get()), (first, end), "{from:?} {bytes_max} {piece_bytes}");
                assert_eq!(cut.pieces.concat(), kept, "{from:?} {bytes_max} {piece_bytes}");
            }
        }
    }
}

#[test]
fn it_goes_on_where_it_ended_until_the_last_byte() {
    let samples = stream(0, 40);
    let bytes = bytes_of(&samples);
    let end = samples.last().unwrap().end();
    let (mut at, mut from, mut got) = (0, 0, Vec::new());
    while from < end {
        let wanted = wanted(&samples, HistoryFrom::SeqNum(SeqNum::new(from)), 700);
        let cut = walk(&bytes, wanted, at, 333).unwrap();
        assert_eq!(cut.first.get(), from);
        got.extend(cut.pieces.concat());
        (at, from) = (usize::try_from(cut.next_at).unwrap(), cut.end.get());
    }
    assert_eq!((at, got), (bytes.len(), bytes));
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let samples = stream(0, 8);
    let bytes = bytes_of(&samples);
    let wanted = wanted(&samples, HistoryFrom::SeqNum(SeqNum::ZERO), 1 << 20);
    for at in 0..bytes.len() {
        for bit in [1, 0x80] {
            let mut damaged = bytes.clone();
            damaged[at] ^= bit;
            assert!(walk(&damaged, wanted, 0, 256).is_err(), "byte {at}");
        }
    }
}

#[test]
fn what_is_not_the_promised_records_is_an_error() {
    let samples = stream(0, 8);
    let bytes = bytes_of(&samples);
    let all = wanted(&samples, HistoryFrom::SeqNum(SeqNum::ZERO), 1 << 20);
    let torn = walk(&bytes[..bytes.len() - 1], all, 0, 100);
    assert_eq!(torn, Err(WalkError::Torn { bytes: samples[7].bytes.len() - 1 }));
    let short = bytes.len() - samples[7].bytes.len();
    assert_eq!(walk(&bytes[..short], all, 0, 100), Err(WalkError::Missing { end: all.end }));
    let other = StreamId::from_bytes([8; 16]);
    let foreign = walk(&bytes, Wanted { stream_id: other, ..all }, 0, 100);
    assert_eq!(foreign, Err(WalkError::Stream { found: STREAM, expected: other }));
    let beyond = Wanted { from: HistoryFrom::SeqNum(all.end), ..all };
    assert_eq!(walk(&bytes, beyond, 0, 100), Err(WalkError::Missing { end: all.end }));
    let long = u32::MAX.to_le_bytes();
    assert!(matches!(walk(&long, all, 0, 1), Err(WalkError::Length { .. })));
}

#[test]
fn samples_are_entries() {
    for sample in stream(0, 8) {
        assert_eq!(Entry::decode(&sample.bytes[4..]).unwrap().1, sample.bytes.len() - 4);
    }
}
