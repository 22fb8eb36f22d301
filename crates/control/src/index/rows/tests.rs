use std::fmt::Debug;

use wire::config::StreamConfig;
use wire::entry::{Place, Verb};
use wire::ids::{BucketId, Epoch, Rev, SeqNum, StreamId};
use wire::names::Key;
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use super::applied::AppliedChunks;
use super::extent::{self, Located};
use super::object::{self, ObjectRow};
use super::queue::{self, Queue};
use super::stream::Known;
use super::{RowError, count, cursor, name};
use crate::channel::ChunkId;
use crate::index::object_id::ObjectId;

const STREAM: StreamId = StreamId::from_bytes([7; 16]);
const BUCKET: BucketId = BucketId::from_bytes([9; 16]);

fn chunk(incarnation: u64, position: u64) -> ObjectId {
    ObjectId::Chunk(ChunkId { incarnation: Epoch::new(incarnation), position })
}

fn bundle() -> ObjectId {
    ObjectId::Bundle { slot: Slot::new(63).unwrap(), epoch: Epoch::new(4), id: u128::MAX - 1 }
}

fn located(object: ObjectId, first: u64, end: u64) -> Located {
    Located {
        object,
        offset: 96,
        bytes: 1000,
        content_bytes: 900,
        entries: 3,
        crc: 0xdead_beef,
        first: SeqNum::new(first),
        end: SeqNum::new(end),
        first_rev: Rev::new(2),
        last_rev: Rev::new(4),
        slot_epoch: Epoch::new(3),
        first_ms: -5,
        last_ms: i64::MAX,
        arrival_ms: 17,
    }
}

/// A value is read as it was written, and neither shortened nor with a byte more.
fn check<T: PartialEq + Debug>(row: &T, value: &[u8], decode: impl Fn(&[u8]) -> Result<T, RowError>) {
    assert_eq!(decode(value).as_ref(), Ok(row));
    for bytes in 0..value.len() {
        assert!(decode(&value[..bytes]).is_err(), "{bytes} bytes of {row:?}");
    }
    assert!(decode(&[value, &[0]].concat()).is_err(), "{row:?}");
}

#[test]
fn each_row_is_read_as_it_was_written() {
    check(&STREAM, &name::value(STREAM), name::decode);
    check(&12, &count::value(12), count::decode);
    let key = cursor::key(STREAM);
    check(&(STREAM, SeqNum::new(40)), &cursor::value(SeqNum::new(40)), |value| cursor::decode(&key, value));
    let row = ObjectRow { live_bytes: 5, bytes: 9, created_ms: -1 };
    check(&row, &row.encode(), ObjectRow::decode);
    for object in [chunk(3, 70), bundle()] {
        let extent = located(object, 10, 20);
        check(&extent, &extent.encode(), |value| Located::decode(&extent.key(STREAM), value));
        check(&object, &object::key(object), object::decode_key);
        check(&(5, object), &queue::dead_key(5, object), queue::decode_dead);
    }
    for queue in [Queue::Age, Queue::Forget] {
        check(&(77, STREAM), &queue.stream_key(77, STREAM), |key| queue.decode_stream(key));
    }
}

#[test]
fn a_stream_lives_or_is_deleted() {
    let slot = Slot::of(BUCKET, &Key::new("a").unwrap());
    let place = Place { stream_id: STREAM, slot, slot_epoch: Epoch::new(1), rev: Rev::new(1) };
    let (key, config) = (Key::new("a").unwrap(), StreamConfig::default());
    let create = Verb::Create { bucket: BUCKET, key, config, created_at_ms: 5 };
    let row = Box::new(StreamRow::created(place, &create).unwrap());
    for known in [Known::Lives { row, due_ms: 1234 }, Known::Deleted] {
        check(&known, &known.encode(), Known::decode);
    }
    let unknown = RowError::Value { what: "a stream's row", value: 3 };
    assert_eq!(Known::decode(&[3; 9]), Err(unknown));
}

#[test]
fn keys_sort_as_what_they_name() {
    let extents = [located(chunk(1, 0), 0, 1), located(chunk(1, 0), 1, 255), located(chunk(1, 0), 255, 257)];
    let keys: Vec<_> = extents.iter().map(|extent| extent.key(STREAM)).collect();
    assert!(keys.is_sorted());
    // From a record on: the extent that holds it, and those after.
    assert_eq!(keys.iter().filter(|key| extent::from(STREAM, SeqNum::new(1)).contains(*key)).count(), 2);
    assert_eq!(keys.iter().filter(|key| extent::from(STREAM, SeqNum::new(254)).contains(*key)).count(), 2);
    assert_eq!(keys.iter().filter(|key| extent::from(STREAM, SeqNum::new(255)).contains(*key)).count(), 1);
    // Wholly below: those that end there or before.
    assert_eq!(keys.iter().filter(|key| extent::below(STREAM, SeqNum::new(255)).contains(*key)).count(), 2);
    assert_eq!(keys.iter().filter(|key| extent::below(STREAM, SeqNum::new(254)).contains(*key)).count(), 1);
    assert_eq!(keys.iter().filter(|key| extent::below(STREAM, SeqNum::new(u64::MAX)).contains(*key)).count(), 3);

    let objects = [chunk(1, 255), chunk(1, 256), chunk(2, 0), bundle()].map(object::key);
    assert!(objects.is_sorted());
    let of_one = object::chunks_of(Epoch::new(1));
    assert_eq!(objects.map(|key| of_one.contains(&key)), [true, true, false, false]);

    let times = [-8, 0, 255, 256].map(|ms| Queue::Age.stream_key(ms, STREAM));
    assert!(times.is_sorted());
    assert_eq!(times.map(|key| Queue::Age.due(255).contains(&key)), [true, true, true, false]);
}

#[test]
fn the_row_of_applied_chunks_keeps_the_newest_channels() {
    let at = |incarnation, position| ChunkId { incarnation: Epoch::new(incarnation), position };
    let mut applied = AppliedChunks::default();
    assert!(!applied.covers(at(1, 0)));
    for incarnation in 1..=70 {
        applied.note(at(incarnation, 5));
        applied.note(at(incarnation, 4));
    }
    assert!(applied.covers(at(70, 5)) && !applied.covers(at(70, 6)));
    // What is older than all that is remembered was applied; what is newer was not.
    assert!(applied.covers(at(1, 900)) && !applied.covers(at(71, 0)));
    assert_eq!(AppliedChunks::decode(&applied.encode()), Ok(applied.clone()));
    assert!(AppliedChunks::decode(&applied.encode()[1..]).is_err());
}
