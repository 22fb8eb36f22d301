//! What is known of streams and their names.

use std::sync::Arc;

use wire::entry::Verb;
use wire::ids::Rev;
use wire::names::{FencingToken, Key};

use super::check;
use super::world::{BUCKET, Stream, World, block_on};
use crate::index::{IndexOptions, Reclaimed};
use crate::store::{MemoryStore, Metered, StoreOp};

#[test]
fn a_stream_is_found_by_its_name_and_id_and_counted() {
    check(async |store| {
        let mut world = World::new(store).await;
        let (mut one, mut two) = (Stream::new(1, "one"), Stream::new(2, "two"));
        world.commit(vec![one.create(), two.create(), one.append(3, 5)]).await.unwrap();
        let row = world.index.row_by_name(BUCKET, &one.key).await.unwrap().unwrap();
        assert_eq!((row.stream_id, row.tail.seq_num.get(), row.bytes), (one.id(), 3, 15));
        assert_eq!(world.row(&one).await, Some(row));
        assert_eq!(world.index.count(BUCKET).await.unwrap(), 2);
        assert_eq!(world.index.row_by_name(BUCKET, &Key::new("none").unwrap()).await.unwrap(), None);
        world.commit(vec![two.delete()]).await.unwrap();
        assert_eq!(world.index.row_by_name(BUCKET, &two.key).await.unwrap(), None);
        assert_eq!(world.row(&two).await, None);
        assert_eq!(world.index.count(BUCKET).await.unwrap(), 1);
        assert_eq!(world.made().count_ones(), 2);
    });
}

#[test]
fn a_list_is_in_order_over_all_slots_and_goes_on_where_it_stopped() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut keys: Vec<String> = (0..40).map(|number| format!("k/{}", number * 37 % 40)).collect();
        let mut entries = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            let mut stream = Stream::new(u8::try_from(number).unwrap(), key);
            entries.push(stream.create());
            world.keep(stream);
        }
        world.commit(entries).await.unwrap();
        assert!(world.made().count_ones() > 10);
        let gone = world.kept(5).delete();
        let gone_key = keys.remove(5);
        world.commit(vec![gone]).await.unwrap();
        keys.sort();
        for limit in [1, 7, 100] {
            assert_eq!(world.listed(limit).await, keys);
        }
        // From a key that is not there on, and from one of which others are longer.
        let after_gone = world.index.list(BUCKET, &gone_key, 1).await.unwrap();
        assert!(after_gone[0].key.as_str() > gone_key.as_str());
        assert_eq!(world.index.list(BUCKET, "k/1", 1).await.unwrap()[0].key.as_str(), "k/10");
        let other = wire::ids::BucketId::from_bytes([1; 16]);
        assert_eq!(world.index.list(other, "", 10).await.unwrap(), []);
    });
}

#[test]
fn a_name_is_taken_again_after_a_delete() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let (mut old, mut new) = (Stream::new(1, "a"), Stream::new(2, "a"));
        world.commit(vec![old.create(), old.append(2, 9)]).await.unwrap();
        let late = old.append(1, 9);
        world.commit(vec![late.clone(), old.delete(), new.create(), new.append(1, 1)]).await.unwrap();
        assert_eq!(world.index.row_by_name(BUCKET, &new.key).await.unwrap().unwrap().stream_id, new.id());
        assert_eq!(world.extents(&old, 0).await, []);
        // What comes of the old one once more is ignored.
        world.commit(vec![late]).await.unwrap();
        assert_eq!(world.row(&old).await, None);
        assert_eq!(world.index.count(BUCKET).await.unwrap(), 1);
    });
}

#[test]
fn a_stream_made_again_after_the_clock_went_back_is_found_by_its_name() {
    const HOUR_MS: i64 = 3_600_000;
    // Its id comes before the older one's, or after it; in one chunk, or in two.
    for (new_number, is_one_chunk) in [(1, true), (200, true), (1, false), (200, false)] {
        block_on(async {
            let mut world = World::new(Arc::new(MemoryStore::new())).await;
            let (mut old, mut new) = (Stream::new(100, "a"), Stream::new(new_number, "a"));
            (old.created_at_ms, new.created_at_ms) = (2 * HOUR_MS, HOUR_MS);
            world.commit(vec![old.create(), old.append(1, 1)]).await.unwrap();
            let (delete, create) = (old.delete(), new.create());
            let chunks = if is_one_chunk { vec![vec![delete, create]] } else { vec![vec![delete], vec![create]] };
            for entries in chunks {
                world.commit(entries).await.unwrap();
            }
            let found = world.index.row_by_name(BUCKET, &new.key).await.unwrap();
            assert_eq!(found.map(|row| row.stream_id), Some(new.id()));
            assert_eq!(world.listed(9).await, ["a"]);
            assert_eq!(world.index.count(BUCKET).await.unwrap(), 1);
        });
    }
}

#[test]
fn a_stream_that_no_longer_has_its_name_leaves_it_when_it_is_deleted() {
    // Its id comes before that of the stream that has the name, or after it.
    for old_number in [1, 200] {
        block_on(async {
            let mut world = World::new(Arc::new(MemoryStore::new())).await;
            let (mut old, mut new) = (Stream::new(old_number, "a"), Stream::new(100, "a"));
            world.commit(vec![old.create()]).await.unwrap();
            world.commit(vec![new.create()]).await.unwrap();
            let mut brief = Stream::new(old_number + 1, "a");
            world.commit(vec![old.delete()]).await.unwrap();
            world.commit(vec![brief.create(), brief.append(1, 1), brief.delete()]).await.unwrap();
            let found = world.index.row_by_name(BUCKET, &new.key).await.unwrap();
            assert_eq!(found.map(|row| row.stream_id), Some(new.id()));
            world.commit(vec![new.delete()]).await.unwrap();
            assert_eq!(world.index.row_by_name(BUCKET, &new.key).await.unwrap(), None);
            assert_eq!(world.index.count(BUCKET).await.unwrap(), 0);
        });
    }
}

#[test]
fn a_deleted_stream_is_forgotten_when_its_time_has_come() {
    block_on(async {
        let options = IndexOptions { forget_after_ms: 10, ..IndexOptions::default() };
        let mut world = World::open(Arc::new(MemoryStore::new()), 0, options).await;
        let mut stream = Stream::new(1, "a");
        world.commit(vec![stream.create(), stream.append(1, 1)]).await.unwrap();
        world.commit(vec![stream.delete()]).await.unwrap();
        let step = |ms: i64| world.index.reclaim_step(1_000_000 + ms);
        assert_eq!(step(9).await.unwrap(), Reclaimed::default());
        assert_eq!(step(10).await.unwrap(), Reclaimed { extents: 0, marks: 1 });
        assert_eq!(step(99).await.unwrap(), Reclaimed::default());
        // The count, and the note of what is applied.
        assert_eq!(world.dump().await.len(), 2);
    });
}

#[test]
fn streams_that_keep_records_too_long_come_due() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut stream = Stream::new(1, "a");
        stream.config.retention.max_age_ms = 10_000;
        world.commit(vec![stream.create()]).await.unwrap();
        assert_eq!(world.index.due_by_age(i64::MAX / 2, 9).await.unwrap(), []);
        // Extents of 1 s, 2 s and 3 s.
        for _ in 0..3 {
            world.commit(vec![stream.append(10, 1)]).await.unwrap();
        }
        assert_eq!(world.index.due_by_age(10_999, 9).await.unwrap(), []);
        let due = world.index.due_by_age(12_500, 9).await.unwrap();
        assert_eq!((due.len(), due[0].row.stream_id, due[0].to.get(), due[0].cutoff_ms), (1, stream.id(), 20, 2501));
        assert_eq!(world.index.due_by_age(12_500, 9).await.unwrap(), [], "not again at once");
        world.commit(vec![stream.trim(20)]).await.unwrap();
        let due = world.index.due_by_age(72_500, 9).await.unwrap();
        assert_eq!((due.len(), due[0].to.get()), (1, 30));
        // With nothing left it is not looked at, and records that come later put it in the queue again.
        world.commit(vec![stream.trim(30)]).await.unwrap();
        assert_eq!(world.index.due_by_age(i64::MAX / 2, 9).await.unwrap(), []);
        assert!(!world.dump().await.iter().any(|(_, key, _)| key[0] == b'E'));
        world.commit(vec![stream.append(1, 1)]).await.unwrap();
        assert_eq!(world.index.due_by_age(14_000, 9).await.unwrap().len(), 1);
        stream.config.retention.max_age_ms = 0;
        world.commit(vec![stream.reconfigure()]).await.unwrap();
        assert_eq!(world.index.due_by_age(i64::MAX / 2, 9).await.unwrap(), []);
        stream.config.retention.max_age_ms = 1;
        world.commit(vec![stream.reconfigure()]).await.unwrap();
        assert_eq!(world.index.due_by_age(4_001, 9).await.unwrap().len(), 1);
        world.commit(vec![stream.delete()]).await.unwrap();
        assert!(!world.dump().await.iter().any(|(_, key, _)| key[0] == b'E'));
    });
}

#[test]
fn age_is_judged_by_arrival_where_it_is_said_so_and_empty_streams_come_due() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut stream = Stream::new(1, "a");
        stream.config.retention.max_age_ms = 10_000;
        stream.config.retention.by_arrival = true;
        stream.config.delete_on_empty_ms = 500_000;
        // Stamps of 1 s to 3 s.
        stream.arrives_after_ms = 1_000_000;
        world.commit(vec![stream.create()]).await.unwrap();
        for _ in 0..3 {
            world.commit(vec![stream.append(10, 1)]).await.unwrap();
        }
        assert_eq!(world.index.due_by_age(900_000, 9).await.unwrap(), [], "whatever the stamps say");
        let due = world.index.due_by_age(1_012_500, 9).await.unwrap();
        assert_eq!((due.len(), due[0].to.get(), due[0].is_empty), (1, 20, false));
        world.commit(vec![stream.trim(30)]).await.unwrap();
        assert_eq!(world.index.due_by_age(1_502_999, 9).await.unwrap(), []);
        let due = world.index.due_by_age(1_503_000, 9).await.unwrap();
        assert_eq!((due.len(), due[0].is_empty, due[0].row.rev), (1, true, Rev::new(5)));
        let mut idle = Stream::new(2, "never written");
        idle.config.delete_on_empty_ms = 1_000;
        world.commit(vec![idle.create()]).await.unwrap();
        let due = world.index.due_by_age(1_503_000, 9).await.unwrap();
        assert_eq!((due.len(), due[0].row.stream_id), (1, idle.id()));
        idle.config.delete_on_empty_ms = 0;
        world.commit(vec![idle.reconfigure()]).await.unwrap();
        assert_eq!(world.index.due_by_age(1_900_000, 9).await.unwrap().len(), 1, "only the other one");
    });
}

#[test]
fn a_stream_is_empty_since_its_last_record_was_trimmed_or_its_option_was_set() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let (mut trimmed, mut set) = (Stream::new(1, "a"), Stream::new(2, "a/b"));
        trimmed.config.delete_on_empty_ms = 10_000;
        // Records of 1 s, and a stream of which nothing is asked.
        world.commit(vec![trimmed.create(), trimmed.append(10, 1), set.create()]).await.unwrap();
        world.commit_at(vec![trimmed.trim(10)], 2_000_000).await.unwrap();
        set.config.delete_on_empty_ms = 10_000;
        world.commit_at(vec![set.reconfigure()], 3_000_000).await.unwrap();
        // What changes nothing of that is no reason to stay.
        let fence = trimmed.verb(&Verb::Fence { token: FencingToken::new("held").unwrap() });
        world.commit_at(vec![fence], 4_000_000).await.unwrap();
        let prior = [world.ended()];
        let world = world.crash().await;
        world.index.replay(&prior).await.unwrap();
        assert_eq!(world.index.due_by_age(2_009_999, 9).await.unwrap(), []);
        let due = world.index.due_by_age(2_010_000, 9).await.unwrap();
        assert_eq!((due.len(), due[0].is_empty, due[0].row.stream_id), (1, true, trimmed.id()));
        assert_eq!(world.index.due_by_age(3_009_999, 9).await.unwrap().len(), 1, "only the first once more");
        let due = world.index.due_by_age(3_010_000, 9).await.unwrap();
        assert_eq!((due.len(), due[0].is_empty, due[0].row.stream_id), (1, true, set.id()));
    });
}

#[test]
fn records_of_a_stream_that_was_empty_come_due_by_their_age() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut stream = Stream::new(1, "a");
        stream.config.retention.max_age_ms = 10_000;
        stream.config.delete_on_empty_ms = 1_000_000_000;
        world.commit(vec![stream.create()]).await.unwrap();
        world.commit(vec![stream.append(10, 1)]).await.unwrap();
        assert_eq!(world.index.due_by_age(10_999, 9).await.unwrap(), []);
        let due = world.index.due_by_age(11_000, 9).await.unwrap();
        assert_eq!((due.len(), due[0].is_empty), (1, false));
    });
}

#[test]
fn what_is_trimmed_and_not_dropped_yet_costs_no_record_that_may_be_kept() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut stream = Stream::new(1, "a");
        stream.config.retention.max_bytes = 500;
        world.commit(vec![stream.create()]).await.unwrap();
        let mut chunks = Vec::new();
        for _ in 0..4200 {
            let entry = stream.append(1, 10);
            chunks.push(world.build(&[entry], 1_000_000).0);
            world.position += 1;
        }
        world.index.apply(&chunks).await.unwrap();
        world.commit(vec![stream.trim(4150)]).await.unwrap();
        assert_eq!(world.row(&stream).await.unwrap().bytes, 1040, "of 54 extents below the trim point and 50 above");
        assert_eq!(world.index.take_over_bytes().await.unwrap(), []);
        world.commit(vec![stream.append(1, 10)]).await.unwrap();
        let over = world.index.take_over_bytes().await.unwrap();
        assert_eq!((over[0].to.get(), over[0].spare_bytes), (4151, 0));
        assert_eq!(world.index.reclaim_step(0).await.unwrap().extents, 54);
        world.index.keep_over_bytes(stream.slot(), stream.id()).await.unwrap();
        assert_eq!(world.index.take_over_bytes().await.unwrap()[0].to.get(), 4151, "as before");
    });
}

#[test]
fn streams_that_keep_too_many_bytes_are_given_with_where_to_trim() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut stream = Stream::new(1, "a");
        stream.config.retention.max_bytes = 250;
        world.commit(vec![stream.create(), stream.append(10, 10), stream.append(10, 10)]).await.unwrap();
        assert_eq!(world.index.take_over_bytes().await.unwrap(), []);
        world.commit(vec![stream.append(10, 10)]).await.unwrap();
        let over = world.index.take_over_bytes().await.unwrap();
        assert_eq!((over.len(), over[0].row.stream_id), (1, stream.id()));
        assert_eq!((over[0].to.get(), over[0].spare_bytes), (0, 50), "of the first of two batches");
        assert_eq!(world.index.take_over_bytes().await.unwrap(), []);
        world.commit(vec![stream.trim(10)]).await.unwrap();
        let over = world.index.take_over_bytes().await.unwrap();
        assert_eq!((over[0].to.get(), over[0].spare_bytes), (0, 50), "the extent is there as a whole");
        world.index.keep_over_bytes(stream.slot(), stream.id()).await.unwrap();
        assert_eq!(world.index.take_over_bytes().await.unwrap(), over);
        world.commit(vec![stream.append(20, 10)]).await.unwrap();
        let over = world.index.take_over_bytes().await.unwrap();
        assert_eq!((over[0].to.get(), over[0].spare_bytes), (30, 0), "batches go as a whole");
    });
}

#[test]
fn a_creation_that_comes_again_or_late_is_told_from_a_new_one() {
    check(async |store| {
        let mut world = World::new(store).await;
        let (mut old, mut new) = (Stream::new(3, "old"), Stream::new(5, "new"));
        let created = [new.create(), new.append(1, 1)];
        world.commit(created.to_vec()).await.unwrap();
        let late = [old.create(), old.append(2, 1)];
        world.commit(late.to_vec()).await.unwrap();
        for crashes in [false, true] {
            if crashes {
                world.index.checkpoint().await.unwrap();
                world = world.crash().await;
                world.next_incarnation();
            }
            world.commit([&created[..], &late[..]].concat()).await.unwrap();
            assert_eq!(world.index.count(BUCKET).await.unwrap(), 2, "{crashes}");
            for (stream, records) in [(&old, 2), (&new, 1)] {
                let row = world.row(stream).await.unwrap();
                assert_eq!((row.tail.seq_num.get(), row.bytes), (records, records), "{crashes}");
                assert_eq!(world.extents(stream, 0).await.len(), 1);
            }
        }
        world.commit(vec![new.delete()]).await.unwrap();
        world.commit(created.to_vec()).await.unwrap();
        assert_eq!(world.row(&new).await, None, "it is deleted");
        assert_eq!(world.index.count(BUCKET).await.unwrap(), 1);
    });
}

#[test]
fn a_stream_that_nobody_used_for_long_is_found_by_few_reads_of_the_store() {
    const STREAMS: usize = 1_500;
    block_on(async {
        let (store, meter) = Metered::new(Arc::new(MemoryStore::new()));
        let options = IndexOptions { cache_bytes: 1 << 20, ..IndexOptions::default() };
        let mut world = World::open(store, 0, options).await;
        let numbered = (0..).map(|number| Stream::numbered(number, &format!("s{number}")));
        let mut streams: Vec<_> = numbered.filter(|stream| stream.slot().get() == 0).take(STREAMS).collect();
        // Three tables, each with streams that the others don't have: too few to be joined.
        for some in streams.chunks_mut(STREAMS / 3) {
            let entries = some.iter_mut().flat_map(|stream| [stream.create(), stream.append(1, 50)]).collect();
            world.commit(entries).await.unwrap();
            world.index.checkpoint().await.unwrap();
        }
        world = world.crash().await;
        assert!(world.row(&streams[0]).await.is_some());
        world.index.upkeep().await.unwrap();
        let gets =
            || meter.snapshot().rows.iter().filter(|row| row.op == StoreOp::Get).map(|row| row.calls).sum::<u64>();
        let asked: Vec<_> = streams.iter().step_by(97).collect();
        let before = gets();
        for stream in &asked {
            let at_first = gets();
            let row = world.index.row_by_name(BUCKET, &stream.key).await.unwrap().unwrap();
            assert_eq!(row.stream_id, stream.id());
            assert_eq!(world.extents(stream, 0).await.len(), 1);
            // A block each, and now and then one of a table whose filter is wrong.
            assert!(gets() - at_first <= 5, "{}: {} gets", stream.key.as_str(), gets() - at_first);
        }
        let (taken, streams) = (gets() - before, asked.len() as u64);
        assert!(2 * taken <= 7 * streams, "{taken} gets for {streams} streams");
    });
}
