//! Stars that write, settle, fail and die at random.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::world::{LATER_MS, World, index_options, settle_options};
use super::{SettleOptions, unix_ms};
use crate::index::tests::world::block_on;
use crate::store::{Fault, MemoryStore, Rule, When};

/// A step that hangs is given up after this.
const DIES_WITHIN: Duration = Duration::from_millis(200);

/// Numbers that a seed decides.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// Appends, trims, deletes and creates, in one chunk.
async fn write(world: &mut World, draw: &mut Draw) {
    let mut entries = Vec::new();
    for stream in world.lives() {
        match draw.below(12) {
            0..=5 => entries.push(world.append(stream, u16::try_from(1 + draw.below(4)).unwrap(), draw.below(900))),
            6 if world.tail(stream) > 0 => {
                let to = world.trim_point(stream) + 1 + draw.below(30) as u64;
                entries.push(world.trim(stream, to.min(world.tail(stream))));
            }
            7 if draw.below(4) == 0 => entries.push(world.delete(stream)),
            8 => entries.push(world.data.streams[stream].reconfigure()),
            _ => {}
        }
    }
    if !entries.is_empty() {
        world.commit(entries).await;
    }
    if world.lives().len() < 8 {
        world.create(2).await;
    }
}

/// One step; what fails is taken again some other time.
async fn settle(world: &World, draw: &mut Draw) {
    let (settler, now_ms) = (&world.settler, unix_ms() + LATER_MS);
    match draw.below(6) {
        0 => drop(settler.bundle_step(now_ms).await),
        1 => drop(settler.compact_step(now_ms).await),
        2 => drop(settler.delete_step().await),
        3 => drop(settler.reclaim_step(now_ms).await),
        4 => drop(settler.orphan_step(now_ms + LATER_MS).await),
        _ => drop(world.index.checkpoint().await),
    }
}

fn make_trouble(memory: &MemoryStore) {
    for fault in [Fault::BeforeApply, Fault::AfterApply, Fault::Flipped, Fault::Truncated] {
        for prefix in ["c/", "d/"] {
            memory.add(Rule::new(fault).under(prefix).when(When::Chance(0.05)));
        }
    }
}

/// Dies within a step: one of its next requests never comes back, and those behind it are not made.
async fn die_within(world: World, memory: &MemoryStore, draw: &mut Draw) -> World {
    memory.add(Rule::new(Fault::Hang).when(When::Nth(1 + draw.below(40) as u64)));
    // A step that asked less is over before.
    drop(timeout(DIES_WITHIN, settle(&world, draw)).await);
    memory.calm();
    world.crash().await
}

async fn life(seed: u64) {
    let memory = MemoryStore::seeded(seed);
    let options = SettleOptions {
        small_bytes: 8000,
        small_count: 3,
        own_bytes: 6000,
        object_bytes: 12_000,
        bundle_bytes: 20_000,
        // In every other life a step makes one bundle.
        copy_time: if seed.is_multiple_of(2) { Duration::ZERO } else { settle_options().copy_time },
        ..settle_options()
    };
    let mut world = World::with(Arc::new(memory.clone()), options).await;
    assert_eq!(index_options().dead_grace_ms, 1000, "shorter than an hour, which is how far steps are ahead");
    let mut draw = Draw(seed);
    world.create(8).await;
    world.believe().await;
    for _ in 0..120 {
        match draw.below(10) {
            0..=3 => write(&mut world, &mut draw).await,
            4..=7 => {
                make_trouble(&memory);
                settle(&world, &mut draw).await;
                memory.calm();
            }
            8 => settle(&world, &mut draw).await,
            _ if draw.below(2) == 0 => {
                world = Box::pin(die_within(world, &memory, &mut draw)).await;
                world.believe().await;
                world.check().await;
            }
            _ => world.check_cold().await,
        }
    }
    Box::pin(finish(world)).await;
}

/// Once nothing happens any more, there is nothing in the store that nobody needs.
async fn finish(world: World) {
    let mut world = world.crash().await;
    world.believe().await;
    world.write(1, 10).await;
    world.settle().await;
    world.settler.orphan_step(unix_ms() + 3 * LATER_MS).await.unwrap();
    world.settle().await;
    world.check_cold().await;
    let mut known = 0;
    for slot in wire::slot::Slot::all() {
        known += world.index.bundles(slot, None, 1000).await.unwrap().len();
    }
    assert_eq!(world.names("d/").await.len(), known, "bundles, and those that the index knows");
    assert_eq!(world.chunks(world.incarnation).await.len(), 1);
    let channels = usize::try_from(world.incarnation.get()).unwrap();
    assert!(world.names("c/").await.len() <= 2 * channels, "fences, and chunks without entries");
    for stream in world.lives() {
        let trim = world.trim(stream, world.tail(stream));
        world.commit(vec![trim]).await;
    }
    for _ in 0..3 {
        world.settle().await;
    }
    assert_eq!(world.names("d/").await, Vec::<String>::new());
    let world = world.crash().await;
    world.check().await;
}

#[test]
fn whatever_happens_what_was_acked_is_read_and_what_nobody_needs_goes() {
    for seed in 1..=6 {
        println!("seed {seed}");
        block_on(life(seed));
    }
}
