use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use wire::ids::Epoch;

use super::*;
use crate::history::{HistoryOptions, Locate};
use crate::index::Enough;
use crate::index::tests::world::block_on;
use crate::store::{Fault, LocalDirectory, MemoryStore, ObjectName, Rule, Span, When};
use world::{LATER_MS, World, settle_options};

mod hurry;
mod lives;
mod moments;
mod orphans;
mod rebuild;
mod retention;
mod world;

/// Both stores.
fn check(test: impl AsyncFn(Arc<dyn Store>)) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    block_on(test(Arc::new(MemoryStore::new())));
    let local = LocalDirectory::open(directory.path()).unwrap();
    block_on(test(Arc::new(local)));
}

#[test]
fn records_are_read_as_they_were_written_once_their_chunks_are_bundled_and_gone() {
    check(async |store| {
        let mut world = World::new(store).await;
        world.create(12).await;
        world.write(10, 100).await;
        let trims = vec![world.trim(1, 4), world.trim(2, 30), world.delete(3)];
        world.commit(trims).await;
        world.write(10, 50).await;
        world.check().await;
        let not_yet = world.settler.bundle_step(unix_ms()).await.unwrap();
        assert_eq!(not_yet, Bundled::default(), "neither old nor large");
        assert!(world.settler.counts().backlog_chunks >= 20);
        world.bundle().await;
        world.check_cold().await;
        assert_eq!(world.settler.delete_step().await.unwrap(), Deleted::default(), "nothing is durable yet");
        world.delete_chunks().await;
        world.check_cold().await;
        world.check().await;
        // The last chunk says how far head logs are settled.
        assert_eq!(world.chunks(world.incarnation).await.len(), 1);
        let counts = world.settler.counts();
        let objects = world.names("d/").await.len() as u64;
        assert_eq!((counts.bundles, objects), (5, 5), "one for each slot");
        assert!(counts.bundle_bytes > 10_000 && counts.extents_moved > 200 && counts.chunks_deleted > 20, "{counts:?}");
        world.bundle().await;
        assert_eq!(world.settler.counts().backlog_chunks, 0);
        let world = world.crash().await;
        world.check().await;
    });
}

#[test]
fn a_bundle_tells_its_own_story() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        world.create(6).await;
        let entries = vec![world.append(0, 3, 100), world.data.streams[0].reconfigure(), world.append(5, 1, 10)];
        world.commit(entries).await;
        let entries = vec![world.append(0, 3, 100)];
        world.commit(entries).await;
        // The extent in the first chunk goes, the verb in it does not.
        let entries = vec![world.trim(0, 3), world.append(0, 2, 10)];
        world.commit(entries).await;
        world.bundle().await;
        let names = world.names("d/").await;
        let object = world.store.get(&ObjectName::parse(&names[0]).unwrap(), Span::Whole).await.unwrap();
        let footer = wire::chunk::Footer::decode_suffix(&object.body, object.meta.size_bytes).unwrap();
        let header = footer.header.unwrap();
        assert_eq!((header.kind, header.slot), (wire::chunk::ObjectKind::Bundle, world.data.streams[0].slot()));
        assert_eq!(header.incarnation, world.incarnation);
        let rows: Vec<_> = footer.extents.iter().map(|row| (row.first_rev.get(), row.last_rev.get())).collect();
        assert_eq!(rows, [(3, 6), (2, 2)], "neighbours are one extent, with the verbs between them");
        let row = footer.extents[0];
        assert_eq!((row.first.get(), row.end.get(), row.entries), (3, 8, 4));
        let extents =
            world.index.extents_from(header.slot, row.stream_id, row.first, Enough::extents(9)).await.unwrap();
        assert_eq!((extents.len(), extents[0].crc, extents[0].content_bytes), (1, row.crc, row.content_bytes));
        assert_eq!((extents[0].first_ms, extents[0].last_ms), (row.first_ms, row.last_ms));
    });
}

#[test]
fn what_is_trimmed_and_deleted_gives_its_room_back() {
    check(async |store| {
        let mut world = World::new(store).await;
        world.create(10).await;
        world.write(10, 2000).await;
        world.settle().await;
        world.write(10, 2000).await;
        world.settle().await;
        let full = world.stored_bytes().await;
        assert!(full > 10 * 20 * 3 * 2000, "{full}");
        let entries: Vec<_> = (0..10)
            .map(|stream| if stream % 2 == 0 { world.delete(stream) } else { world.trim(stream, world.tail(stream)) })
            .collect();
        world.commit(entries).await;
        for _ in 0..3 {
            world.settle().await;
        }
        let left = world.stored_bytes().await;
        assert!(left < 5000, "{left} of {full} bytes are left");
        assert_eq!(world.names("d/").await, Vec::<String>::new());
        assert_eq!(world.settler.counts().objects_deleted, 10);
        world.check_cold().await;
        world.write(2, 100).await;
        world.settle().await;
        world.check_cold().await;
    });
}

#[test]
fn bundles_that_are_half_dead_are_rewritten_and_small_ones_merged() {
    block_on(async {
        let options = SettleOptions { small_bytes: 1000, small_count: 4, ..settle_options() };
        let mut world = World::with(Arc::new(MemoryStore::new()), options).await;
        world.create(10).await;
        world.write(10, 2000).await;
        world.settle().await;
        assert_eq!(world.settler.compact_step(unix_ms()).await.unwrap(), Bundled::default());
        let full = world.stored_bytes().await;
        // Of two streams a slot, the one goes that is larger.
        let more: Vec<_> = (0..5).map(|stream| world.append(stream, 1, 10)).collect();
        world.commit(more).await;
        let deletes = (5..10).map(|stream| world.delete(stream)).collect();
        world.commit(deletes).await;
        let trims: Vec<_> = (0..2).map(|stream| world.trim(stream, 1)).collect();
        world.commit(trims).await;
        world.settle().await;
        let mut rewritten = 0;
        while let done = world.settler.compact_step(unix_ms()).await.unwrap()
            && done.extents > 0
        {
            rewritten += done.chunks;
            world.check_cold().await;
        }
        // A half is not less than half; the small ones are too few.
        assert_eq!(rewritten, 0);
        for _ in 0..4 {
            let small = vec![world.append(0, 1, 10)];
            world.commit(small).await;
            world.settle().await;
        }
        let before = world.names("d/").await.len();
        let done = world.settler.compact_step(unix_ms()).await.unwrap();
        assert_eq!((done.chunks, done.bundles), (5, 1), "the small ones of one slot");
        world.settle().await;
        assert_eq!(world.names("d/").await.len(), before - 4);
        let trims: Vec<_> = (0..5).map(|stream| world.trim(stream, 31)).collect();
        world.commit(trims).await;
        world.settle().await;
        assert!(world.stored_bytes().await < full / 10);
        world.check_cold().await;
        let world = world.crash().await;
        world.check().await;
    });
}

#[test]
fn a_bundle_live_by_less_than_half_is_rewritten() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        world.create(15).await;
        world.write(10, 2000).await;
        world.settle().await;
        let full = world.stored_bytes().await;
        let deletes = (5..15).map(|stream| world.delete(stream)).collect();
        world.commit(deletes).await;
        world.settle().await;
        let mut rewritten = 0;
        while let done = world.settler.compact_step(unix_ms()).await.unwrap()
            && done.extents > 0
        {
            rewritten += done.chunks;
        }
        assert_eq!((rewritten, world.settler.counts().bundles_rewritten), (5, 5));
        world.settle().await;
        let left = world.stored_bytes().await;
        assert!(left < full / 2, "{left} of {full}");
        world.check_cold().await;
    });
}

#[test]
fn a_large_stream_has_bundles_of_its_own_of_a_bounded_size() {
    block_on(async {
        let sizes = SettleOptions { own_bytes: 20_000, object_bytes: 50_000, ..settle_options() };
        let mut world = World::with(Arc::new(MemoryStore::new()), sizes).await;
        world.create(10).await;
        for _ in 0..30 {
            let entries = vec![world.append(0, 3, 1000), world.append(5, 1, 100)];
            world.commit(entries).await;
        }
        world.settle().await;
        world.check_cold().await;
        let slot = world.data.streams[0].slot();
        let names = world.names(&format!("d/{:02x}/", slot.get())).await;
        assert_eq!(names.len(), 3, "two for about 95 kB, and one for the rest");
        let bundles = world.index.bundles(slot, None, 9).await.unwrap();
        let sizes: Vec<u64> = bundles.iter().map(|bundle| bundle.bytes).collect();
        assert!(sizes.iter().all(|bytes| *bytes <= 50_000), "{sizes:?}");
    });
}

/// Steps of bundling until nothing is left to copy: how many bundles each made.
async fn steps(world: &World) -> Vec<usize> {
    let mut steps = Vec::new();
    while let done = world.settler.bundle_step(unix_ms() + LATER_MS).await.unwrap()
        && done.extents > 0
    {
        steps.push(done.bundles);
    }
    steps
}

#[test]
fn a_step_that_takes_long_leaves_the_rest_to_the_next() {
    block_on(async {
        let sizes = SettleOptions { own_bytes: 20_000, object_bytes: 50_000, ..settle_options() };
        for copy_time in [Duration::ZERO, Duration::from_secs(3_600)] {
            let options = SettleOptions { copy_time, ..sizes.clone() };
            let mut world = World::with(Arc::new(MemoryStore::new()), options).await;
            world.create(10).await;
            for _ in 0..30 {
                let entries = vec![world.append(0, 3, 1000), world.append(1, 1, 100), world.append(5, 1, 100)];
                world.commit(entries).await;
            }
            // Two of the large stream, one of what shares its slot, one of the other slot.
            let expected = if copy_time.is_zero() { vec![1; 4] } else { vec![4] };
            assert_eq!(steps(&world).await, expected);
            assert!(world.index.chunks_in_use().await.unwrap().is_empty());
            assert_eq!((world.settler.counts().bundles, world.settler.counts().streams_stale), (4, 0));
            world.check_cold().await;
            world.settle().await;
            let world = world.crash().await;
            world.check().await;
        }
    });
}

#[test]
fn a_survey_lasts_for_many_steps_and_what_has_gone_since_is_passed_over() {
    block_on(async {
        let options = SettleOptions { bundle_chunks: 2, ..settle_options() };
        let mut world = World::with(Arc::new(MemoryStore::new()), options).await;
        world.create(1).await;
        world.write(6, 10).await;
        let now_ms = unix_ms();
        let chunks = async |world: &World| world.settler.bundle_step(now_ms).await.unwrap().chunks;
        assert_eq!(chunks(&world).await, 2);
        // Written after the survey: bundled once that is used up. Trimmed after it: never.
        world.write(1, 10).await;
        let entries = vec![world.trim(0, world.tail(0))];
        world.commit(entries).await;
        world.write(3, 10).await;
        assert_eq!(chunks(&world).await, 0, "what was surveyed has gone");
        assert_eq!([chunks(&world).await, chunks(&world).await], [2, 0], "one of three is too few");
        assert_eq!(world.settler.counts().unreadable, 0);
        world.check().await;
    });
}

#[test]
fn copying_rests_while_chunks_are_applied_unless_much_waits_or_for_long() {
    block_on(async {
        let hour = Duration::from_secs(3_600);
        let options = SettleOptions { bundle_chunks: 2, bundle_age: hour, ..settle_options() };
        let mut world = World::with(Arc::new(MemoryStore::new()), options).await;
        world.create(1).await;
        world.write(7, 10).await;
        let now_ms = unix_ms();
        assert_eq!(world.settler.bundle_step(now_ms).await.unwrap().chunks, 2);
        assert!(world.settler.may_rest(now_ms));
        assert!(!world.settler.may_rest(now_ms + 2 * LATER_MS), "the oldest is twice as old as a chunk should become");
        world.bundle().await;
        world.write(8, 10).await;
        assert_eq!(world.settler.bundle_step(now_ms).await.unwrap().chunks, 2);
        assert!(!world.settler.may_rest(now_ms), "four times as many wait as are bundled at once");
        world.bundle().await;
        assert!(world.settler.may_rest(now_ms + 9 * LATER_MS), "nothing waits");
    });
}

/// What a star does until it dies.
async fn act(world: &mut World, number: usize) {
    match number {
        0 | 4 => world.write(3, 200).await,
        1 | 5 => world.bundle().await,
        2 | 6 => world.index.checkpoint().await.unwrap(),
        3 | 7 => drop(world.settler.delete_step().await.unwrap()),
        8 => {
            let entries = vec![world.trim(0, world.tail(0)), world.delete(1)];
            world.commit(entries).await;
            world.create(1).await;
        }
        _ => drop(world.settler.reclaim_step(unix_ms() + LATER_MS).await.unwrap()),
    }
}

#[test]
fn a_star_that_dies_between_any_two_steps_has_lost_nothing() {
    check(async |store| {
        let mut world = World::new(store).await;
        world.create(5).await;
        for die_after in 0..=9 {
            world.believe().await;
            for number in 0..=die_after {
                act(&mut world, number).await;
            }
            world = world.crash().await;
            world.check().await;
        }
        world.write(1, 10).await;
        for _ in 0..3 {
            world.settle().await;
        }
        world.check_cold().await;
        // Of the channels before, fences are left.
        let left = world.names("c/").await.len();
        assert_eq!(left, 10 + 1, "ten fences and the last chunk");
        let world = world.crash().await;
        world.check().await;
    });
}

/// Settles for ever.
async fn settle_on(settler: Arc<Settler>, index: Arc<Index>) {
    loop {
        settler.bundle_step(unix_ms() + LATER_MS).await.unwrap();
        index.checkpoint().await.unwrap();
        settler.delete_step().await.unwrap();
    }
}

/// Lets one operation that waits at the store go on, and leaves it the time to; none when nothing comes. Who waits is another task.
async fn step(memory: &MemoryStore) {
    let moment = Duration::from_millis(1);
    for _ in 0..100 {
        if memory.waiting() > 0 {
            memory.step();
            return tokio::time::sleep(moment).await;
        }
        tokio::time::sleep(moment).await;
    }
}

#[test]
fn a_star_that_dies_at_any_operation_of_a_step_has_lost_nothing() {
    block_on(async {
        let memory = MemoryStore::new();
        let mut world = World::new(Arc::new(memory.clone())).await;
        world.create(3).await;
        for operations in 0..24 {
            world.write(2, 100).await;
            memory.hold();
            let settling = tokio::spawn(settle_on(Arc::clone(&world.settler), Arc::clone(&world.index)));
            for _ in 0..operations {
                step(&memory).await;
            }
            settling.abort();
            drop(settling.await);
            memory.release();
            world = world.crash().await;
            world.check().await;
        }
        world.write(1, 10).await;
        world.settle().await;
        world.check_cold().await;
    });
}

#[test]
fn a_store_that_fails_now_and_then_costs_time_and_nothing_else() {
    block_on(async {
        let memory = MemoryStore::seeded(7);
        let mut world = World::new(Arc::new(memory.clone())).await;
        world.create(6).await;
        world.believe().await;
        for round in 0..15_usize {
            world.write(3, 300).await;
            if round % 4 == 3 {
                let entries = vec![world.trim(round % 6, world.tail(round % 6) - 3)];
                world.commit(entries).await;
            }
            for fault in [Fault::BeforeApply, Fault::AfterApply, Fault::ServerError, Fault::Truncated, Fault::Flipped] {
                memory.add(Rule::new(fault).under("c/").when(When::Chance(0.1)));
                memory.add(Rule::new(fault).under("d/").when(When::Chance(0.1)));
            }
            let (now_ms, settler) = (unix_ms() + LATER_MS, &world.settler);
            drop(settler.bundle_step(now_ms).await);
            drop(world.index.checkpoint().await);
            drop(settler.delete_step().await);
            drop(settler.reclaim_step(now_ms).await);
            drop(settler.compact_step(now_ms).await);
            memory.calm();
            world.check().await;
        }
        world.check_cold().await;
        let mut world = world.crash().await;
        world.check().await;
        world.write(1, 10).await;
        world.settle().await;
        world.check_cold().await;
        assert_eq!(world.chunks(world.incarnation).await, [world.own_chunk(1)]);
    });
}

/// Reads everything, again and again, with nothing in memory.
async fn read_on(
    store: Arc<dyn Store>,
    index: Arc<Index>,
    data: world::Streams,
    mut stopped: oneshot::Receiver<()>,
) -> world::Streams {
    while let Err(oneshot::error::TryRecvError::Empty) = stopped.try_recv() {
        let locate: Arc<dyn Locate> = Arc::<Index>::clone(&index);
        let history = History::new(Arc::clone(&store), locate, &HistoryOptions::of_memory(1)).unwrap();
        world::check(&data, &history).await.unwrap();
    }
    data
}

#[test]
fn a_reader_with_an_old_plan_gets_its_records() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        world.create(4).await;
        for _ in 0..10 {
            world.write(5, 3000).await;
            let (index, store) = (Arc::clone(&world.index), Arc::clone(&world.store));
            let data = std::mem::take(&mut world.data);
            let (stop, stopped) = oneshot::channel();
            let reader = tokio::spawn(read_on(store, index, data, stopped));
            world.settle().await;
            stop.send(()).unwrap();
            world.data = reader.await.unwrap();
        }
        // A plan of before: the chunk that it names is gone.
        assert_eq!(world.chunks(world.incarnation).await.len(), 1);
        world.check().await;
    });
}

#[test]
fn a_channel_that_ended_goes_but_its_fence_and_what_it_said_of_logs() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        world.create(3).await;
        world.write(5, 100).await;
        let first = world.incarnation;
        let mut world = world.crash().await;
        assert_eq!(world.prior.len(), 1);
        let end = world.prior[0].end;
        world.settle().await;
        assert_eq!(world.chunks(first).await.len() as u64, end + 1, "no later chunk says how far logs are settled");
        world.write(1, 10).await;
        world.settle().await;
        let fence = crate::channel::chunk_name(crate::channel::ChunkId { incarnation: first, position: end });
        assert_eq!(world.chunks(first).await, [fence.to_string()]);
        let world = world.crash().await;
        assert_eq!(world.prior.iter().map(|prior| prior.incarnation).collect::<Vec<_>>(), [Epoch::new(2)]);
        world.check().await;
    });
}

#[test]
fn a_chunk_that_is_damaged_stays_and_holds_up_no_other() {
    block_on(async {
        let memory = MemoryStore::new();
        let mut world = World::new(Arc::new(memory.clone())).await;
        world.create(3).await;
        world.write(6, 100).await;
        // Nothing in memory: what is copied comes from the store.
        world = world.crash().await;
        let name = crate::channel::chunk_name(crate::channel::ChunkId { incarnation: Epoch::new(1), position: 4 });
        let good = memory.get(&name, Span::Whole).await.unwrap().body;
        let mut bad = good.to_vec();
        bad[150] ^= 1;
        memory.tamper(&name, bad.into());
        world.write(1, 10).await;
        world.settle().await;
        let counts = world.settler.counts();
        assert_eq!(counts.unreadable, 1);
        assert_eq!(world.chunks(Epoch::new(1)).await.len(), 9, "none of its channel goes");
        assert_eq!(world.index.chunks_in_use().await.unwrap().len(), 1);
        memory.tamper(&name, good);
        let mut world = world.crash().await;
        world.check().await;
        world.write(1, 10).await;
        world.settle().await;
        assert_eq!(world.chunks(Epoch::new(1)).await.len(), 1);
        world.check_cold().await;
    });
}

#[test]
fn chunks_stay_for_the_time_of_grace() {
    block_on(async {
        let options = SettleOptions { grace: Duration::from_millis(300), ..settle_options() };
        let mut world = World::with(Arc::new(MemoryStore::new()), options).await;
        world.create(1).await;
        world.write(5, 100).await;
        world.bundle().await;
        world.delete_chunks().await;
        assert_eq!(world.settler.counts().chunks_deleted, 0);
        tokio::time::sleep(Duration::from_millis(350)).await;
        let deleted = world.settler.delete_step().await.unwrap();
        assert_eq!(deleted.chunks, 6);
    });
}

#[test]
fn a_step_deletes_only_so_many_and_says_that_there_are_more() {
    block_on(async {
        let options = SettleOptions { deletes_max: 4, ..settle_options() };
        let mut world = World::with(Arc::new(MemoryStore::new()), options).await;
        world.create(1).await;
        world.write(9, 100).await;
        world.bundle().await;
        world.index.checkpoint().await.unwrap();
        let mut deleted = Vec::new();
        for _ in 0..4 {
            let done = world.settler.delete_step().await.unwrap();
            deleted.push((done.chunks, done.has_more));
        }
        assert_eq!(deleted, [(4, true), (4, true), (2, false), (0, false)]);
    });
}

#[test]
fn settling_runs_by_itself() {
    block_on(async {
        let brief = Duration::from_millis(20);
        let options = SettleOptions {
            bundle_age: Duration::ZERO,
            look_every: brief,
            compact_every: brief,
            upkeep_every: brief,
            retention_every: brief,
            checkpoint_every: brief,
            orphans_after: brief,
            orphans_every: brief,
            ..settle_options()
        };
        let mut world = World::with(Arc::new(MemoryStore::new()), options).await;
        world.create(3).await;
        world.write(5, 100).await;
        let running = tokio::spawn(Arc::clone(&world.settler).run(|_, _| ()));
        let last = world.own_chunk(6);
        while world.chunks(world.incarnation).await != [last.clone()] {
            tokio::time::sleep(brief).await;
        }
        running.abort();
        assert!(!world.settler.counts().retention_stopped);
        world.check_cold().await;
    });
}
