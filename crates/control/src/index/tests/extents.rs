//! Where records lie, and what becomes of that.

use std::sync::Arc;

use wire::ids::{Epoch, SeqNum};

use super::check;
use super::world::{Stream, World, block_on};
use crate::index::{Enough, IndexError, IndexOptions, Located, Move, Moved, Moves, ObjectId};
use crate::store::MemoryStore;

#[test]
fn records_are_found_by_number_and_by_time() {
    check(async |store| {
        let mut world = World::new(store).await;
        let mut stream = Stream::new(1, "a");
        let mut chunks = vec![world.commit(vec![stream.create()]).await.unwrap()];
        for _ in 0..20 {
            // Stamps of each: one and two seconds after the one before.
            let entries = vec![stream.append(5, 20), stream.append(5, 20)];
            chunks.push(world.commit(entries).await.unwrap());
        }
        let all = world.extents(&stream, 0).await;
        assert_eq!(all.len(), 20);
        for (extent, chunk) in all.iter().zip(&chunks[1..]) {
            assert_eq!(extent.object, ObjectId::Chunk(chunk.0.at));
            assert_eq!(extent.crc, wire::crc::crc32c(chunk.slice(extent)));
            assert_eq!((extent.end.since(extent.first), extent.content_bytes, extent.entries), (10, 200, 2));
        }
        assert_eq!(world.extents(&stream, 35).await, all[3..]);
        assert_eq!(world.extents(&stream, 199).await, all[19..]);
        assert_eq!(world.extents(&stream, 200).await, []);
        let (slot, id) = (stream.slot(), stream.id());
        assert_eq!(world.index.extents_from(slot, id, SeqNum::new(30), Enough::extents(2)).await.unwrap(), all[3..5]);
        for ms in -1..42_000 {
            if ms % 500 == 0 || ms < 0 {
                let found = world.index.extent_at_time(slot, id, ms).await.unwrap();
                assert_eq!(found, all.iter().copied().find(|extent| extent.last_ms >= ms), "{ms}");
            }
        }
    });
}

#[test]
fn a_trim_drops_what_lies_wholly_below_it() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut stream = Stream::new(1, "a");
        let incarnation = world.incarnation;
        world.commit(vec![stream.create(), stream.append(10, 10)]).await.unwrap();
        world.commit(vec![stream.append(10, 10)]).await.unwrap();
        world.commit(vec![stream.append(10, 10)]).await.unwrap();
        assert_eq!(world.index.chunk_low(incarnation).await.unwrap(), None);
        world.index.checkpoint().await.unwrap();
        assert_eq!(world.index.chunk_low(incarnation).await.unwrap(), Some(0));
        world.commit(vec![stream.trim(19)]).await.unwrap();
        assert_eq!(
            world.extents(&stream, 0).await.iter().map(|extent| extent.first.get()).collect::<Vec<_>>(),
            [10, 20]
        );
        assert_eq!(world.row(&stream).await.unwrap().bytes, 200);
        assert_eq!(world.index.chunk_low(incarnation).await.unwrap(), Some(0), "a crash would bring it back");
        world.index.checkpoint().await.unwrap();
        assert_eq!(world.index.chunk_low(incarnation).await.unwrap(), Some(1));
        // Written and trimmed in one chunk: there is never a row.
        world.commit(vec![stream.append(5, 10), stream.trim(35)]).await.unwrap();
        assert_eq!((world.extents(&stream, 0).await, world.row(&stream).await.unwrap().bytes), (Vec::new(), 0));
        world.index.checkpoint().await.unwrap();
        assert_eq!(world.index.chunk_low(incarnation).await.unwrap(), Some(5));
        assert_eq!(world.index.applied_checkpointed(stream.slot()).await.unwrap().of(incarnation), Some(4));
    });
}

#[test]
fn what_one_chunk_can_not_drop_is_dropped_step_by_step() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let (mut stream, mut other) = (Stream::new(1, "a"), Stream::new(2, "a/b"));
        world.commit(vec![stream.create(), other.create()]).await.unwrap();
        for _ in 0..4200 {
            world.commit(vec![stream.append(1, 10)]).await.unwrap();
        }
        world.commit(vec![stream.trim(4199)]).await.unwrap();
        assert_eq!(world.extents(&stream, 0).await.len(), 4200 - 4096);
        assert_eq!(world.row(&stream).await.unwrap().bytes, 1040);
        assert_eq!(world.index.reclaim_step(0).await.unwrap().extents, 4199 - 4096);
        assert_eq!(world.extents(&stream, 0).await.len(), 1);
        assert_eq!(world.row(&stream).await.unwrap().bytes, 10);
        assert_eq!(world.index.reclaim_step(0).await.unwrap().extents, 0);
        assert!(!world.dump().await.iter().any(|(_, key, _)| key[0] == b'D'));
        world.commit(vec![stream.delete()]).await.unwrap();
        assert_eq!(world.extents(&stream, 0).await, []);
        assert!(!world.dump().await.iter().any(|(_, key, _)| key[0] == b'O' || key[0] == b'X'));
    });
}

/// One extent of a bundle in the place of all these.
fn copy(from: &[Located], object: ObjectId) -> Located {
    let (first, last) = (from.first().unwrap(), from.last().unwrap());
    Located {
        object,
        offset: 96,
        bytes: from.iter().map(|extent| extent.bytes).sum(),
        content_bytes: from.iter().map(|extent| extent.content_bytes).sum(),
        entries: from.iter().map(|extent| extent.entries).sum(),
        crc: 1,
        end: last.end,
        last_rev: last.last_rev,
        last_ms: last.last_ms,
        ..*first
    }
}

#[test]
fn extents_move_to_another_object_and_their_chunks_become_free() {
    check(async |store| {
        let options = IndexOptions { dead_grace_ms: 100, ..IndexOptions::default() };
        let mut world = World::open(store, 0, options).await;
        let (mut moved, mut trimmed, mut gone) = (Stream::new(1, "a"), Stream::new(2, "a"), Stream::new(3, "a"));
        (trimmed.created_at_ms, gone.created_at_ms) = (2000, 3000);
        let incarnation = world.incarnation;
        world.commit(vec![moved.create(), trimmed.create(), gone.create()]).await.unwrap();
        for _ in 0..3 {
            world.commit(vec![moved.append(10, 10), trimmed.append(10, 10), gone.append(10, 10)]).await.unwrap();
        }
        let object = ObjectId::Bundle { slot: moved.slot(), epoch: Epoch::new(1), id: 77 };
        let mut moves = Moves { slot: moved.slot(), object, created_ms: 2_000_000, moves: Vec::new() };
        for stream in [&moved, &trimmed, &gone] {
            let from = world.extents(stream, 0).await;
            let to = copy(&from, object);
            moves.moves.push(Move { stream_id: stream.id(), from, to });
        }
        // While the copy was made, something was trimmed and something deleted.
        world.commit(vec![trimmed.trim(15), gone.delete()]).await.unwrap();
        assert_eq!(world.index.move_extents(&moves).await.unwrap(), Moved { moved: 2, stale: 1 });
        let whole = moves.moves[0].to;
        assert_eq!(world.extents(&moved, 0).await, [whole]);
        assert_eq!(world.extents(&trimmed, 15).await, [Located { content_bytes: 200, ..moves.moves[1].to }]);
        assert_eq!(world.extents(&gone, 0).await, []);
        assert_eq!(world.row(&moved).await.unwrap().bytes, 300);
        world.index.checkpoint().await.unwrap();
        assert_eq!(world.index.chunk_low(incarnation).await.unwrap(), Some(5));
        // A second time nothing is as it was copied.
        let again = ObjectId::Bundle { slot: moved.slot(), epoch: Epoch::new(1), id: 78 };
        let mut moves_again = Moves { object: again, ..moves.clone() };
        moves_again.moves.iter_mut().for_each(|one| one.to.object = again);
        assert_eq!(world.index.move_extents(&moves_again).await.unwrap(), Moved { moved: 0, stale: 3 });
        assert_eq!(world.extents(&moved, 0).await, [whole]);
        // The last of the bundle goes, and with it the bundle, after its time of grace and once that is durable.
        world.commit(vec![moved.delete(), trimmed.trim(30)]).await.unwrap();
        assert_eq!(world.index.dead(2_000_100, 9).await.unwrap(), []);
        world.index.checkpoint().await.unwrap();
        let dead = world.index.dead(2_000_100, 9).await.unwrap();
        let mut objects: Vec<_> = dead.iter().map(|dead| (dead.due_ms, dead.object)).collect();
        objects.sort();
        assert_eq!(objects, [(1_000_100, object), (2_000_100, again)]);
        assert_eq!(world.index.dead(2_000_099, 9).await.unwrap().len(), 1);
        world.index.forget_dead(&dead, 0).await.unwrap();
        world.index.checkpoint().await.unwrap();
        assert_eq!(world.index.dead(i64::MAX, 9).await.unwrap(), []);
        assert!(!world.dump().await.iter().any(|(_, key, _)| key[0] == b'O'));
    });
}

#[test]
fn a_copy_that_does_not_match_is_refused() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut stream = Stream::new(1, "a");
        world.commit(vec![stream.create(), stream.append(10, 10)]).await.unwrap();
        world.commit(vec![stream.append(10, 10)]).await.unwrap();
        let before = world.dump().await;
        let (slot, from) = (stream.slot(), world.extents(&stream, 0).await);
        let object = ObjectId::Bundle { slot, epoch: Epoch::new(1), id: 77 };
        let sound = copy(&from, object);
        let cases = [
            (Vec::new(), sound),
            (from.clone(), Located { end: SeqNum::new(19), ..sound }),
            (from.clone(), Located { object: from[0].object, ..sound }),
            (from.iter().rev().copied().collect(), sound),
        ];
        for (from, to) in cases {
            let moves = vec![Move { stream_id: stream.id(), from, to }];
            let error = world.index.move_extents(&Moves { slot, object, created_ms: 0, moves }).await.unwrap_err();
            assert!(matches!(error, IndexError::Move { .. }), "{error}");
        }
        assert_eq!(world.dump().await, before);
    });
}

#[test]
fn the_extents_of_many_streams_are_those_of_each() {
    check(async |store| {
        let mut world = World::new(store).await;
        let numbered = (0..).map(|number| Stream::numbered(number, &format!("s{number}")));
        let mut streams: Vec<_> = numbered.filter(|stream| stream.slot().get() == 0).take(6).collect();
        let slot = streams[0].slot();
        world.commit(streams.iter_mut().map(Stream::create).collect()).await.unwrap();
        let mut last = None;
        for chunk in 0..5_u16 {
            // The third has no record at all.
            let some = streams.iter_mut().enumerate().filter(|(at, _)| *at != 2 && usize::from(chunk) <= *at);
            last = Some(world.commit(some.map(|(_, stream)| stream.append(2, 10)).collect()).await.unwrap().0.at);
            world.index.checkpoint().await.unwrap();
        }
        let wanted = [(0, 0..1), (2, 0..9), (3, 1..3), (5, 4..7), (5, 8..u64::MAX)];
        let asked: Vec<_> = wanted
            .iter()
            .map(|(at, records)| (streams[*at].id(), SeqNum::new(records.start)..SeqNum::new(records.end)))
            .collect();
        let found = world.index.extents_within(slot, &asked, |_| true).await.unwrap();
        for ((at, records), found) in wanted.iter().zip(&found) {
            let all = world.extents(&streams[*at], records.start).await;
            let within: Vec<_> = all.into_iter().filter(|extent| extent.first.get() < records.end).collect();
            assert_eq!(*found, within, "{at} {records:?}");
        }
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 2, 2, 1]);
        let last = last.map(ObjectId::Chunk).unwrap();
        let of_last = world.index.extents_within(slot, &asked, |object| object == last).await.unwrap();
        assert_eq!(of_last.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
        assert!(world.index.extents_within(slot, &[], |_| true).await.unwrap().is_empty());
    });
}
