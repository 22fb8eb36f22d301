//! Rows and extents to begin with.

use wire::config::StreamConfig;
use wire::entry::{Place, Verb};
use wire::ids::{BucketId, Rev};
use wire::names::Key;

use super::*;
use crate::core::extent_walk::tests::{STREAM, batch, verb};

fn created() -> Verb {
    let key = Key::new("orders/eu").unwrap();
    Verb::Create { bucket: BucketId::from_bytes([9; 16]), key, config: StreamConfig::default(), created_at_ms: 77 }
}

fn place(rev: u64) -> Place {
    let slot = Slot::new(5).unwrap();
    Place { stream_id: STREAM, slot, slot_epoch: Epoch::new(1), rev: Rev::new(rev) }
}

fn prefixed(entry: &[u8]) -> Vec<u8> {
    [&u32::try_from(entry.len()).unwrap().to_le_bytes(), entry].concat()
}

/// Extents by what is in them: of a stream from its beginning on.
pub(crate) fn sample_extents() -> [(&'static str, Vec<u8>); 3] {
    let begun = [prefixed(&created().encode(place(1))), batch(2, 0, 3, 60).bytes, batch(3, 3, 1, 30).bytes];
    let trimmed = [&begun[..], &[verb(4, 4).bytes, batch(5, 4, 2, 20).bytes]].concat();
    let deleted = [&begun[..], &[prefixed(&Verb::Delete.encode(place(4)))]].concat();
    let backwards = [prefixed(&created().encode(place(1))), batch(2, 30, 3, 60).bytes, batch(3, 4, 1, 30).bytes];
    [("trimmed", trimmed.concat()), ("deleted", deleted.concat()), ("backwards", backwards.concat())]
}

/// The record of a checkpoint.
pub(crate) fn sample_record() -> Vec<u8> {
    let mut applied = AppliedChunks::default();
    applied.note(ChunkId { incarnation: Epoch::new(3), position: 70 });
    Record { generation: 7, taken_by: Epoch::new(9), applied }.encode().to_vec()
}

/// A row of each kind.
pub(crate) fn sample_rows() -> Vec<(&'static str, Vec<u8>)> {
    let row = |kind: u8, key: &[u8], value: &[u8]| [&[kind, u8::try_from(key.len()).unwrap()], key, value].concat();
    let chunk = ObjectId::Chunk(ChunkId { incarnation: Epoch::new(2), position: 9 });
    let bundle = ObjectId::Bundle { slot: Slot::new(63).unwrap(), epoch: Epoch::new(4), id: 1 << 90 };
    let extent = row_of(&sample_extents()[0].1).unwrap();
    let folded = folded(None, &extent, &sample_extents()[0].1).unwrap();
    let located = folded.extents[0];
    let object = ObjectRow { live_bytes: 5, bytes: 6, created_ms: -7 };
    let known = Known::Lives { row: folded.row, due_ms: 12 };
    let mut applied = AppliedChunks::default();
    applied.note(ChunkId { incarnation: Epoch::new(3), position: 70 });
    vec![
        ("extent", row(b'X', &located.key(STREAM), &located.encode())),
        ("chunk", row(b'O', &object::key(chunk), &object.encode())),
        ("bundle", row(b'O', &object::key(bundle), &object.encode())),
        ("stream", row(b'S', &stream::key(STREAM), &known.encode())),
        ("deleted-stream", row(b'S', &stream::key(STREAM), &Known::Deleted.encode())),
        ("cursor", row(b'D', &cursor::key(STREAM), &cursor::value(SeqNum::new(3)))),
        ("name", row(b'N', b"", &name::value(STREAM))),
        ("count", row(b'C', b"", &count::value(3))),
        ("applied", row(b'M', b"", &applied.encode())),
        ("age", row(b'E', &Queue::Age.stream_key(5, STREAM), b"")),
        ("forget", row(b'T', &Queue::Forget.stream_key(5, STREAM), b"")),
        ("dead", row(b'G', &queue::dead_key(5, bundle), b"")),
    ]
}

#[test]
fn records_that_do_not_follow_each_other_are_not_folded() {
    let [(_, trimmed), _, (_, backwards)] = sample_extents();
    assert!(folded(None, &row_of(&trimmed).unwrap(), &trimmed).is_some());
    assert_eq!(folded(None, &row_of(&backwards).unwrap(), &backwards), None);
}

#[test]
fn an_extent_that_ends_before_it_begins_is_no_row() {
    let located = folded(None, &row_of(&sample_extents()[0].1).unwrap(), &sample_extents()[0].1).unwrap().extents[0];
    let key = located.key(STREAM);
    let backwards = Located { first: located.end, ..located };
    assert!(Located::decode(&key, &located.encode()).is_ok());
    assert!(Located::decode(&key, &backwards.encode()).is_err());
}
