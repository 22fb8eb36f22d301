use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::ids::{Epoch, LogId, Lsn, Rev, SeqNum};
use wire::stream_row::FoldError;

use super::{Enough, ExtentError, IndexError, IndexOptions};
use crate::channel::PriorChannel;
use crate::store::{
    Fault, LocalDirectory, MemoryStore, ObjectName, ObjectPrefix, PutNonce, Rule, Store, StoreOp, When,
};
use world::{BUCKET, Stream, World, block_on};

pub(crate) mod contents;
mod extents;
mod speed;
mod streams;
pub(crate) mod world;

/// Both stores.
fn check(test: impl AsyncFn(Arc<dyn Store>)) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    block_on(test(Arc::new(MemoryStore::new())));
    let local = LocalDirectory::open(directory.path()).unwrap();
    block_on(test(Arc::new(local)));
}

/// Some of everything: streams that grow, are trimmed, deleted and made again.
async fn live(world: &mut World, from: u8, rounds: u8) {
    for round in from..from + rounds {
        let mut entries = Vec::new();
        for stream in 0..6 {
            let mut made = Stream::new(round * 6 + stream, &format!("key-{stream}-{}", round % 2));
            entries.extend([made.create(), made.append(3, 100), made.append(2, 50)]);
            entries.extend((stream % 3 == 1).then(|| made.trim(4)));
            world.keep(made);
        }
        world.commit(entries).await.unwrap();
        let mut entries = Vec::new();
        for stream in 0..6 {
            let old = world.kept(round * 6 + stream);
            entries.push(old.append(4, 10));
            entries.extend((stream % 2 == 0).then(|| old.trim(5)));
            entries.push(old.delete());
        }
        entries.truncate(10);
        world.commit(entries).await.unwrap();
    }
}

/// A row: its slot, its key and its value.
type Row = (u8, bytes::Bytes, bytes::Bytes);

/// Every row, but for what shows how many chunks were applied together: there is no count of a bucket of which all streams came and went
/// meanwhile, and an extent that did is none that its chunk was made with.
async fn rows(world: &World) -> Vec<Row> {
    let rows = world.dump().await.into_iter().filter(|(_, key, value)| key[0] != b'C' || value[..] != [0; 8]);
    let but_bytes = |(slot, key, value): Row| match key[0] {
        b'O' => (slot, key, [&value[..8], &value[16..]].concat().into()),
        _ => (slot, key, value),
    };
    rows.map(but_bytes).collect()
}

/// Six rounds with a checkpoint among them, then a crash, then replays; what a life without a crash leaves is `whole`.
async fn crash_and_replay(store: Arc<dyn Store>, checkpoint_at: u8, whole: &[Row]) {
    let mut world = World::new(store).await;
    live(&mut world, 0, checkpoint_at).await;
    world.index.checkpoint().await.unwrap();
    live(&mut world, checkpoint_at, 6 - checkpoint_at).await;
    let prior = [world.ended()];
    let mut world = world.crash().await;
    let replayed = world.index.replay(&prior).await.unwrap();
    // The last chunk is read in any case.
    assert_eq!(replayed.chunks, u64::from(6 - checkpoint_at).max(1) * 2 - u64::from(checkpoint_at == 6));
    assert_eq!(rows(&world).await, whole, "a checkpoint after round {checkpoint_at}");
    world.index.replay(&prior).await.unwrap();
    assert_eq!(rows(&world).await, whole, "twice is as once");
    for bytes in [1, 200_000] {
        let again = world.crash().await;
        again.index.replay_by(&prior, bytes).await.unwrap();
        assert_eq!(rows(&again).await, whole, "{bytes} bytes together");
        world = again;
    }
    world.wipe().await;
}

#[test]
fn what_a_crash_took_is_replayed_to_the_same_rows() {
    let whole = block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        live(&mut world, 0, 6).await;
        rows(&world).await
    });
    check(async |store| {
        for checkpoint_at in [0, 1, 3, 6] {
            Box::pin(crash_and_replay(Arc::clone(&store), checkpoint_at, &whole)).await;
        }
    });
}

#[test]
fn entries_that_come_again_in_another_channel_change_nothing() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut stream = Stream::new(1, "a");
        let entries = vec![stream.create(), stream.append(5, 10), stream.append(5, 10)];
        world.commit(entries.clone()).await.unwrap();
        let (row, extents) = (world.row(&stream).await, world.extents(&stream, 0).await);
        world.next_incarnation();
        world.commit(entries.clone()).await.unwrap();
        assert_eq!((world.row(&stream).await, world.extents(&stream, 0).await), (row, extents.clone()));
        // Partly new: the row is of the new part alone.
        let more = [entries, vec![stream.append(2, 30), stream.append(1, 30)]].concat();
        let chunk = world.commit(more).await.unwrap();
        let found = world.extents(&stream, 0).await;
        assert_eq!((found.len(), found[0]), (2, extents[0]));
        let fresh = &found[1];
        assert_eq!((fresh.first, fresh.end, fresh.entries), (SeqNum::new(10), SeqNum::new(13), 2));
        assert_eq!((fresh.first_rev, fresh.last_rev, fresh.content_bytes), (Rev::new(4), Rev::new(5), 90));
        assert_eq!(fresh.crc, wire::crc::crc32c(chunk.slice(fresh)));
        let entries = wire::chunk::entries(chunk.slice(fresh)).map(|entry| entry.unwrap().0.place().rev);
        assert_eq!(entries.collect::<Vec<_>>(), [Rev::new(4), Rev::new(5)]);
        assert_eq!(world.row(&stream).await.unwrap().bytes, 190);
    });
}

#[test]
fn a_hole_names_the_stream_its_revs_and_the_chunk() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut stream = Stream::new(1, "a");
        world.commit(vec![stream.create(), stream.append(1, 1)]).await.unwrap();
        let before = world.dump().await;
        let lost = stream.append(1, 1);
        let error = world.commit(vec![stream.append(1, 1)]).await.unwrap_err();
        let IndexError::Extent { at, source: ExtentError::Fold(hole), .. } = &error else { panic!("{error}") };
        let (stream_id, applied, rev, epoch) = (stream.id(), Rev::new(2), Rev::new(4), Epoch::new(7));
        assert_eq!(at.position, 1);
        assert_eq!(*hole, FoldError::Hole { stream_id, applied, rev, epoch });
        let text = error.to_string();
        assert!(["chunk 1", &stream_id.to_string(), "rev 2", "rev 4"].iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(world.dump().await, before);
        // A stream that nobody made, and a chunk that was left out.
        let mut unknown = Stream::new(2, "b");
        unknown.create();
        world.position = 1;
        assert!(world.commit(vec![unknown.append(1, 1)]).await.is_err());
        world.position = 5;
        let skipped = world.commit(vec![lost]).await.unwrap_err();
        assert!(matches!(skipped, IndexError::Skipped { applied: 0, .. }), "{skipped}");
        assert_eq!(world.dump().await, before);
    });
}

#[test]
fn a_replay_says_how_far_logs_are_settled_even_if_nothing_is_to_be_applied() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let log = LogId::from_bytes([3; 16]);
        world.settle(log, 1, 8);
        let mut stream = Stream::new(1, "a");
        world.commit(vec![stream.create()]).await.unwrap();
        world.settle(log, 8, 8);
        world.settle(LogId::from_bytes([4; 16]), 0, 0);
        world.commit(vec![stream.append(1, 1)]).await.unwrap();
        world.index.checkpoint().await.unwrap();
        let prior = [world.ended()];
        let world = world.crash().await;
        let replayed = world.index.replay(&prior).await.unwrap();
        assert_eq!((replayed.chunks, replayed.settled), (1, [(log, Lsn::new(7))].into()));
        assert_eq!(world.index.applied(prior[0].incarnation), Some(1));
        let PriorChannel { incarnation, .. } = prior[0];
        let torn = [PriorChannel { incarnation, low: 3, end: 2 }];
        assert!(matches!(world.index.replay(&torn).await, Err(IndexError::Channel { .. })));
    });
}

#[test]
fn an_index_that_was_lost_is_an_error_and_nothing_is_made_in_its_place() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        let mut world = World::new(store.clone()).await;
        let mut stream = Stream::new(1, "a");
        world.commit(vec![stream.create()]).await.unwrap();
        world.index.checkpoint().await.unwrap();
        let prior = world.ended();
        let world = world.crash().await;
        world.wipe().await;
        let objects = store.objects();
        let missing = world.index.row_by_name(BUCKET, &stream.key).await.unwrap_err();
        assert!(matches!(missing, IndexError::Missing { .. }), "{missing}");
        assert!(world.index.replay(&[prior]).await.is_err());
        assert!(world.index.chunk_low(prior.incarnation).await.is_err());
        assert_eq!(store.objects(), objects);
    });
}

#[test]
fn a_store_that_fails_while_rows_are_sent_costs_nothing_once_it_is_back() {
    block_on(async {
        let store = MemoryStore::new();
        let mut world = World::new(Arc::new(store.clone())).await;
        live(&mut world, 0, 2).await;
        let whole = world.dump().await;
        store.add(Rule::new(Fault::ServerError).of(StoreOp::PutIfAbsent).when(When::Nth(1)));
        store.add(Rule::new(Fault::AfterApply).of(StoreOp::PutIfAbsent).when(When::Nth(2)));
        world.index.checkpoint().await.unwrap();
        assert_eq!(world.index.checkpointed(world.incarnation), Some(3));
        let prior = [world.ended()];
        let world = world.crash().await;
        world.index.replay(&prior).await.unwrap();
        assert_eq!(world.dump().await, whole);
    });
}

#[test]
fn a_checkpoint_that_was_given_up_has_said_nothing() {
    block_on(async {
        let store = MemoryStore::new();
        let mut world = World::new(Arc::new(store.clone())).await;
        live(&mut world, 0, 1).await;
        let whole = world.dump().await;
        store.hold();
        let given_up = tokio::time::timeout(Duration::from_millis(300), world.index.checkpoint()).await;
        assert!(given_up.is_err(), "it waits for the store");
        store.release();
        assert_eq!(world.index.checkpointed(world.incarnation), None);
        world.index.checkpoint().await.unwrap();
        assert_eq!(world.index.checkpointed(world.incarnation), Some(1));
        let prior = [world.ended()];
        let world = world.crash().await;
        world.index.replay(&prior).await.unwrap();
        assert_eq!(world.dump().await, whole);
    });
}

#[test]
fn a_damaged_chunk_is_found_before_anything_of_it_is_applied() {
    block_on(async {
        let store = MemoryStore::new();
        let mut world = World::new(Arc::new(store.clone())).await;
        let mut stream = Stream::new(1, "a");
        world.commit(vec![stream.create()]).await.unwrap();
        let chunk = world.commit(vec![stream.append(10, 100)]).await.unwrap();
        let prior = [world.ended()];
        let world = world.crash().await;
        let mut damaged = chunk.0.bytes.to_vec();
        damaged[700] ^= 1;
        assert!(store.tamper(&crate::channel::chunk_name(chunk.0.at), damaged.into()));
        let error = world.index.replay(&prior).await.unwrap_err();
        assert!(matches!(error, IndexError::Chunk { at, .. } if at == chunk.0.at), "{error}");
        assert_eq!(world.row(&stream).await.unwrap().tail.seq_num, SeqNum::ZERO);
    });
}

#[test]
fn a_database_that_closes_itself_is_opened_again_and_misses_nothing() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        live(&mut world, 0, 2).await;
        world.index.checkpoint().await.unwrap();
        live(&mut world, 2, 2).await;
        let whole = world.dump().await;
        for open in world.index.opened_slots().await.unwrap() {
            // Without its last flush: what it had in memory is gone.
            let options = slatedb::config::CloseOptions::default().with_flush_type(None);
            open.db.close_with_options(options).await.unwrap();
        }
        assert_eq!(world.dump().await, whole);
        world.index.checkpoint().await.unwrap();
        let prior = [world.ended()];
        let world = world.crash().await;
        world.index.replay(&prior).await.unwrap();
        assert_eq!(world.dump().await, whole);
    });
}

#[test]
fn a_database_that_closes_itself_while_chunks_are_applied_elsewhere_gets_them_too() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        live(&mut world, 0, 2).await;
        world.index.checkpoint().await.unwrap();
        live(&mut world, 2, 2).await;
        let whole = world.dump().await;
        {
            // As it is while another slot still waits for its part of them.
            let mut progress = world.index.progress();
            let before = progress.checkpointed.clone();
            progress.applying = std::mem::replace(&mut progress.applied, before);
        }
        for open in world.index.opened_slots().await.unwrap() {
            let options = slatedb::config::CloseOptions::default().with_flush_type(None);
            open.db.close_with_options(options).await.unwrap();
        }
        assert_eq!(world.dump().await, whole);
    });
}

#[test]
fn a_writer_that_was_taken_over_does_not_take_back() {
    block_on(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut old = World::new(Arc::clone(&store)).await;
        let mut stream = Stream::new(1, "a");
        old.commit(vec![stream.create()]).await.unwrap();
        let (prior, made) = (old.ended(), old.made());
        let new = World::open(store, made, IndexOptions::default()).await;
        new.index.replay(&[prior]).await.unwrap();
        assert!(new.row(&stream).await.is_some());
        assert!(old.index.checkpoint().await.is_err());
        let error = old.commit(vec![stream.append(1, 1)]).await.unwrap_err();
        assert!(matches!(error, IndexError::Fenced { .. }), "{error}");
        new.index.checkpoint().await.unwrap();
    });
}

#[test]
fn tasks_of_their_own_ask_and_apply_side_by_side() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        let mut stream = Stream::new(1, "a");
        let chunk = world.build(&[stream.create(), stream.append(3, 3)], 0);
        let (index, key, prior) =
            (Arc::new(world.index), stream.key.clone(), PriorChannel { incarnation: Epoch::new(9), low: 0, end: 0 });
        let (writer, tender, asker) = (Arc::clone(&index), Arc::clone(&index), Arc::clone(&index));
        let writes = tokio::spawn(async move {
            writer.replay(&[prior]).await.unwrap();
            writer.apply(std::slice::from_ref(&chunk.0)).await.unwrap();
            writer.checkpoint_if_due(Duration::from_secs(300)).await.unwrap()
        });
        assert!(writes.await.unwrap());
        let tends = tokio::spawn(async move {
            tender.upkeep().await.unwrap();
            tender.reclaim_step(0).await.unwrap();
            let (due, over) = (tender.due_by_age(0, 1).await.unwrap(), tender.take_over_bytes().await.unwrap());
            let dead = tender.dead(0, 1).await.unwrap();
            tender.forget_dead(&dead, 0).await.unwrap();
            (due.len(), over.len(), tender.chunk_low(Epoch::new(1)).await.unwrap())
        });
        let asks = tokio::spawn(async move {
            let row = asker.row_by_name(BUCKET, &key).await.unwrap().unwrap();
            let (slot, id) = (row.slot(), row.stream_id);
            assert_eq!(asker.rows_by_id(&[(slot, id)]).await.unwrap(), [row]);
            assert_eq!(asker.extents_from(slot, id, SeqNum::ZERO, Enough::extents(9)).await.unwrap().len(), 1);
            assert!(asker.extent_at_time(slot, id, 0).await.unwrap().is_some());
            (asker.list(BUCKET, "", 9).await.unwrap().len(), asker.count(BUCKET).await.unwrap())
        });
        assert_eq!((tends.await.unwrap(), asks.await.unwrap()), ((0, 0, Some(0)), (1, 1)));
        index.close().await.unwrap();
    });
}

/// Streams of one slot, so many.
fn of_slot(slot: u8, count: usize) -> Vec<Stream> {
    let all = (0..).map(|number| Stream::numbered(number, &format!("s{number}")));
    all.filter(|stream| stream.slot().get() == slot).take(count).collect()
}

#[test]
fn look_ups_of_a_chunk_wait_for_the_store_side_by_side() {
    block_on(async {
        let store = MemoryStore::new();
        let mut world = World::new(Arc::new(store.clone())).await;
        let mut streams = of_slot(3, 1_120);
        world.commit(streams.iter_mut().map(Stream::create).collect()).await.unwrap();
        world.index.checkpoint().await.unwrap();
        let mut world = world.crash().await;
        // Their rows lie in blocks of their own.
        let entries: Vec<_> = streams.iter_mut().step_by(140).map(|stream| stream.append(1, 10)).collect();
        world.position = 1;
        let chunk = world.build(&entries, 0);
        let index = Arc::new(world.index);
        index.open_slots().await.unwrap();
        store.hold();
        let applying = tokio::spawn({
            let index = Arc::clone(&index);
            async move { index.apply(std::slice::from_ref(&chunk.0)).await }
        });
        // What finds the blocks is read first, once for all of them.
        while store.waiting() < 4 {
            if store.waiting() == 1 {
                store.step();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        store.release();
        applying.await.unwrap().unwrap();
        let rows: Vec<_> = streams.iter().map(|stream| (stream.slot(), stream.id())).collect();
        let rows = index.rows_by_id(&rows).await.unwrap();
        assert_eq!(
            rows.iter().map(|row| row.stream_id).collect::<Vec<_>>(),
            streams.iter().map(Stream::id).collect::<Vec<_>>()
        );
        assert_eq!(rows.iter().filter(|row| row.tail.seq_num.get() == 1).count(), entries.len());
    });
}

#[test]
fn a_slot_that_can_not_be_tended_holds_up_no_other() {
    block_on(async {
        let store = MemoryStore::new();
        let mut world = World::new(Arc::new(store.clone())).await;
        let (mut full, mut broken) = (of_slot(9, 1).remove(0), of_slot(2, 1).remove(0));
        world.commit(vec![full.create(), broken.create()]).await.unwrap();
        for _ in 0..6 {
            world.index.checkpoint().await.unwrap();
            world.commit(vec![full.append(1, 10)]).await.unwrap();
        }
        world.index.checkpoint().await.unwrap();
        let world = world.crash().await;
        for stream in [&full, &broken] {
            assert!(world.row(stream).await.is_some());
        }
        let prefix = "m/02/manifest/";
        let manifests = store.list(&ObjectPrefix::parse(prefix).unwrap(), None, 100).await.unwrap().objects;
        let last = manifests.last().unwrap().name.as_str()[prefix.len()..].trim_end_matches(".manifest");
        let next = format!("{prefix}{:020}.manifest", last.parse::<u64>().unwrap() + 1);
        let damaged = bytes::Bytes::from_static(b"no manifest");
        store.put_if_absent(&ObjectName::parse(&next).unwrap(), damaged, PutNonce::fresh()).await.unwrap();
        assert!(world.index.upkeep().await.is_err());
        let open = world.index.open_slot(full.slot()).await.unwrap().unwrap();
        let tables = open.db.manifest().l0().len();
        assert!(tables < 4, "{tables} of 7 tables are left");
        assert_eq!(world.row(&full).await.unwrap().tail.seq_num, SeqNum::new(6));
    });
}

#[test]
fn files_do_not_pile_up() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    block_on(async {
        let store: Arc<dyn Store> = Arc::new(LocalDirectory::open(directory.path()).unwrap());
        let brief = Duration::from_millis(1);
        let options = IndexOptions { garbage_age: brief, garbage_every: brief, ..IndexOptions::default() };
        let mut world = World::open(store, 0, options).await;
        let mut stream = Stream::new(1, "a");
        world.commit(vec![stream.create()]).await.unwrap();
        let mut most = 0;
        for round in 0..30 {
            world.commit(vec![stream.append(1, 10)]).await.unwrap();
            world.index.checkpoint().await.unwrap();
            if round % 5 == 4 {
                world.index.upkeep().await.unwrap();
                most = most.max(world.files().await);
            }
        }
        assert!(most < 30, "{most} files");
        assert_eq!(world.extents(&stream, 0).await.len(), 30);
        assert_eq!(world.row(&stream).await.unwrap().tail.seq_num, SeqNum::new(30));
    });
}

#[test]
fn openings_leave_nothing_behind_for_long() {
    block_on(async {
        let brief = Duration::from_millis(1);
        // Whatever the age of garbage: lives that are over have nothing that is needed and not referred to.
        let options = IndexOptions { garbage_every: brief, ..IndexOptions::default() };
        let mut world = World::open(Arc::new(MemoryStore::new()), 0, options).await;
        let mut stream = Stream::new(1, "a");
        world.commit(vec![stream.create()]).await.unwrap();
        world.index.checkpoint().await.unwrap();
        for _ in 0..30 {
            world = world.crash().await;
            assert!(world.row(&stream).await.is_some());
        }
        let before = world.files().await;
        for _ in 0..3 {
            world.index.upkeep().await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let after = world.files().await;
        assert!(before > 20 && after < 10, "{before} files, then {after}");
        world = world.crash().await;
        assert!(world.row(&stream).await.is_some());
    });
}

#[test]
fn a_slot_opens_without_a_wait() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    block_on(async {
        let store: Arc<dyn Store> = Arc::new(LocalDirectory::open(directory.path()).unwrap());
        let mut world = World::new(store).await;
        let mut stream = Stream::new(1, "a");
        world.commit(vec![stream.create()]).await.unwrap();
        world.index.checkpoint().await.unwrap();
        let mut quickest = Duration::MAX;
        for _ in 0..5 {
            world = world.crash().await;
            let start = Instant::now();
            assert!(world.row(&stream).await.is_some());
            quickest = quickest.min(start.elapsed());
        }
        assert!(quickest < Duration::from_millis(900), "{quickest:?}");
    });
}
