use std::sync::Arc;

use wire::handoff::{HistoryFrom, LoadKey, ToControl, ToShard};
use wire::ids::{LogId, Lsn, SeqNum};

use crate::index::tests::world::{BUCKET, Stream};
use crate::shell::tests::{Star, parcel};
use crate::store::{Fault, MemoryStore, Rule};

const LOG: LogId = LogId::from_bytes([5; 16]);

fn at(lsn: u64) -> Lsn {
    Lsn::new(lsn)
}

#[test]
fn a_chunk_is_told_once_it_is_committed_and_again_once_the_index_has_it() {
    let store = MemoryStore::new();
    let star = Star::start(Arc::new(store.clone())).unwrap();
    store.add(Rule::new(Fault::BeforeApply).under("m/"));
    let mut stream = Stream::new(1, "orders");
    star.hand_over(1, 2, parcel(&[stream.create(), stream.append(1, 10)]));
    star.hears(1, |told| matches!(told, ToShard::Committed { standard } if standard == at(2)).then_some(()));
    let is_applied = |told: ToShard| matches!(told, ToShard::Applied { standard } if standard == at(2)).then_some(());
    assert!(star.told(1).into_iter().find_map(is_applied).is_none());
    store.calm();
    star.hears(1, is_applied);
    star.stop();
}

#[test]
fn shards_are_told_while_the_index_does_not_take_a_chunk() {
    let store = MemoryStore::new();
    let star = Star::start(Arc::new(store.clone())).unwrap();
    store.add(Rule::new(Fault::BeforeApply).under("m/"));
    let mut stream = Stream::new(1, "orders");
    star.hand_over(1, 1, parcel(&[stream.create()]));
    for shard in 0..3 {
        let why = star.hears(shard, |told| if let ToShard::Stall { why } = told { why } else { None });
        assert!(why.starts_with("the index does not take chunk "), "{why}");
    }
    store.calm();
    for shard in 0..3 {
        star.hears(shard, |told| matches!(told, ToShard::Stall { why: None }).then_some(()));
    }
    star.hears(1, |told| matches!(told, ToShard::Applied { .. }).then_some(()));
    star.stop();
}

#[test]
fn an_index_that_does_not_answer_is_told_as_one_that_fails() {
    let store = MemoryStore::new();
    let star = Star::start(Arc::new(store.clone())).unwrap();
    store.hold();
    let mut stream = Stream::new(1, "orders");
    star.hand_over(1, 1, parcel(&[stream.create()]));
    // What is asked waits, and is let through one by one: up to the chunk, and no further.
    while star.told(1).into_iter().all(|told| !matches!(told, ToShard::Committed { .. })) {
        if store.waiting() > 0 {
            store.step();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let why = star.hears(1, |told| if let ToShard::Stall { why } = told { why } else { None });
    assert!(why.contains("no answer"), "{why}");
    store.release();
    star.hears(1, |told| matches!(told, ToShard::Applied { .. }).then_some(()));
    star.stop();
}

#[test]
fn what_is_settled_waits_for_others_until_it_is_asked_for() {
    let star = Star::start(Arc::new(MemoryStore::new())).unwrap();
    let mut stream = Stream::new(1, "orders");
    star.settle(2, LOG, (1, 3), parcel(&[stream.create(), stream.append(1, 10)]));
    star.sender.send(ToControl::Flush).unwrap();
    star.hears(2, |told| matches!(told, ToShard::Settled { log: LOG, upto } if upto == at(2)).then_some(()));
    star.stop();
}

#[test]
fn a_shard_finds_in_the_index_what_it_has_not_in_memory() {
    let mut star = Star::start(Arc::new(MemoryStore::new())).unwrap();
    let mut stream = Stream::new(1, "orders");
    let written = [stream.create(), stream.append(3, 10), stream.append(2, 10)];
    star.hand_over(0, 3, parcel(&written));
    star.hears(0, |told| matches!(told, ToShard::Applied { .. }).then_some(()));
    let (slot, stream_id) = (stream.slot(), stream.id());

    let keys = [
        LoadKey::Name { bucket: BUCKET, key: stream.key.clone() },
        LoadKey::Stream { slot, stream_id },
        LoadKey::Name { bucket: BUCKET, key: wire::names::Key::new("none").unwrap() },
    ];
    for (key, is_there) in keys.into_iter().zip([true, true, false]) {
        let reply_to = star.ticket();
        star.sender.send(ToControl::Load { reply_to, key }).unwrap();
        let row = star.hears(0, |told| match told {
            ToShard::Loaded { ticket, result } if ticket == reply_to.ticket => Some(result.unwrap()),
            _ => None,
        });
        let found = row.map(|row| (row.stream_id, row.tail.seq_num));
        assert_eq!(found, is_there.then_some((stream_id, SeqNum::new(5))));
    }

    let reply_to = star.ticket();
    star.sender.send(ToControl::ListIndex { reply_to, bucket: BUCKET, after: String::new(), limit: 10 }).unwrap();
    let rows = star.hears(0, |told| match told {
        ToShard::Listed { ticket, result } if ticket == reply_to.ticket => Some(result.unwrap()),
        _ => None,
    });
    assert_eq!(rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["orders"]);

    let reply_to = star.ticket();
    let from = HistoryFrom::SeqNum(SeqNum::new(3));
    star.sender.send(ToControl::ReadHistory { reply_to, slot, stream_id, from, bytes_max: 1 << 20 }).unwrap();
    let span = star.hears(0, |told| match told {
        ToShard::History { ticket, result } if ticket == reply_to.ticket => Some(result.unwrap()),
        _ => None,
    });
    assert_eq!(span.end, SeqNum::new(5));
    assert!(span.bytes.ends_with(&written[2].bytes));
    star.stop();
}

#[test]
fn what_was_handed_over_before_a_stop_is_in_the_store_after_it() {
    let store = MemoryStore::new();
    let star = Star::start(Arc::new(store.clone())).unwrap();
    let mut stream = Stream::new(1, "orders");
    star.hand_over(0, 1, parcel(&[stream.create()]));
    for batch in 0..200 {
        star.settle(0, LOG, (batch + 1, batch + 2), parcel(&[stream.append(1, 1_000)]));
    }
    star.stop();
    let mut star = Star::start(Arc::new(store)).unwrap();
    assert_eq!(star.settled.get(&LOG), Some(&at(200)));
    let reply_to = star.ticket();
    let key = LoadKey::Stream { slot: stream.slot(), stream_id: stream.id() };
    star.sender.send(ToControl::Load { reply_to, key }).unwrap();
    let row = star.hears(0, |told| match told {
        ToShard::Loaded { result, .. } => result.unwrap(),
        _ => None,
    });
    assert_eq!(row.tail.seq_num, SeqNum::new(200));
    star.stop();
}
