use proptest::prelude::*;

use super::*;
use crate::chunk::ObjectKind;
use crate::config::StreamConfig;
use crate::entry::{Place, Verb};
use crate::ids::{BucketId, ClusterId, Rev, StarId};
use crate::names::Key;
use crate::slot::Slot;

fn row(number: u8) -> StreamRow {
    let verb = Verb::Create {
        bucket: BucketId::from_bytes([1; 16]),
        key: Key::new(&format!("orders/{number}")).unwrap(),
        config: StreamConfig::default(),
        created_at_ms: 77,
    };
    let place = Place {
        stream_id: StreamId::from_bytes([number; 16]),
        slot: Slot::default(),
        slot_epoch: Epoch::new(4),
        rev: Rev::new(1),
    };
    StreamRow::created(place, &verb).unwrap()
}

fn sample(base: Option<BasePart>, previous: Option<(Epoch, u64)>) -> Snapshot {
    let lives = |number, has_name| SnapshotStream::Lives { row: Box::new(row(number)), has_name };
    Snapshot {
        header: ObjectHeader {
            kind: ObjectKind::Snapshot,
            cluster: ClusterId::from_bytes(*b"0123456789abcdef"),
            star: StarId::from_bytes(*b"fedcba9876543210"),
            incarnation: Epoch::new(7),
            position: 3,
            slot: Slot::new(5).unwrap(),
            created_ms: 1_700_000_000_000,
        },
        base,
        previous,
        bundles: vec![(Epoch::new(2), 1 << 100), (Epoch::new(7), 9)],
        applied: vec![(Epoch::new(6), 12), (Epoch::new(7), 400)],
        streams: vec![lives(1, true), SnapshotStream::Deleted(StreamId::from_bytes([2; 16])), lives(3, false)],
    }
}

pub(crate) fn samples() -> [Snapshot; 3] {
    let part = |number, is_last| Some(BasePart { number, is_last });
    let empty =
        Snapshot { bundles: Vec::new(), applied: Vec::new(), streams: Vec::new(), ..sample(part(0, true), None) };
    [sample(None, Some((Epoch::new(6), 41))), sample(part(2, false), Some((Epoch::new(7), 2))), empty]
}

#[test]
fn a_snapshot_is_read_as_it_was_written() {
    for snapshot in samples() {
        assert_eq!(Snapshot::decode(&snapshot.encode()), Ok(snapshot));
    }
}

#[test]
fn a_flipped_bit_and_a_missing_end_are_found() {
    let bytes = sample(None, None).encode();
    for bit in 0..bytes.len() * 8 {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(Snapshot::decode(&wrong).is_err(), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(Snapshot::decode(&bytes[..end]).is_err(), "{end} bytes");
    }
}

#[test]
fn what_no_snapshot_says_is_refused_though_its_sums_hold() {
    let [delta, part, _] = samples();
    let with = |snapshot: &Snapshot, at: usize, byte: u8| {
        let mut bytes = snapshot.encode();
        bytes[at] = byte;
        let end = bytes.len() - 8;
        let sum = crc32c(&bytes[HEADER_BYTES..end]);
        put_u32(&mut bytes, end, sum);
        Snapshot::decode(&bytes)
    };
    let unknown = |what| Err(SnapshotError::Object(ObjectError::Unknown { what }));
    // The end of a base that is none, a flag of a later build, the part of a delta, and an epoch of no snapshot.
    for (snapshot, at, byte) in [(&delta, 96, 2), (&part, 96, 5), (&delta, 100, 1)] {
        assert_eq!(with(snapshot, at, byte), unknown("snapshot"), "byte {at}");
    }
    assert_eq!(with(&sample(None, None), 112, 1), unknown("snapshot"));
    let first_stream_at = HEADER_BYTES + HEAD_BYTES + 2 * BUNDLE_BYTES + 2 * CHANNEL_BYTES;
    assert_eq!(with(&delta, first_stream_at + 18, 1), unknown("stream"));
}

#[test]
fn the_bytes_of_snapshots_are_golden() {
    let sums = samples().map(|snapshot| {
        let bytes = snapshot.encode();
        (bytes.len(), crc32c(&bytes[..bytes.len() - 8]))
    });
    assert_eq!(sums, GOLDEN, "a layout changed: it needs a new format");
}

const GOLDEN: [(usize, u32); 3] = [(624, 2097718884), (624, 4260175383), (144, 3537945783)];

proptest! {
    #[test]
    fn whatever_its_sums_say_a_snapshot_is_judged(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = sample(None, None).encode();
        let end = bytes.len();
        for (at, value) in edits {
            let inside = &mut bytes[HEADER_BYTES..end - 8];
            let at = at.index(inside.len());
            inside[at] = value;
        }
        let sum = crc32c(&bytes[HEADER_BYTES..end - 8]);
        put_u32(&mut bytes, end - 8, sum);
        let _ = Snapshot::decode(&bytes);
    }
}
