use wire::handoff::HistoryFrom;
use wire::ids::{Epoch, Rev, SeqNum};
use wire::slot::Slot;

use super::{EXTENTS_A_READ_MAX, LARGE_BYTES, Part, runs, whole_extents};
use crate::index::{Located, ObjectId};

pub(crate) fn object(id: u128) -> ObjectId {
    ObjectId::Bundle { slot: Slot::new(5).unwrap(), epoch: Epoch::new(1), id }
}

/// An extent that lies there, of records `records`.
pub(crate) fn extent(object: ObjectId, at: u32, bytes: u32, records: std::ops::Range<u64>) -> Located {
    let stamp = |seq_num: u64| i64::try_from(seq_num * 10).unwrap();
    Located {
        object,
        offset: at,
        bytes,
        content_bytes: bytes,
        entries: 1,
        crc: 0,
        first: SeqNum::new(records.start),
        end: SeqNum::new(records.end),
        first_rev: Rev::new(1),
        last_rev: Rev::new(1),
        slot_epoch: Epoch::new(1),
        first_ms: stamp(records.start),
        last_ms: stamp(records.end),
        arrival_ms: stamp(records.end),
    }
}

const fn from(seq_num: u64) -> HistoryFrom {
    HistoryFrom::SeqNum(SeqNum::new(seq_num))
}

#[test]
fn neighbours_in_an_object_make_a_run() {
    let extents = [
        extent(object(1), 100, 50, 0..1),
        extent(object(1), 150, 10, 1..2),
        extent(object(1), 161, 10, 2..3),
        extent(object(2), 171, 10, 3..4),
    ];
    let runs = runs(&extents);
    let found: Vec<_> = runs.iter().map(|run| (run.object, run.range.clone())).collect();
    assert_eq!(found, [(object(1), 100..160), (object(1), 161..171), (object(2), 171..181)]);
    assert_eq!(runs.iter().map(super::Run::is_small_and_alone).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn the_pieces_of_a_run_are_its_bytes() {
    for (at, bytes) in [(0, 1), (0, 64), (63, 2), (10, 300), (64, 128), (127, 1)] {
        let run = &runs(&[extent(object(1), at, bytes, 0..1)])[0];
        let pieces: Vec<_> = run.pieces(64).collect();
        let mut next = u64::from(at);
        for piece in &pieces {
            let block = piece.key.range(64);
            assert_eq!(piece.range.start, next);
            assert!(block.start <= piece.range.start && piece.range.end <= block.end && !piece.range.is_empty());
            assert!(matches!(piece.key.part, Part::Block(_)));
            next = piece.range.end;
        }
        assert_eq!(next, u64::from(at + bytes));
        assert_eq!(run.exact().range, run.range);
    }
}

#[test]
fn as_many_extents_are_sent_as_fit_and_one_at_least() {
    let extents: Vec<_> = (0..5).map(|no| extent(object(1), 0, 100, no..no + 1)).collect();
    let sent = |bytes_max| whole_extents(&extents, from(0), bytes_max);
    assert_eq!([sent(0), sent(100), sent(299), sent(300), sent(1000)], [1, 1, 2, 3, 5]);
    assert_eq!(whole_extents(&[], from(0), 1000), 0);
    let many: Vec<_> = (0..200).map(|no| extent(object(1), 0, 1, no..no + 1)).collect();
    assert_eq!(whole_extents(&many, from(0), 1000), EXTENTS_A_READ_MAX);
}

#[test]
fn a_large_extent_is_sent_in_parts_unless_all_of_it_is_wanted_and_fits() {
    let large = extent(object(1), 0, LARGE_BYTES + 1, 10..20);
    let middle = extent(object(1), 0, LARGE_BYTES, 10..20);
    let sent = |extent, from, bytes_max| whole_extents(&[extent], from, bytes_max);
    assert_eq!(sent(large, from(10), 1 << 20), 1);
    assert_eq!(sent(large, from(11), 1 << 20), 0);
    assert_eq!(sent(large, HistoryFrom::Timestamp(101), 1 << 20), 0);
    assert_eq!(sent(large, HistoryFrom::Timestamp(100), 1 << 20), 1);
    assert_eq!(sent(large, from(10), 1000), 0);
    assert_eq!(sent(middle, from(15), 1000), 1);
}

#[test]
fn extents_that_overlap_are_not_sent_together() {
    let extents = [extent(object(1), 0, 10, 0..5), extent(object(2), 0, 10, 4..8), extent(object(3), 0, 10, 8..9)];
    assert_eq!(whole_extents(&extents, from(0), 1000), 1);
    let gap = [extent(object(1), 0, 10, 0..5), extent(object(2), 0, 10, 1 << 32..(1 << 32) + 1)];
    assert_eq!(whole_extents(&gap, from(0), 1000), 2);
}
