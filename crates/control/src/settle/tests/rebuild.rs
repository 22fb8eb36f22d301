//! Does an index that is made again answer as the one that was lost?

use std::collections::BTreeSet;

use wire::ids::Epoch;

use super::moments::Moments;
use super::world::{LATER_MS, World, star};
use super::*;
use crate::channel::{JoinRequest, join};
use crate::index::tests::contents::Contents;
use crate::index::{self, IndexError, IndexOptions, IndexOwner, Missing, Rebuilding, Rebuilt, SlotMade};
use crate::store::StoreOp;

/// Chance from one seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        // xorshift64*, https://en.wikipedia.org/wiki/Xorshift
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end as u64).unwrap()
    }
}

/// Makes a stream; the one that has its name goes.
async fn create(world: &mut World) {
    let next = world.data.streams.len();
    let namesake = world.lives().into_iter().find(|stream| stream % 5 == next % 5);
    if let Some(stream) = namesake {
        let delete = world.delete(stream);
        world.commit(vec![delete]).await;
    }
    world.create(1).await;
}

/// One thing that a star, its clients or their trouble do.
async fn act(world: &mut World, random: &mut Random) {
    let lives = world.lives();
    let pick = random.below(lives.len().max(1));
    let stream = lives.get(pick).copied();
    match (random.below(12), stream) {
        (0, _) | (_, None) => create(world).await,
        (1..=3, Some(_)) => world.write(1 + random.below(3), 40).await,
        (4, Some(stream)) => {
            let to = world.trim_point(stream);
            let to = to + random.below(usize::try_from(world.tail(stream) - to).unwrap() + 1) as u64;
            let trim = world.trim(stream, to);
            world.commit(vec![trim]).await;
        }
        (5, Some(stream)) => {
            let delete = world.delete(stream);
            world.commit(vec![delete]).await;
        }
        (6, Some(stream)) => {
            world.data.streams[stream].config.retention.max_age_ms = random.below(3) as u64 * 100_000_000;
            let class = if random.below(2) == 0 { wire::config::Class::Standard } else { wire::config::Class::Express };
            world.data.streams[stream].config.class = class;
            let reconfigure = world.data.streams[stream].reconfigure();
            world.commit(vec![reconfigure]).await;
        }
        (7, Some(_)) => world.bundle().await,
        (8, Some(_)) => world.delete_chunks().await,
        (9, Some(_)) => {
            world.settler.reclaim_step(unix_ms() + 2 * LATER_MS).await.unwrap();
            world.index.checkpoint().await.unwrap();
        }
        (10, Some(_)) => drop(world.settler.compact_step(unix_ms()).await.unwrap()),
        (_, Some(_)) => world.index.snapshot(&world.prior).await.unwrap(),
    }
}

/// Makes the index again, as the next start of the star.
async fn rebuild(store: &Arc<dyn Store>, accept_loss: bool) -> Result<Rebuilt, IndexError> {
    let request = JoinRequest { star: star(), logs: Vec::new(), at_least: Epoch::new(1), accept_loss: false };
    let joined = loop {
        if let Ok(joined) = join(store, request.clone()).await {
            break joined;
        }
    };
    let channel = joined.channel.clone();
    let made: SlotMade = Arc::new(move |slot: Slot| {
        let channel = channel.clone();
        Box::pin(async move { channel.add_slots_with_index(1 << slot.get()).await.map(drop) })
    });
    let what = Rebuilding {
        store: Arc::clone(store),
        owner: IndexOwner::of(&joined.channel),
        prior: joined.prior,
        slots_with_index: joined.slots_with_index,
        options: IndexOptions { dead_grace_ms: 1000, ..IndexOptions::default() },
        made,
        reads_all: false,
        accept_loss,
        now_ms: unix_ms(),
    };
    Box::pin(index::rebuild(&what, &|_| ())).await
}

async fn remove(store: &Arc<dyn Store>, prefix: &str) {
    let prefix = crate::store::ObjectPrefix::parse(prefix).unwrap();
    for listed in store.list(&prefix, None, 100_000).await.unwrap().objects {
        store.delete(&listed.name).await.unwrap();
    }
}

/// Removes all of the index, and what says where it is.
async fn destroy(store: &Arc<dyn Store>) {
    remove(store, "m/").await;
    store.delete(&ObjectName::parse("meta/index").unwrap()).await.unwrap();
}

/// A star that has lived for a while.
async fn lived(seed: u64, store: Arc<dyn Store>) -> (World, Random) {
    let options = SettleOptions { small_bytes: 3000, small_count: 3, ..settle_options() };
    let mut world = World::with(store, options).await;
    world.believe().await;
    world.create(4).await;
    let mut random = Random(seed * 2 + 1);
    for _ in 0..30 + random.below(30) {
        act(&mut world, &mut random).await;
    }
    (world, random)
}

/// The databases there are, by their generations.
async fn generations(world: &World) -> BTreeSet<String> {
    let names = world.names("m/").await;
    names.iter().map(|name| name.split('/').nth(1).unwrap()).filter(|name| name.len() > 2).map(str::to_owned).collect()
}

async fn rebuild_and_go_on(seed: u64) {
    let (mut world, mut random) = lived(seed, Arc::new(MemoryStore::new())).await;
    for round in 0..3 {
        let before = Contents::of(&world.index).await;
        if random.below(3) > 0 {
            destroy(&world.store).await;
        }
        let done = rebuild(&world.store, false).await.unwrap();
        assert_eq!((done.missing, done.is_in_place), (Vec::new(), true), "seed {seed}, round {round}");
        world = world.crash().await;
        let after = Contents::of(&world.index).await;
        assert_eq!(after, before, "seed {seed}, round {round}");
        world.check_cold().await;
        let lives = after.streams.values().flatten();
        let (streams, bytes) = (lives.clone().count() as u64, lives.map(|row| row.bytes).sum());
        assert_eq!((done.streams, done.bytes), (streams, bytes));
        assert_eq!(generations(&world).await.len(), 1);
        world.believe().await;
        for _ in 0..10 {
            act(&mut world, &mut random).await;
        }
    }
    world.settle().await;
    world.check_cold().await;
}

#[test]
fn a_rebuilt_index_answers_as_the_one_that_was_lost() {
    (0..12).for_each(|seed| block_on(rebuild_and_go_on(seed)));
}

async fn rebuild_in_trouble(seed: u64) {
    let memory = MemoryStore::seeded(seed);
    let (world, _) = lived(seed + 100, Arc::new(memory.clone())).await;
    let before = Contents::of(&world.index).await;
    destroy(&world.store).await;
    let faults = [Fault::BeforeApply, Fault::AfterApply, Fault::ServerError, Fault::Truncated, Fault::Flipped];
    for (fault, prefix) in faults.iter().flat_map(|fault| ["c/", "d/", "s/", "m/", "meta/index"].map(|at| (*fault, at)))
    {
        memory.add(Rule::new(fault).under(prefix).when(When::Chance(0.01)));
    }
    let mut tries = 0;
    while !matches!(rebuild(&world.store, false).await, Ok(Rebuilt { is_in_place: true, .. })) {
        tries += 1;
        assert!(tries < 200, "seed {seed}");
        if tries == 20 {
            memory.calm();
        }
    }
    memory.calm();
    let world = world.crash().await;
    assert_eq!(Contents::of(&world.index).await, before, "seed {seed}");
    world.check_cold().await;
}

#[test]
fn a_store_that_fails_now_and_then_does_not_make_it_another_one() {
    (0..6).for_each(|seed| block_on(rebuild_in_trouble(seed)));
}

#[test]
fn a_rebuild_that_dies_at_any_operation_leaves_the_old_index_or_the_new_one() {
    block_on(async {
        let store = Moments::default();
        let (world, _) = lived(7, Arc::new(store.clone())).await;
        let before = Contents::of(&world.index).await;
        store.keep().await;
        assert!(rebuild(&world.store, false).await.unwrap().is_in_place);
        let moments = store.take().await;
        assert!(moments.len() > 50, "{}", moments.len());
        for (at, moment) in moments.iter().enumerate() {
            let what = format!("after {at} of {} changes", moments.len());
            let other = World::new(moment.store().await).await;
            assert_eq!(Contents::of(&other.index).await, before, "{what}");
            world.check_by(&other).await;
            // A star's look for what nobody knows takes what was given up.
            other.believe().await;
            other.settler.orphan_step(unix_ms()).await.unwrap();
            assert!(generations(&other).await.len() <= 1, "{what}");
            world.check_by(&other).await;
            other.index.close().await.unwrap();
        }
    });
}

/// What settling does, and nothing that is acked comes of it.
async fn settle_some(world: &World, random: &mut Random) {
    let later_ms = unix_ms() + 2 * LATER_MS;
    match random.below(6) {
        0 | 1 => world.bundle().await,
        2 | 3 => world.delete_chunks().await,
        4 => {
            world.settler.reclaim_step(later_ms).await.unwrap();
            world.index.checkpoint().await.unwrap();
        }
        _ => drop(world.settler.compact_step(unix_ms()).await.unwrap()),
    }
}

/// One moment of so many is looked at.
async fn rebuild_at_any_moment(seed: u64, one_of: usize) {
    let store = Moments::default();
    let (mut world, mut random) = lived(seed + 200, Arc::new(store.clone())).await;
    for round in 0..12 {
        store.keep().await;
        settle_some(&world, &mut random).await;
        for (at, moment) in store.take().await.into_iter().enumerate() {
            if random.below(one_of) > 0 {
                continue;
            }
            let found = moment.store().await;
            destroy(&found).await;
            let done = rebuild(&found, false).await.unwrap();
            let what = format!("seed {seed}, round {round}, after {at} changes");
            assert_eq!((done.missing, done.is_in_place), (Vec::new(), true), "{what}");
            let other = World::new(found).await;
            world.check_by(&other).await;
            other.index.close().await.unwrap();
        }
        for _ in 0..3 {
            act(&mut world, &mut random).await;
        }
    }
}

#[test]
fn what_lies_in_the_store_at_any_moment_is_enough_for_another_index() {
    (0..4).for_each(|seed| block_on(rebuild_at_any_moment(seed, 4)));
}

/// A star whose records all lie in bundles.
async fn bundled(store: Arc<dyn Store>) -> World {
    let mut world = World::new(store).await;
    world.create(10).await;
    world.write(4, 100).await;
    world.settle().await;
    world
}

fn names_it(missing: &[Missing], name: &str) -> bool {
    missing.iter().any(|one| one.to_string().contains(name))
}

#[test]
fn a_bundle_that_is_damaged_or_missing_is_named_and_what_it_held_is_not_passed_over() {
    for is_removed in [false, true] {
        block_on(async {
            let memory = MemoryStore::new();
            let world = bundled(Arc::new(memory.clone())).await;
            let lost = ObjectName::parse(&world.names("d/").await[0]).unwrap();
            let whole = world.store.get(&lost, Span::Whole).await.unwrap().body;
            let mut bytes = whole.to_vec();
            bytes[200] ^= 1;
            if is_removed {
                world.store.delete(&lost).await.unwrap();
            } else {
                assert!(memory.tamper(&lost, bytes.into()));
            }
            let objects = world.names("d/").await;
            destroy(&world.store).await;
            let done = rebuild(&world.store, false).await.unwrap();
            assert!(!done.is_in_place && names_it(&done.missing, lost.as_str()), "{:?}", done.missing);
            assert!(done.missing.iter().any(|one| matches!(one, Missing::Records { .. })), "{:?}", done.missing);
            assert_eq!(world.names("m/").await, Vec::<String>::new(), "it left nothing");
            let done = rebuild(&world.store, true).await.unwrap();
            assert!(done.is_in_place && names_it(&done.missing, lost.as_str()), "{:?}", done.missing);
            let world = world.crash().await;
            let told = world::check(&world.data, &world.history).await.unwrap_err();
            assert!(told.to_string().contains(lost.as_str()), "{told}");
            world.settle().await;
            world.settler.orphan_step(unix_ms() + 2 * LATER_MS).await.unwrap();
            let now = world.names("d/").await;
            assert!(objects.iter().all(|object| now.contains(object)), "nothing is deleted: {now:?}");
            // It is brought back.
            world.store.delete(&lost).await.unwrap();
            world.store.put_if_absent(&lost, whole, crate::store::PutNonce::fresh()).await.unwrap();
            let done = rebuild(&world.store, false).await.unwrap();
            assert_eq!((done.missing, done.is_in_place), (Vec::new(), true));
            let world = world.crash().await;
            world.check_cold().await;
        });
    }
}

/// Takes each bundle out in turn: a rebuild names it, before any other, and what it held, and changes nothing.
async fn check_names_of_lost(world: &World) {
    for lost in world.names("d/").await {
        let lost = ObjectName::parse(&lost).unwrap();
        let whole = world.store.get(&lost, Span::Whole).await.unwrap().body;
        world.store.delete(&lost).await.unwrap();
        let done = rebuild(&world.store, false).await.unwrap();
        let first_named = |one: &Missing| match one {
            Missing::Records { objects, .. } => objects.first().cloned(),
            Missing::Object { .. } | Missing::Stream { .. } => None,
        };
        let names: BTreeSet<_> = done.missing.iter().map(first_named).collect();
        assert!(!done.is_in_place && names == BTreeSet::from([Some(lost.to_string())]), "{lost}: {:?}", done.missing);
        world.store.put_if_absent(&lost, whole, crate::store::PutNonce::fresh()).await.unwrap();
    }
    assert_eq!(rebuild(&world.store, false).await.unwrap().missing, Vec::new());
}

#[test]
fn a_bundle_of_streams_that_rest_is_named_when_it_is_missing() {
    block_on(async {
        let mut world = World::new(Arc::new(MemoryStore::new())).await;
        world.create(10).await;
        world.write(4, 100).await;
        // All that chunks say of them is in snapshots before there is a bundle.
        world.index.snapshot(&world.prior).await.unwrap();
        world.settle().await;
        check_names_of_lost(&world).await;
    });
}

#[test]
fn bundles_that_were_rewritten_are_not_named_before_the_one_that_is_missing() {
    block_on(async {
        let options = SettleOptions { small_bytes: 1 << 20, small_count: 3, ..settle_options() };
        let mut world = World::with(Arc::new(MemoryStore::new()), options).await;
        world.create(10).await;
        for _ in 0..3 {
            world.write(2, 100).await;
            world.settle().await;
        }
        while world.settler.compact_step(unix_ms()).await.unwrap().extents > 0 {}
        let trim = vec![world.trim(0, world.trim_point(0))];
        world.commit(trim).await;
        world.settle().await;
        assert_eq!(world.names("d/").await.len(), 5, "one for each slot");
        check_names_of_lost(&world).await;
    });
}

#[test]
fn a_snapshot_or_a_chunk_that_is_damaged_or_missing_is_named_and_nothing_takes_the_place_of_the_index() {
    block_on(async {
        let memory = MemoryStore::new();
        let mut world = bundled(Arc::new(memory.clone())).await;
        world.write(1, 10).await;
        let before = Contents::of(&world.index).await;
        // The first of a channel has no entries, and its end is a fence.
        let chunks = world.chunks(world.incarnation).await;
        let names = [world.names("s/").await, chunks].concat();
        assert!(names.len() > 10 && !names.contains(&world.own_chunk(0)), "{names:?}");
        for name in names {
            let name = ObjectName::parse(&name).unwrap();
            let whole = world.store.get(&name, Span::Whole).await.unwrap().body;
            let mut bytes = whole.to_vec();
            let at = bytes.len() - 20;
            bytes[at] ^= 1;
            assert!(memory.tamper(&name, bytes.into()));
            let done = rebuild(&world.store, false).await.unwrap();
            assert!(!done.is_in_place && names_it(&done.missing, name.as_str()), "{name}: {:?}", done.missing);
            assert!(memory.tamper(&name, whole));
        }
        let world = world.crash().await;
        assert_eq!(Contents::of(&world.index).await, before);
        world.check_cold().await;
    });
}

#[test]
fn a_star_that_was_fenced_by_a_rebuild_changes_nothing_of_the_index() {
    block_on(async {
        let mut world = bundled(Arc::new(MemoryStore::new())).await;
        world.write(1, 10).await;
        let before = Contents::of(&world.index).await;
        assert!(rebuild(&world.store, false).await.unwrap().is_in_place);
        let refused = world.index.checkpoint().await;
        assert!(refused.is_err(), "its files are gone, or the record is another's");
        let record = world.store.get(&ObjectName::parse("meta/index").unwrap(), Span::Whole).await.unwrap();
        let world = world.crash().await;
        let now = world.store.get(&ObjectName::parse("meta/index").unwrap(), Span::Whole).await.unwrap();
        assert_eq!(record.body[12..20], now.body[12..20], "the same databases");
        assert_eq!(Contents::of(&world.index).await, before);
        world.check_cold().await;
    });
}

#[test]
fn snapshots_stay_few_and_hold_what_chunks_said() {
    block_on(async {
        let memory = MemoryStore::new();
        let mut world = bundled(Arc::new(memory.clone())).await;
        memory.inject(StoreOp::Delete, Fault::ServerError);
        for _ in 0..300 {
            let trim = vec![world.trim(0, world.trim_point(0))];
            world.commit(trim).await;
            world.index.snapshot(&world.prior).await.unwrap();
        }
        let slot = world.data.streams[0].slot();
        let snapshots = world.names(&format!("s/{:02x}/", slot.get())).await;
        assert!(snapshots.len() < 260, "{}", snapshots.len());
        assert_eq!(snapshots.iter().filter(|name| name.ends_with("-base")).count(), 2, "{snapshots:?}");
        let before = Contents::of(&world.index).await;
        assert!(rebuild(&world.store, false).await.unwrap().is_in_place);
        let world = world.crash().await;
        assert_eq!(Contents::of(&world.index).await, before);
    });
}
