//! What does a stream refuse of its head log?

use wire::batch::BatchBuilder;
use wire::entry::{Numbered, Stamping, batch_entry_bytes, encode_batch};

use super::*;

const STREAM: StreamId = StreamId::from_bytes([7; 16]);

fn place(rev: u64) -> Place {
    Place { stream_id: STREAM, slot: Slot::default(), slot_epoch: Epoch::new(1), rev: Rev::new(rev) }
}

/// A batch of one record.
fn batch(rev: u64, first: u64) -> Vec<u8> {
    let (mut builder, mut bytes) = (BatchBuilder::new(), Vec::new());
    builder.push::<&str, &str>(None, &[], b"body").unwrap();
    let batch_crc = builder.finish(&mut bytes).unwrap();
    let head = BatchHead {
        place: place(rev),
        first: SeqNum::new(first),
        records: 1,
        stamping: Stamping { arrival_ms: 5, previous_ms: 0, capped: true, client_stamps: false },
        last_ms: 5,
        numbered: Numbered::default(),
        session_epoch: 0,
        batch_crc,
    };
    let mut entry = vec![0; batch_entry_bytes(bytes.len())];
    encode_batch(&head, &bytes, &mut entry);
    entry
}

#[test]
fn records_that_do_not_follow_those_before_are_refused_and_leave_the_stream_as_it_was() {
    let (mut streams, mut offset) = (Streams::new(), 4096);
    let mut replay = |bytes: &[u8]| {
        let pos = EntryPos { segment: SegmentId::new(1), offset, bytes: u32::try_from(bytes.len()).unwrap() };
        offset += 4096;
        streams.replay(0, pos, bytes)
    };
    let key = Key::new("orders/eu").unwrap();
    let (bucket, config) = (BucketId::from_bytes([9; 16]), StreamConfig::default());
    let gap = Verb::Gap { from: SeqNum::new(1), to: SeqNum::new(9) };
    assert_eq!(replay(&Verb::Create { bucket, key, config, created_at_ms: 1 }.encode(place(1))), Ok(()));
    assert_eq!(replay(&batch(2, 0)), Ok(()));
    let wrong = |rev, first, tail| {
        let (rev, first, tail) = (Rev::new(rev), SeqNum::new(first), SeqNum::new(tail));
        Err(FoldError::Records { stream_id: STREAM, rev, first, tail })
    };
    assert_eq!((replay(&batch(3, 0)), replay(&batch(3, 2))), (wrong(3, 0, 1), wrong(3, 2, 1)));
    assert_eq!(replay(&gap.encode(place(3))), Ok(()), "no entry was taken before");
    assert_eq!((replay(&batch(4, 1)), replay(&batch(4, 9))), (wrong(4, 1, 9), Ok(())));
}
