//! What is too old, and when that is not believed.

use std::sync::Arc;

use wire::handoff::ToShard;

use super::world::{World, right};
use super::{ClockFault, ClockLook};
use crate::index::Enough;
use crate::index::tests::world::block_on;
use crate::store::{Fault, MemoryStore, Rule};

const YEAR_MS: i64 = 365 * 86_400_000;
/// How long records are kept.
const AGE_MS: u64 = 100_000;

/// A star whose one stream has twenty batches of three records, stamped a second apart from 1 s on, kept for 100 s.
async fn aged(store: &MemoryStore) -> World {
    let mut world = World::new(Arc::new(store.clone())).await;
    world.create(1).await;
    world.data.streams[0].config.retention.max_age_ms = AGE_MS;
    let entries = vec![world.data.streams[0].reconfigure()];
    world.commit(entries).await;
    world.write(20, 100).await;
    world
}

fn to(asked: &[ToShard]) -> Vec<u64> {
    let to = |message: &ToShard| match message {
        ToShard::TrimTo { to, .. } => to.get(),
        other => panic!("only trims are asked for, not {other:?}"),
    };
    asked.iter().map(to).collect()
}

/// The clocks so long after the stamps began.
fn at(ms: i64) -> ClockLook {
    right(ms)
}

#[test]
fn records_that_are_too_old_are_trimmed_up_to_the_first_batch_that_is_not() {
    block_on(async {
        let world = aged(&MemoryStore::new()).await;
        assert_eq!(to(&world.retain(at(101_000)).await), [3], "the batch of 1 s");
        let world = aged(&MemoryStore::new()).await;
        assert_eq!(to(&world.retain(at(110_500)).await), [30]);
        assert_eq!(to(&world.retain(at(111_000)).await), Vec::<u64>::new(), "it was asked a moment ago");
        assert_eq!(to(&world.retain(at(171_000)).await), [60], "all, up to the tail");
        assert_eq!(world.settler.counts().trims_asked, 2);
        // In one extent of a bundle: batch by batch all the same, once the first extent is too old.
        let mut world = aged(&MemoryStore::new()).await;
        world.bundle().await;
        world.write(1, 100).await;
        assert_eq!(to(&world.retain(at(119_999)).await), Vec::<u64>::new());
        assert_eq!(to(&world.retain(at(120_000)).await), [60]);
    });
}

#[test]
fn a_stream_is_looked_at_again_as_soon_as_it_was_trimmed() {
    block_on(async {
        let mut world = aged(&MemoryStore::new()).await;
        assert_eq!(to(&world.retain(at(110_500)).await), [30]);
        let entries = vec![world.trim(0, 30)];
        world.commit(entries).await;
        assert_eq!(to(&world.retain(at(111_000)).await), [33], "the batch of 11 s");
    });
}

#[test]
fn an_extent_of_a_bundle_spans_an_hour_at_most_so_that_age_is_kept_to() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        world.create(1).await;
        for _ in 0..9 {
            let entries = vec![world.append(0, 3, 100)];
            world.commit(entries).await;
            // The next batch comes 20 minutes later.
            world.data.streams[0].last_ms += 1_199_000;
        }
        world.settle().await;
        let stream = &world.data.streams[0];
        let extents = world
            .index
            .extents_from(stream.slot(), stream.id(), wire::ids::SeqNum::ZERO, Enough::extents(9))
            .await
            .unwrap();
        let bounds: Vec<_> = extents.iter().map(|extent| (extent.first.get(), extent.end.get())).collect();
        assert_eq!(bounds, [(0, 12), (12, 24), (24, 27)]);
        assert!(extents.iter().all(|extent| extent.object == extents[0].object));
        world.check_cold().await;
    });
}

#[test]
fn a_trim_that_was_asked_for_frees_its_room() {
    block_on(async {
        let mut world = aged(&MemoryStore::new()).await;
        world.bundle().await;
        let asked = to(&world.retain(at(200_000)).await);
        let entries = vec![world.trim(0, asked[0])];
        world.commit(entries).await;
        for _ in 0..2 {
            world.bundle().await;
            world.delete_chunks().await;
            world.settler.reclaim_step(crate::shell::unix_ms() + YEAR_MS).await.unwrap();
            world.index.checkpoint().await.unwrap();
        }
        assert_eq!(world.names("d/").await, Vec::<String>::new());
        assert_eq!(to(&world.retain(at(300_000)).await), Vec::<u64>::new());
    });
}

#[test]
fn more_bytes_than_may_be_are_trimmed_whatever_the_clock_says() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        world.create(1).await;
        world.data.streams[0].config.retention.max_bytes = 3000;
        let entries = vec![world.data.streams[0].reconfigure()];
        world.commit(entries).await;
        world.retain(at(0)).await;
        world.retain(at(0).stepped(YEAR_MS)).await;
        assert!(world.settler.counts().retention_stopped);
        world.write(20, 100).await;
        let asked = to(&world.retain(at(1000).stepped(YEAR_MS)).await);
        assert_eq!(asked, [30], "ten batches of 300 bytes stay");
        assert_eq!(to(&world.retain(at(2000).stepped(YEAR_MS)).await), Vec::<u64>::new());
    });
}

/// In an extent of a bundle, whose batches differ: what is left is what may be, and no batch is cut.
#[test]
fn what_is_too_much_goes_batch_by_batch_whatever_their_sizes() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        world.create(1).await;
        for bytes in [10, 400, 20, 300, 30] {
            let entries = vec![world.append(0, 3, bytes)];
            world.commit(entries).await;
        }
        world.settle().await;
        // Batches of 30, 1200, 60, 900 and 90 bytes in one extent: 2280.
        for (max_bytes, first) in
            [(2280, None), (2279, Some(3)), (2250, Some(3)), (2249, Some(6)), (1000, Some(9)), (89, Some(15))]
        {
            world.data.streams[0].config.retention.max_bytes = max_bytes;
            let entries = vec![world.data.streams[0].reconfigure()];
            world.commit(entries).await;
            let asked = to(&world.retain(at(1000)).await);
            assert_eq!(asked, first.into_iter().collect::<Vec<u64>>(), "of {max_bytes} bytes");
        }
    });
}

/// A stream of so many batches of 900 kB in one extent of a bundle, of which one may be kept.
async fn large(store: &MemoryStore, batches: u64) -> World {
    let mut world = World::new(Arc::new(store.clone())).await;
    world.create(1).await;
    let entries = (0..batches).map(|_| world.append(0, 3, 300_000)).collect();
    world.commit(entries).await;
    world.settle().await;
    world.data.streams[0].config.retention.max_bytes = 900_000;
    let entries = vec![world.data.streams[0].reconfigure()];
    world.commit(entries).await;
    world
}

#[test]
fn one_look_reads_a_bounded_part_of_what_is_too_much_and_the_next_goes_on() {
    block_on(async {
        let mut world = large(&MemoryStore::new(), 12).await;
        let reads = |world: &World| world.history.counts().reads;
        let before = reads(&world);
        assert_eq!(to(&world.retain(at(1000)).await), [24], "eight of eleven batches");
        assert_eq!(to(&world.retain(at(2000)).await), [33]);
        assert_eq!(to(&world.retain(at(3000)).await), Vec::<u64>::new());
        assert_eq!(reads(&world) - before, 11);
        // The batches before are not read once more.
        let entries = vec![world.trim(0, 33), world.append(0, 1, 100)];
        world.commit(entries).await;
        assert_eq!(to(&world.retain(at(4000)).await), [36]);
        assert_eq!(reads(&world) - before, 12);
        // What may be kept again after all is.
        world.data.streams[0].config.retention.max_bytes = 3_000_000;
        let entries = vec![world.data.streams[0].reconfigure()];
        world.commit(entries).await;
        assert_eq!(to(&world.retain(at(5000)).await), Vec::<u64>::new());
    });
}

#[test]
fn what_can_not_be_read_is_not_guessed_at_and_looked_at_again() {
    block_on(async {
        let store = MemoryStore::new();
        let world = large(&store, 4).await;
        store.add(Rule::new(Fault::ServerError).under("d/"));
        assert_eq!(to(&world.retain(at(1000)).await), Vec::<u64>::new());
        assert_eq!(to(&world.retain(at(2000)).await), Vec::<u64>::new());
        store.calm();
        assert_eq!(to(&world.retain(at(3000)).await), [9]);
    });
}

impl ClockLook {
    /// The wall clock moved by itself.
    fn stepped(self, by_ms: i64) -> Self {
        Self { wall_ms: self.wall_ms + by_ms, ..self }
    }
}

#[test]
fn a_step_of_a_year_trims_nothing_until_an_operator_confirms_the_time() {
    block_on(async {
        for step_ms in [YEAR_MS, -YEAR_MS] {
            let world = aged(&MemoryStore::new()).await;
            world.retain(at(50_000)).await;
            for ms in [51_000, 52_000, 500_000] {
                assert_eq!(to(&world.retain(at(ms).stepped(step_ms)).await), Vec::<u64>::new());
            }
            assert_eq!(world.settler.clock_fault(), Some(ClockFault::Stepped { step_ms }));
            assert!(world.settler.counts().retention_stopped);
            world.settler.confirm_clock();
            assert_eq!(world.settler.clock_fault(), None);
            let asked = to(&world.retain(at(501_000).stepped(step_ms)).await);
            assert_eq!(asked, if step_ms > 0 { vec![60] } else { vec![] });
        }
    });
}

#[test]
fn a_step_while_the_star_is_down_is_found_and_a_restart_confirms_nothing() {
    block_on(async {
        for step_ms in [YEAR_MS, -YEAR_MS] {
            let store = MemoryStore::new();
            let world = aged(&store).await;
            world.retain(at(50_000)).await;
            let world = world.crash().await;
            assert_eq!(to(&world.retain(at(60_000).stepped(step_ms)).await), Vec::<u64>::new());
            assert_eq!(world.settler.clock_fault(), Some(ClockFault::Stepped { step_ms }));
            // The next look notes it; then not even another boot makes it forgotten.
            world.retain(at(61_000).stepped(step_ms)).await;
            let world = world.crash().await;
            let rebooted = ClockLook { boot_id: [2; 16], boot_ms: 5, ..at(62_000).stepped(step_ms) };
            assert_eq!(to(&world.retain(rebooted).await), Vec::<u64>::new());
            assert!(world.settler.clock_fault().is_some());
            world.settler.confirm_clock();
            world.retain(ClockLook { boot_ms: 6, ..rebooted }).await;
            let world = world.crash().await;
            world.retain(ClockLook { boot_ms: 7, ..rebooted }).await;
            assert_eq!(world.settler.clock_fault(), None);
        }
    });
}

#[test]
fn what_was_noted_of_clocks_and_cannot_be_read_stops_retention_by_age() {
    block_on(async {
        let store = MemoryStore::new();
        let world = aged(&store).await;
        world.retain(at(50_000)).await;
        let name = crate::store::ObjectName::parse("meta/clock").unwrap();
        store.tamper(&name, b"nonsense".as_slice().into());
        let world = world.crash().await;
        assert_eq!(to(&world.retain(at(500_000)).await), Vec::<u64>::new());
        assert_eq!(world.settler.clock_fault(), Some(ClockFault::Unreadable));
        world.settler.confirm_clock();
        assert_eq!(to(&world.retain(at(501_000)).await), [60]);
    });
}

#[test]
fn while_the_clock_is_not_known_nothing_is_reclaimed() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        world.create(1).await;
        world.write(3, 100).await;
        world.bundle().await;
        let delete = vec![world.delete(0)];
        world.commit(delete).await;
        world.index.checkpoint().await.unwrap();
        let now_ms = crate::shell::unix_ms() + YEAR_MS;
        assert_eq!(world.settler.reclaim_step(now_ms).await.unwrap().objects, 0);
        world.believe().await;
        assert_eq!(world.settler.reclaim_step(now_ms).await.unwrap().objects, 1);
    });
}
