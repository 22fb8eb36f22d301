use proptest::prelude::*;

use super::*;
use crate::batch::BatchBuilder;
use crate::config::Class;
use crate::entry::{Numbered, Stamping};
use crate::ids::{BatchNo, ProducerId};

fn place(rev: u64) -> Place {
    Place {
        stream_id: StreamId::from_bytes([3; 16]),
        slot: Slot::default(),
        slot_epoch: Epoch::new(4),
        rev: Rev::new(rev),
    }
}

fn created() -> StreamRow {
    let verb = Verb::Create {
        bucket: BucketId::from_bytes([1; 16]),
        key: Key::new("orders/eu").unwrap(),
        config: StreamConfig::default(),
        created_at_ms: 77,
    };
    StreamRow::created(place(1), &verb).unwrap()
}

fn encoded_batch(stamps: &[i64]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for stamp in stamps {
        builder.push::<&str, &str>(Some(*stamp), &[], b"body").unwrap();
    }
    let mut out = Vec::new();
    builder.finish(&mut out).unwrap();
    out
}

/// A batch of two records from `first` on, stamped 950 and 980, arrived at 1000.
fn head(rev: u64, first: u64, no: u64, batch: &[u8]) -> BatchHead {
    BatchHead {
        place: place(rev),
        first: SeqNum::new(first),
        records: 2,
        stamping: Stamping { arrival_ms: 1000, previous_ms: 900, capped: true, client_stamps: true },
        last_ms: 980,
        numbered: Numbered { producer: ProducerId::new(7), no: BatchNo::new(no), one_shot: false },
        session_epoch: 0,
        batch_crc: crc32c(batch),
    }
}

fn verb(rev: u64, verb: Verb) -> Entry<'static> {
    Entry::Verb { place: place(rev), verb }
}

pub(crate) fn sample() -> StreamRow {
    let mut row = created();
    let batch = encoded_batch(&[950, 980]);
    let effect = Some(Effect::InstallToken(FencingToken::new("gen-42").unwrap()));
    let entry = Entry::Batch { head: head(2, 0, 1, &batch), batch: &batch, effect };
    assert_eq!(row.apply(&entry, 8), Ok(Applied::Changed));
    row
}

#[test]
fn a_batch_moves_the_tail_and_is_remembered_with_the_stamp_of_its_first_record() {
    let row = sample();
    assert_eq!(row.tail, Position::new(SeqNum::new(2), 980));
    assert_eq!((row.bytes, row.arrival_ms, row.has_uncapped), (8, 1000, false));
    assert_eq!((row.rev, row.epoch, row.token.as_str()), (Rev::new(2), Epoch::new(4), "gen-42"));
    let batch = encoded_batch(&[950, 980]);
    let answer = Answer {
        no: BatchNo::new(1),
        batch_crc: crc32c(&batch),
        records: 2,
        start: Position::new(SeqNum::ZERO, 950),
        last_ms: 980,
        lsn: Lsn::ZERO,
    };
    let mut dedupe = Dedupe::default();
    dedupe.note(head(2, 0, 1, &batch).numbered, answer);
    assert_eq!(row.dedupe, dedupe);
}

#[test]
fn a_first_stamp_that_the_head_tells_is_the_one_its_columns_tell() {
    let batch = encoded_batch(&[950, 980]);
    let plain = head(2, 0, 1, &batch);
    let arrival = Stamping { client_stamps: false, ..plain.stamping };
    let raised = Stamping { previous_ms: 2000, ..plain.stamping };
    for (stamping, last_ms) in [(plain.stamping, 980), (arrival, 1000), (raised, 2000)] {
        let head = BatchHead { stamping, last_ms, ..plain };
        let columns = VerifiedBatch::verify(&batch, head.batch_crc).unwrap();
        assert_eq!(stamping.last(&columns), last_ms);
        assert_eq!(first_ms(&head, &batch), Ok(stamping.effective(columns.stamp(0), stamping.previous_ms)));
    }
}

#[test]
fn verbs_change_what_they_name() {
    let mut row = sample();
    let config = StreamConfig { class: Class::Express, ..StreamConfig::default() };
    row.apply(&verb(3, Verb::Reconfigure { config }), 0).unwrap();
    row.apply(&verb(4, Verb::Fence { token: FencingToken::default() }), 0).unwrap();
    row.apply(&verb(5, Verb::Gap { from: SeqNum::new(2), to: SeqNum::new(5) }), 0).unwrap();
    assert_eq!((row.config, row.token.is_empty()), (config, true));
    assert_eq!(row.tail, Position::new(SeqNum::new(5), 980));
    row.apply(&verb(6, Verb::Trim { to: SeqNum::new(99) }), 0).unwrap();
    assert_eq!(row.trim_point, SeqNum::new(5), "no further than the tail");
    row.apply(&verb(7, Verb::Trim { to: SeqNum::new(1) }), 0).unwrap();
    assert_eq!((row.trim_point, row.bytes), (SeqNum::new(5), 8), "never back, and extents still count");
    assert_eq!(row.apply(&verb(8, Verb::Delete), 0), Ok(Applied::Deleted));
}

#[test]
fn an_uncapped_batch_is_remembered_for_the_life_of_the_row() {
    let (mut row, batch) = (sample(), encoded_batch(&[5000, 6000]));
    let plain = head(3, 2, 2, &batch);
    let stamping = Stamping { capped: false, ..plain.stamping };
    let head = BatchHead { stamping, last_ms: 6000, ..plain };
    row.apply(&Entry::Batch { head, batch: &batch, effect: None }, 8).unwrap();
    assert!(row.has_uncapped);
    row.apply(&verb(4, Verb::Reconfigure { config: StreamConfig::default() }), 0).unwrap();
    row.apply(&verb(5, Verb::Trim { to: row.tail.seq_num }), 0).unwrap();
    assert!(row.has_uncapped, "no later stamp is lower");
    assert_eq!(StreamRow::decode(&row.encode()), Ok(row));
}

#[test]
fn an_entry_applied_before_is_ignored_and_a_hole_an_older_tenure_or_other_records_are_refused() {
    let mut row = sample();
    let before = row.clone();
    assert_eq!(row.apply(&verb(2, Verb::Delete), 0), Ok(Applied::Ignored));
    let hole = |rev, epoch| FoldError::Hole {
        stream_id: StreamId::from_bytes([3; 16]),
        applied: Rev::new(2),
        rev: Rev::new(rev),
        epoch: Epoch::new(epoch),
    };
    assert_eq!(row.apply(&verb(4, Verb::Delete), 0), Err(hole(4, 4)));
    let old = Entry::Verb { place: Place { slot_epoch: Epoch::new(3), ..place(3) }, verb: Verb::Delete };
    assert_eq!(row.apply(&old, 0), Err(hole(3, 3)));
    let batch = encoded_batch(&[950, 980]);
    for first in [0, 1, 3] {
        let apart = Entry::Batch { head: head(3, first, 2, &batch), batch: &batch, effect: None };
        let (stream_id, tail) = (StreamId::from_bytes([3; 16]), SeqNum::new(2));
        let wrong = FoldError::Records { stream_id, rev: Rev::new(3), first: SeqNum::new(first), tail };
        assert_eq!(row.apply(&apart, 8), Err(wrong));
    }
    let damaged = Entry::Batch { head: head(3, 2, 2, b"no batch"), batch: b"no batch", effect: None };
    assert!(matches!(row.apply(&damaged, 8), Err(FoldError::Batch { .. })));
    assert_eq!(row, before);
}

#[test]
fn only_a_create_makes_a_row_in_the_slot_of_its_name() {
    assert_eq!(StreamRow::created(place(1), &Verb::Delete), None);
    let row = created();
    assert_eq!(row.slot(), Slot::of(row.bucket, &row.key));
    assert_eq!((row.created_at_ms, row.rev, row.tail), (77, Rev::new(1), Position::default()));
}

#[test]
fn the_bytes_of_a_row_are_golden() {
    let bytes = sample().encode();
    assert_eq!((bytes.len(), crc32c(&bytes[..bytes.len() - SUM_BYTES])), GOLDEN, "a layout changed");
    assert_eq!(StreamRow::decode(&bytes), Ok(sample()));
}

const GOLDEN: (usize, u32) = (223, 2606668856);

#[test]
fn any_flipped_bit_is_found() {
    let bytes = sample().encode();
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(StreamRow::decode(&bad).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(StreamRow::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
}

#[test]
fn a_row_whose_lengths_or_format_are_wrong_is_refused_though_its_sum_holds() {
    let with = |at: usize, byte: u8| {
        let mut bytes = sample().encode();
        let end = bytes.len() - SUM_BYTES;
        bytes[at] = byte;
        let sum = crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
        StreamRow::decode(&bytes).unwrap_err()
    };
    assert_eq!(with(0, 1), StreamRowError::Format { found: 1 });
    assert_eq!(with(0, 3), StreamRowError::Format { found: 3 });
    assert_eq!((with(1, 2), with(7, 1)), (StreamRowError::Flags { found: 2 }, StreamRowError::Flags { found: 0 }));
    assert!(matches!(with(3, 4), StreamRowError::Short { .. }));
    assert!(matches!(with(4, 40), StreamRowError::Name(_)));
    assert!(matches!(with(4, 5), StreamRowError::Dedupe(_)));
    assert!(matches!(with(104, 9), StreamRowError::Config(_)));
    assert_eq!(with(80, 3), StreamRowError::Trim { trim_point: SeqNum::new(3), tail: SeqNum::new(2) });
}

proptest! {
    #[test]
    fn a_row_comes_back(
        numbers in any::<[u64; 5]>(),
        stamps in any::<[i64; 3]>(),
        (key, token) in ("[^\0]{1,100}", "[a-z]{0,36}"),
        (has_uncapped, id) in (any::<bool>(), any::<[u8; 16]>()),
    ) {
        let row = StreamRow {
            stream_id: StreamId::from_bytes(id),
            key: Key::new(&key).unwrap(),
            epoch: Epoch::new(numbers[0]),
            rev: Rev::new(numbers[1]),
            tail: Position::new(SeqNum::new(numbers[2]), stamps[0]),
            trim_point: SeqNum::new(numbers[3].min(numbers[2])),
            bytes: numbers[4],
            token: FencingToken::new(&token).unwrap(),
            arrival_ms: stamps[1],
            created_at_ms: stamps[2],
            has_uncapped,
            ..sample()
        };
        prop_assert_eq!(StreamRow::decode(&row.encode()), Ok(row));
    }

    #[test]
    fn any_bytes_are_judged(mut bytes in prop::collection::vec(any::<u8>(), 0..300), is_summed in any::<bool>()) {
        if is_summed && bytes.len() > SUM_BYTES {
            let end = bytes.len() - SUM_BYTES;
            bytes[0] = FORMAT;
            let sum = crc32c(&bytes[..end]);
            bytes[end..].copy_from_slice(&sum.to_le_bytes());
        }
        let _ = StreamRow::decode(&bytes);
    }
}
