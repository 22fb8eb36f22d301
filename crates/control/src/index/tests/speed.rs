//! How fast are chunks applied, what does an opening take, and what piles up under load?

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::world::{Stream, World, block_on};
use crate::channel::chunk_name;
use crate::index::{CheckpointPolicy, Index, IndexOptions};
use crate::store::{LocalDirectory, MemoryStore, Metered, PutNonce, StoreMeter, StoreOp};

/// Chunks of one small extent for each of many streams, and of a large one for a few.
#[test]
#[ignore = "a measurement"]
fn chunks_are_applied_fast() {
    block_on(async {
        for (streams, rounds, records, bytes) in [(2_000_u32, 100, 1, 100), (4, 100, 15, 64 * 1024)] {
            let mut world = World::new(Arc::new(MemoryStore::new())).await;
            let mut all: Vec<_> = (0..streams).map(|number| Stream::numbered(number, &format!("s{number}"))).collect();
            let created = all.iter_mut().map(Stream::create).collect();
            world.commit(created).await.unwrap();
            let mut chunks = Vec::new();
            for _ in 0..rounds {
                let entries: Vec<_> = all.iter_mut().map(|stream| stream.append(records, bytes)).collect();
                chunks.push(world.build(&entries, 0));
                world.position += 1;
            }
            let total: usize = chunks.iter().map(|chunk| chunk.0.bytes.len()).sum();
            let start = Instant::now();
            for chunk in &chunks {
                world.index.apply(std::slice::from_ref(&chunk.0)).await.unwrap();
            }
            let took = start.elapsed().as_secs_f64();
            let (extents, mib) = (f64::from(streams * rounds) / took, total as f64 / took / 1e6);
            eprintln!("{streams} streams: {extents:.0} extents/s, {mib:.0} MB/s, {took:.2} s");
            let start = Instant::now();
            world.index.checkpoint().await.unwrap();
            eprintln!("checkpoint of {} slots: {:?}", world.made().count_ones(), start.elapsed());
        }
    });
}

/// Chunks of streams that are made, each with one record, while what is applied goes to the store and is compacted there.
#[test]
#[ignore = "a measurement"]
fn new_streams_are_applied_fast() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    block_on(async {
        let store = Arc::new(LocalDirectory::open(directory.path()).unwrap());
        let policy = CheckpointPolicy { row_bytes_max: 64 << 20, ..CheckpointPolicy::default() };
        let world = World::open(store, 0, IndexOptions { checkpoint: policy, ..IndexOptions::default() }).await;
        let tending = async {
            loop {
                world.index.checkpoint_if_due(Duration::ZERO).await.unwrap();
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let keeping_up = async {
            loop {
                world.index.upkeep().await.unwrap();
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        };
        tokio::select! {
            () = apply_new_streams(&world.index) => {}
            _ = tending => {}
            _ = keeping_up => {}
        }
    });
}

async fn apply_new_streams(index: &Index) {
    const CHUNKS: u32 = 90;
    const STREAMS: u32 = 16_384;
    let mut writer = World::new(Arc::new(MemoryStore::new())).await;
    let (mut took, mut said) = (Duration::ZERO, Instant::now());
    for chunk in 0..CHUNKS {
        let numbers = chunk * STREAMS..(chunk + 1) * STREAMS;
        let streams = numbers.map(|number| Stream::numbered(number, &format!("streams/{number:08}")));
        let entries: Vec<_> = streams.flat_map(|mut stream| [stream.create(), stream.append(1, 100)]).collect();
        let built = writer.build(&entries, 0);
        writer.position += 1;
        let start = Instant::now();
        index.apply(std::slice::from_ref(&built.0)).await.unwrap();
        took += start.elapsed();
        if said.elapsed() > Duration::from_secs(5) {
            said = Instant::now();
            let open = index.opened_slots().await.unwrap();
            let tables: usize = open.iter().map(|open| open.db.manifest().l0().len()).sum();
            let streams = (chunk + 1) * STREAMS;
            let rate = f64::from(streams) / took.as_secs_f64();
            eprintln!("{streams} streams, {rate:.0} a second, {tables} tables wait");
        }
    }
}

/// Does some work, and says what that took.
async fn told<T>(what: &str, meter: &StoreMeter, work: impl Future<Output = T>) -> T {
    let spent = || {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let reads = meter.snapshot().rows.iter().filter(|row| row.op == StoreOp::Get).map(|row| row.calls).sum::<u64>();
        (Duration::new(cpu.tv_sec.unsigned_abs(), u32::try_from(cpu.tv_nsec).unwrap()), reads)
    };
    let (start, (cpu, reads)) = (Instant::now(), spent());
    let done = work.await;
    let (took, (cpu_after, reads_after)) = (start.elapsed(), spent());
    eprintln!("{what}: {took:?}, {:?} of CPU, {} reads", cpu_after - cpu, reads_after - reads);
    done
}

/// A star ends with thirteen chunks that are not in its index durably, each with a sixth of 100 000 streams that are evenly spread among a
/// million: what a start spends on them, and on the rows of as many streams as one of them has.
#[test]
#[ignore = "a measurement"]
fn chunks_are_replayed_fast() {
    const STREAMS: u32 = 1_000_000;
    const ACTIVE: u32 = 100_000;
    const CHUNKS: u32 = 13;
    const IN_CHUNK: u32 = 16_384;
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    block_on(async {
        let (store, meter) = Metered::new(Arc::new(LocalDirectory::open(directory.path()).unwrap()));
        // A tenth of what ten million streams have by default.
        let options = IndexOptions { cache_bytes: 6 << 20, ..IndexOptions::default() };
        let mut world = World::open(Arc::clone(&store), 0, options).await;
        let mut active = Vec::new();
        for first in (0..STREAMS).step_by(IN_CHUNK as usize) {
            let numbers = first..STREAMS.min(first + IN_CHUNK);
            let mut all: Vec<_> = numbers.map(|number| Stream::numbered(number, &format!("{number:08}"))).collect();
            let entries: Vec<_> = all.iter_mut().flat_map(|stream| [stream.create(), stream.append(1, 100)]).collect();
            let chunk = world.build(&entries, 0);
            world.position += 1;
            world.index.apply(std::slice::from_ref(&chunk.0)).await.unwrap();
            active.extend((first..).zip(all).filter(|(number, _)| number % (STREAMS / ACTIVE) == 0).map(|(_, it)| it));
        }
        world.index.checkpoint().await.unwrap();
        world.index.upkeep().await.unwrap();
        for round in 0..CHUNKS {
            let mut append = |turn: u32| active[((turn * 7_919 + round * 10_007) % ACTIVE) as usize].append(1, 100);
            let chunk = world.build(&(0..IN_CHUNK).map(&mut append).collect::<Vec<_>>(), 0);
            world.position += 1;
            store.put_if_absent(&chunk_name(chunk.0.at), chunk.0.bytes, PutNonce::fresh()).await.unwrap();
        }
        let prior = [world.ended()];
        let world = world.crash().await;
        let replayed = Box::pin(told("thirteen chunks", &meter, world.index.replay(&prior))).await.unwrap();
        assert_eq!(replayed.chunks, u64::from(CHUNKS));
        let world = world.crash().await;
        let wanted: Vec<_> = active.iter().take(IN_CHUNK as usize).map(|stream| (stream.slot(), stream.id())).collect();
        let rows = told("16 384 rows", &meter, world.index.rows_by_id(&wanted)).await.unwrap();
        assert_eq!(rows.len(), wanted.len());
    });
}

/// One slot takes chunks for half a minute, with checkpoints and upkeep as in life, only more often.
#[test]
#[ignore = "a measurement"]
fn a_busy_slot_stays_within_bounds() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    block_on(async {
        let store = Arc::new(LocalDirectory::open(directory.path()).unwrap());
        let short = Duration::from_secs(5);
        let options = IndexOptions { garbage_age: short, garbage_every: short, ..IndexOptions::default() };
        let mut world = World::open(store, 0, options).await;
        let of_slot = (0..).map(|number| Stream::numbered(number, &format!("s{number}")));
        let mut all: Vec<_> = of_slot.filter(|stream| stream.slot().get() == 0).take(2000).collect();
        world.commit(all.iter_mut().map(Stream::create).collect()).await.unwrap();
        let (start, mut extents, mut said) = (Instant::now(), 0, Instant::now());
        let mut slowest = Duration::ZERO;
        while start.elapsed() < Duration::from_secs(40) {
            let mut entries: Vec<_> = all.iter_mut().map(|stream| stream.append(1, 100)).collect();
            if world.position.is_multiple_of(10) {
                let to = world.position / 2;
                entries.extend(all.iter_mut().map(|stream| stream.trim(to)));
            }
            let chunk = world.build(&entries, 0);
            world.position += 1;
            let before = Instant::now();
            world.index.apply(std::slice::from_ref(&chunk.0)).await.unwrap();
            slowest = slowest.max(before.elapsed());
            extents += all.len();
            if said.elapsed() > Duration::from_secs(4) {
                said = Instant::now();
                let tables = world.index.opened_slots().await.unwrap()[0].db.manifest();
                let (new, runs, files) = (tables.l0().len(), tables.compacted().len(), world.files().await);
                eprintln!("{extents} extents, {new} tables, {runs} runs, {files} files, slowest {slowest:?}");
                tokio::join!(async { world.index.upkeep().await.unwrap() }, async {
                    world.index.checkpoint().await.unwrap();
                });
                eprintln!("upkeep {:?}", said.elapsed());
                slowest = Duration::ZERO;
            }
        }
        for _ in 0..5 {
            world.index.checkpoint().await.unwrap();
            let stream = all[7].clone();
            world = world.crash().await;
            let opening = Instant::now();
            assert!(world.row(&stream).await.is_some());
            eprintln!("opening and a first row: {:?}", opening.elapsed());
        }
    });
}

/// What the store is asked for by openings, checkpoints and idle slots.
#[test]
#[ignore = "a measurement"]
fn store_operations_are_few() {
    block_on(async {
        let (store, meter) = Metered::new(Arc::new(MemoryStore::new()));
        let said = std::cell::Cell::new((0, 0));
        let say = |what: &str| {
            let rows = meter.snapshot().rows;
            let all: u64 = rows.iter().map(|row| row.calls).sum();
            let puts: u64 = rows.iter().filter(|row| row.op <= StoreOp::PutIfMatch).map(|row| row.calls).sum();
            let before = said.replace((all, puts));
            eprintln!("{what}: {} operations, {} of them puts", all - before.0, puts - before.1);
        };
        let mut world = World::new(store).await;
        let mut stream = Stream::new(1, "a");
        world.commit(vec![stream.create()]).await.unwrap();
        say("a chunk, and a new slot");
        world.index.checkpoint().await.unwrap();
        say("a checkpoint");
        world.commit(vec![stream.append(1, 1)]).await.unwrap();
        world.index.checkpoint().await.unwrap();
        say("a chunk, and a checkpoint");
        world = world.crash().await;
        say("an index");
        assert!(world.row(&stream).await.is_some());
        say("a slot opened, and a row");
        tokio::time::sleep(Duration::from_secs(95)).await;
        say("a minute and a half of nothing, of two openings");
    });
}
