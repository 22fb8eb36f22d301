use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;
use wire::entry::Entry;
use wire::reason::Reason;

use super::*;
use crate::core::extent_walk::tests::{STREAM, Sample, batch, bytes_of, verb};
use crate::core::read_plan::tests::{extent, object};
use crate::store::{Fault, Latency, MemoryStore, PutNonce, StoreOp};

const KIB: usize = 1 << 10;

/// Where the extents of streams lie, by stream.
#[derive(Debug, Default)]
struct Map(Mutex<BTreeMap<StreamId, Vec<Located>>>);

impl Locate for Map {
    fn extents_from(
        &self,
        _: Slot,
        stream_id: StreamId,
        from: SeqNum,
        mut enough: Enough,
    ) -> LocateFuture<'_, Vec<Located>> {
        let map = self.0.lock().unwrap();
        let extents = map.get(&stream_id).into_iter().flatten();
        let is_more = |extent: &Located| {
            let is_more = enough.wants_more();
            is_more.then(|| enough.count(extent));
            is_more
        };
        let found = extents.filter(|extent| from < extent.end).copied().take_while(is_more).collect();
        Box::pin(async move { Ok(found) })
    }

    fn extent_at_time(&self, _: Slot, stream_id: StreamId, ms: i64) -> LocateFuture<'_, Option<Located>> {
        let map = self.0.lock().unwrap();
        let found = map.get(&stream_id).into_iter().flatten().find(|extent| ms <= extent.last_ms).copied();
        Box::pin(async move { Ok(found) })
    }
}

/// A store with objects in it, and where the extents of one stream lie in them.
#[derive(Debug, Default)]
struct World {
    store: MemoryStore,
    map: Arc<Map>,
}

impl World {
    fn history(&self, change: impl FnOnce(&mut HistoryOptions)) -> Arc<History> {
        let mut options = HistoryOptions { block_bytes: 64 << 10, ..HistoryOptions::of_memory(64 << 20) };
        change(&mut options);
        let locate = Arc::clone(&self.map) as Arc<dyn Locate>;
        Arc::new(History::new(Arc::new(self.store.clone()), locate, &options).unwrap())
    }

    async fn put(&self, id: u128, bytes: Vec<u8>) {
        self.store.put_if_absent(&object(id).name(), bytes.into(), PutNonce::fresh()).await.unwrap();
    }

    fn locate(&self, extent: Located) {
        self.map.0.lock().unwrap().entry(STREAM).or_default().push(extent);
    }

    /// An object with these entries as its one extent, behind `before` other bytes.
    async fn settle(&self, id: u128, samples: &[Sample], before: usize) {
        let bytes = bytes_of(samples);
        self.put(id, [vec![0xaa; before], bytes.clone(), vec![0xbb; 1000]].concat()).await;
        self.locate(located(id, samples, before));
    }
}

fn located(id: u128, samples: &[Sample], at: usize) -> Located {
    let bytes = bytes_of(samples);
    let records = samples[0].first..samples.last().unwrap().end();
    let size = u32::try_from(bytes.len()).unwrap();
    Located { crc: crc32c(&bytes), ..extent(object(id), u32::try_from(at).unwrap(), size, records) }
}

/// So many batches of one record of about so many bytes, from `first` on.
fn batches(first: u64, count: u64, body_bytes: usize) -> Vec<Sample> {
    (first..first + count).map(|no| batch(no + 1, no, 1, body_bytes)).collect()
}

async fn read(history: &History, from: u64, bytes_max: usize) -> Result<HistorySpan, HistoryError> {
    let from = HistoryFrom::SeqNum(SeqNum::new(from));
    history.read(Slot::new(5).unwrap(), STREAM, from, u32::try_from(bytes_max).unwrap()).await
}

/// The batches of a span, after a check that its entries are whole and that it says right what they hold.
fn batches_of(span: &HistorySpan) -> Vec<(u64, u64)> {
    let (mut rest, mut found) = (&span.bytes[..], Vec::new());
    while let Some((prefix, behind)) = rest.split_first_chunk::<4>() {
        let (entry, bytes) = Entry::decode(behind).unwrap();
        assert_eq!(bytes, u32::from_le_bytes(*prefix) as usize);
        rest = &behind[bytes..];
        if let Entry::Batch { head, batch, .. } = entry {
            assert_eq!(crc32c(batch), head.batch_crc);
            found.push((head.first.get(), head.end().seq_num.get()));
        }
    }
    assert!(rest.is_empty());
    let bounds = (found.first().map(|(first, _)| *first), found.last().map(|(_, end)| *end));
    assert_eq!(bounds, (Some(span.first.get()), Some(span.end.get())));
    found
}

/// Numbers that a seed decides.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// A stream of random entries, in random extents, over random objects.
async fn scatter(world: &World, random: &mut Random) -> Vec<Sample> {
    let (mut all, mut at, mut rev, mut id) = (Vec::new(), 0, 0, 0_u128);
    let mut object: Vec<u8> = Vec::new();
    for _ in 0..30 {
        let mut extent = Vec::new();
        let large = random.below(4) == 0;
        for _ in 0..=random.below(12) {
            rev += 1;
            if random.below(5) == 0 {
                extent.push(verb(rev, at));
            }
            let body_bytes = random.below(if large { 200 * KIB } else { 3000 }) + 1;
            extent.push(batch(rev, at, u16::try_from(random.below(5) + 1).unwrap(), body_bytes));
            at = extent.last().unwrap().end();
        }
        if random.below(3) == 0 {
            world.put(id, std::mem::take(&mut object)).await;
            id += 1;
        }
        if random.below(2) == 0 {
            object.extend(vec![0xcc; random.below(100 * KIB)]);
        }
        world.locate(located(id, &extent, object.len()));
        object.extend(bytes_of(&extent));
        all.extend(extent);
    }
    world.put(id, object).await;
    all
}

#[tokio::test]
async fn random_extents_over_random_objects_give_exactly_the_records() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let world = World::default();
        let samples = scatter(&world, &mut random).await;
        let directory = tempfile::Builder::new().prefix("nova-history-").tempdir_in("/var/tmp").unwrap();
        let history = world.history(|options| {
            options.memory_bytes = [0, 300 * KIB, 64 << 20][random.below(3)];
            options.block_bytes = [4 << 10, 64 << 10, 1 << 20][random.below(3)];
            options.hedge = random.below(2) == 0;
            let nvme = NvmeOptions { directory: directory.path().to_owned(), bytes: 4 << 20 };
            options.nvme = (random.below(2) == 0).then_some(nvme);
        });
        let expected: Vec<_> = samples.iter().filter(|s| s.records > 0).map(|s| (s.first, s.end())).collect();
        let end = expected.last().unwrap().1;
        for pass in 0..4 {
            let start = random.below(usize::try_from(end).unwrap()) as u64 * (pass % 2);
            let found = read_on(&history, start..end, &mut random).await;
            let wanted: Vec<_> = expected.iter().filter(|(_, end)| start < *end).copied().collect();
            assert_eq!(found, wanted, "seed {seed} from {start}");
        }
        assert_eq!(read(&history, end, 1000).await.unwrap().bytes.len(), 0);
    }
}

/// The batches that hold these records, read one behind the other.
async fn read_on(history: &History, records: std::ops::Range<u64>, random: &mut Random) -> Vec<(u64, u64)> {
    let (mut at, mut found) = (records.start, Vec::new());
    while at < records.end {
        let span = read(history, at, random.below(900 * KIB)).await.unwrap();
        found.extend(batches_of(&span).into_iter().filter(|(_, end)| at < *end));
        at = span.end.get();
    }
    found
}

#[tokio::test]
async fn a_time_starts_at_the_first_record_stamped_then_or_later() {
    let world = World::default();
    let (small, large) = (batches(0, 10, 100), batches(10, 10, 90 * KIB));
    world.settle(1, &small, 0).await;
    world.settle(2, &large, 0).await;
    let history = world.history(|_| ());
    let at = async |ms| {
        let from = HistoryFrom::Timestamp(ms);
        history.read(Slot::new(5).unwrap(), STREAM, from, 2 << 20).await.unwrap()
    };
    assert_eq!(at(-5).await.first.get(), 0);
    // Of a small extent the whole comes; of a large one what is wanted. Record n is stamped 10 n + 10.
    assert_eq!(at(55).await.first.get(), 0);
    assert_eq!(at(151).await.first.get(), 15);
    assert_eq!(at(160).await.first.get(), 15);
    assert_eq!(at(200).await.first.get(), 19);
    assert!(at(201).await.bytes.is_empty());
}

#[tokio::test]
async fn a_block_is_got_once_however_many_ask() {
    let world = World::default();
    let samples = batches(0, 12, 30 * KIB);
    world.settle(1, &samples, 10 * KIB).await;
    let history = world.history(|_| ());
    world.store.hold();
    let readers: Vec<_> = (0..100)
        .map(|_| {
            let history = Arc::clone(&history);
            tokio::spawn(async move { read(&history, 0, 512 << 10).await.unwrap() })
        })
        .collect();
    // There is room for the answers of all of them. 360 KiB and what stands before them lie in 6 blocks of 64 KiB.
    while world.store.waiting() < 6 || history.counts().joins < 99 * 6 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    world.store.release();
    for reader in readers {
        assert_eq!(reader.await.unwrap().bytes, bytes_of(&samples));
    }
    let counts = history.counts();
    assert_eq!((counts.gets, counts.memory_misses, counts.joins), (6, 6, 99 * 6));
    assert_eq!(read(&history, 0, 1 << 20).await.unwrap().end.get(), 12);
    assert_eq!((history.counts().gets, history.counts().memory_hits), (6, 6));
}

#[tokio::test]
async fn what_is_damaged_is_never_served_and_the_error_says_where_it_lies() {
    let world = World::default();
    let samples = [batches(0, 3, 100), batches(3, 12, 80 * KIB)];
    world.settle(1, &samples[0], 500).await;
    world.settle(2, &samples[1], 0).await;
    let name = object(1).name();
    let good = world.store.get(&name, crate::store::Span::Whole).await.unwrap().body;
    let mut bad = good.to_vec();
    bad[600] ^= 4;
    world.store.tamper(&name, bad.into());
    let history = world.history(|_| ());
    let error = read(&history, 0, 1000).await.unwrap_err();
    assert!(matches!(error, HistoryError::Damaged { at: 500, .. }), "{error}");
    assert_eq!(error.reason(), Reason::Internal);
    let text = error.to_string();
    assert!(text.contains(name.as_str()) && text.contains("at byte 500") && text.contains("restore it"), "{text}");
    // Records behind it are read, and these once the object is restored.
    assert_eq!(read(&history, 3, 1000).await.unwrap().first.get(), 3);
    world.store.tamper(&name, good);
    assert_eq!(read(&history, 0, 1000).await.unwrap().bytes, bytes_of(&samples[0]));
    assert_eq!(world.store.objects(), 2);

    // A part of a large extent.
    let name = object(2).name();
    let mut bad = bytes_of(&samples[1]);
    bad[500 * KIB] ^= 4;
    world.store.tamper(&name, bad.into());
    let history = world.history(|_| ());
    let error = read(&history, 5, 600 * KIB).await.unwrap_err();
    assert!(matches!(error, HistoryError::Entries { .. }) && error.to_string().contains(name.as_str()), "{error}");
    assert_eq!(read(&history, 7, 100 * KIB).await.unwrap().first.get(), 7);
}

#[tokio::test]
async fn an_object_that_is_missing_or_short_is_an_error_that_names_it() {
    let world = World::default();
    world.locate(located(1, &batches(0, 3, 100), 0));
    let history = world.history(|_| ());
    let error = read(&history, 0, 1000).await.unwrap_err();
    assert!(matches!(error, HistoryError::Missing { at: 0, .. }), "{error}");
    assert!(error.to_string().contains(object(1).name().as_str()));
    world.put(1, bytes_of(&batches(0, 2, 100))).await;
    let error = read(&history, 0, 1000).await.unwrap_err();
    assert!(matches!(error, HistoryError::Short { .. }), "{error}");
    world.map.0.lock().unwrap().clear();
    world.locate(located(1, &batches(0, 3, 100), 100 * KIB));
    let error = read(&history, 0, 1000).await.unwrap_err();
    assert!(matches!(error, HistoryError::Short { .. }), "{error}");
}

#[tokio::test]
async fn bytes_changed_on_their_way_are_asked_for_again() {
    for body_bytes in [100, 90 * KIB] {
        let world = World::default();
        let samples = batches(0, 8, body_bytes);
        world.settle(1, &samples, 0).await;
        let history = world.history(|_| ());
        world.store.inject(StoreOp::Get, Fault::Flipped);
        let span = read(&history, 0, 1 << 20).await.unwrap();
        assert_eq!(span.bytes, bytes_of(&samples), "{body_bytes}");
        assert_eq!(history.counts().damaged_reads, 1);
    }
}

#[tokio::test]
async fn a_get_that_fails_is_an_error_and_not_kept() {
    for fault in [Fault::ServerError, Fault::Truncated] {
        let world = World::default();
        world.settle(1, &batches(0, 3, 100 * KIB), 0).await;
        let history = world.history(|_| ());
        world.store.inject(StoreOp::Get, fault);
        let error = read(&history, 0, 1 << 20).await.unwrap_err();
        assert_eq!(error.reason(), Reason::Unavailable, "{error}");
        assert_eq!(read(&history, 0, 1 << 20).await.unwrap().end.get(), 3);
        assert_eq!(history.counts().get_failures, 1);
    }
}

#[tokio::test]
async fn a_get_ends_when_nobody_waits_for_it_and_the_next_reader_asks_anew() {
    let world = World::default();
    world.settle(1, &batches(0, 3, 100), 0).await;
    let history = world.history(|options| options.reads_in_flight = 1);
    world.store.inject(StoreOp::Get, Fault::Hang);
    assert!(timeout(Duration::from_millis(20), read(&history, 0, 1000)).await.is_err());
    // The one turn there is was given back.
    let span = timeout(Duration::from_secs(5), read(&history, 0, 1000)).await.unwrap().unwrap();
    assert_eq!((span.end.get(), history.counts().gets), (3, 2));
}

#[tokio::test]
async fn a_get_that_hangs_is_asked_a_second_time_and_ends() {
    let world = World::default();
    for no in 0..40 {
        world.settle(u128::from(no), &batches(no, 1, 100), 0).await;
    }
    let history = world.history(|options| options.hedge = true);
    for no in (0..39).rev() {
        read(&history, no, 1).await.unwrap();
    }
    assert_eq!(history.counts().hedges, 0);
    world.store.inject(StoreOp::Get, Fault::Hang);
    let span = timeout(Duration::from_secs(5), read(&history, 39, 1)).await.unwrap().unwrap();
    assert_eq!(span.end.get(), 40);
    let counts = history.counts();
    assert_eq!((counts.hedges, counts.hedge_wins, counts.gets), (1, 1, 41));
    // One that is slow may answer first all the same.
    history.blocks.forget(Run::of(&located(39, &batches(39, 1, 100), 0), 0).exact().key);
    world.store.set_latency(Latency { p50: Duration::from_millis(60), p99: Duration::from_millis(60) });
    let span = timeout(Duration::from_secs(5), read(&history, 39, 1)).await.unwrap().unwrap();
    assert_eq!((span.end.get(), history.counts().hedges, history.counts().hedge_wins), (40, 2, 1));
}

#[tokio::test]
async fn a_chunk_that_was_just_committed_needs_no_get() {
    let world = World::default();
    let samples = batches(0, 20, 20 * KIB);
    world.settle(1, &samples, 3000).await;
    let history = world.history(|_| ());
    let body = world.store.get(&object(1).name(), crate::store::Span::Whole).await.unwrap().body;
    history.insert_chunk(object(1), &body);
    for at in 0..20 {
        let span = read(&history, at, 1 << 20).await.unwrap();
        assert_eq!(batches_of(&span).last(), Some(&(19, 20)));
    }
    assert_eq!(history.counts().gets, 0);
    assert!(history.memory_bytes() >= body.len());
}

#[tokio::test]
async fn memory_stays_under_its_bound_and_what_leaves_it_comes_back_from_the_file() {
    let world = World::default();
    let directory = tempfile::Builder::new().prefix("nova-history-").tempdir_in("/var/tmp").unwrap();
    let bytes_max = 300 * KIB;
    for no in 0..20 {
        world.settle(u128::from(no), &batches(no, 1, 300 * KIB), 0).await;
    }
    let history = world.history(|options| {
        options.memory_bytes = bytes_max;
        options.nvme = Some(NvmeOptions { directory: directory.path().to_owned(), bytes: 16 << 20 });
    });
    // The disk is behind for a while, the first time.
    for pause_ms in [20, 0] {
        for no in 0..20 {
            assert_eq!(read(&history, no, 1000).await.unwrap().first.get(), no);
            assert!(history.memory_bytes() <= bytes_max, "{} in memory", history.memory_bytes());
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }
    let counts = history.counts();
    assert!(counts.nvme_hits >= 60 && counts.nvme_writes >= 60, "{counts:?}");
    assert_eq!(counts.nvme_stale, 0);
}

#[tokio::test]
async fn what_a_reader_will_ask_for_next_is_fetched_before_it_asks() {
    let world = World::default();
    for no in 0..10 {
        world.settle(u128::from(no), &batches(no, 1, 60 * KIB), 0).await;
    }
    let history = world.history(|_| ());
    for no in 0..10 {
        read(&history, no, 1000).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let counts = history.counts();
    // The first two reads bring their own; all others find theirs.
    assert_eq!((counts.gets, counts.sequential_reads, counts.memory_hits), (10, 9, 8));
    assert_eq!(counts.prefetches, 8);

    // One that jumps about is not fetched ahead for.
    let history = world.history(|_| ());
    for no in [0, 5, 2, 8] {
        read(&history, no, 1000).await.unwrap();
    }
    assert_eq!((history.counts().gets, history.counts().prefetches), (4, 0));
}

#[tokio::test]
async fn small_extents_alone_are_got_exactly_until_there_are_many_of_a_block() {
    let world = World::default();
    let mut bytes = Vec::new();
    let mut got = Vec::new();
    for no in 0..8 {
        let samples = batches(no, 1, 100);
        bytes.extend(vec![0xdd; 2000]);
        world.locate(located(1, &samples, bytes.len()));
        bytes.extend(bytes_of(&samples));
        got.push(bytes_of(&samples).len() as u64);
    }
    world.put(1, bytes.clone()).await;
    let history = world.history(|_| ());
    for no in [0, 2, 4, 6] {
        read(&history, no, 1).await.unwrap();
    }
    assert_eq!((history.counts().gets, history.counts().get_bytes), (4, 4 * got[0]));
    for no in [1, 3, 5, 7, 0] {
        read(&history, no, 1).await.unwrap();
    }
    assert_eq!((history.counts().gets, history.counts().get_bytes), (5, 4 * got[0] + bytes.len() as u64));
}

#[tokio::test]
async fn a_block_that_left_memory_again_is_fetched_after_ever_more_extents_alone() {
    let world = World::default();
    let mut bytes = Vec::new();
    for no in 0..100 {
        let samples = batches(no, 1, 100);
        bytes.extend(vec![0xdd; 200]);
        world.locate(located(1, &samples, bytes.len()));
        bytes.extend(bytes_of(&samples));
    }
    world.put(1, bytes.clone()).await;
    // Room for a few extents, and none for the block.
    let history = world.history(|options| options.memory_bytes = 2000);
    let mut blocks = Vec::new();
    for no in 0..100 {
        let before = history.counts().get_bytes;
        read(&history, no * 37 % 100, 1).await.unwrap();
        blocks.extend((history.counts().get_bytes - before == bytes.len() as u64).then_some(no));
    }
    assert_eq!(blocks, [4, 13, 30, 63]);
}

#[tokio::test]
async fn a_reader_of_many_small_extents_asks_the_index_now_and_then() {
    let world = World::default();
    let mut bytes = Vec::new();
    for no in 0..3000 {
        let samples = batches(no, 1, 100);
        world.locate(located(1, &samples, bytes.len()));
        bytes.extend(bytes_of(&samples));
    }
    world.put(1, bytes).await;
    let history = world.history(|_| ());
    let mut at = 0;
    while at < 3000 {
        let span = read(&history, at, 10 * KIB).await.unwrap();
        assert_eq!(span.first.get(), at);
        at = span.end.get();
    }
    let counts = history.counts();
    assert!(counts.reads > 20 && counts.look_ups <= 6, "{counts:?}");
}

#[tokio::test]
async fn whoever_took_a_part_of_an_answer_goes_on_where_that_began() {
    let world = World::default();
    // One extent of 100 blocks: read from its start, each read would get more of them.
    world.settle(1, &batches(0, 200, 32 * KIB), 0).await;
    let history = world.history(|options| options.memory_bytes = 256 << 10);
    for no in (0..190).step_by(2) {
        let span = read(&history, no, 128 * KIB).await.unwrap();
        assert_eq!(span.first.get(), no);
    }
    let counts = history.counts();
    assert!(counts.get_bytes < 40 << 20, "{counts:?}");
}

#[tokio::test]
async fn an_answer_is_not_copied_unless_it_would_keep_much_more_from_being_freed() {
    let world = World::default();
    let (large, small) = (batches(0, 1, 300 * KIB), batches(1, 1, 1000));
    let bytes = [bytes_of(&large), bytes_of(&small)].concat();
    world.put(1, bytes.clone()).await;
    world.locate(located(1, &large, 0));
    world.locate(located(1, &small, bytes_of(&large).len()));
    let history = world.history(|options| options.block_bytes = 1 << 20);
    let block = Bytes::from(bytes);
    history.insert_chunk(object(1), &block);
    let within = |span: &HistorySpan| block.as_ptr_range().contains(&span.bytes.as_ptr());
    assert!(within(&read(&history, 0, 1).await.unwrap()));
    assert!(within(&read(&history, 0, 1 << 20).await.unwrap()));
    assert!(!within(&read(&history, 1, 1).await.unwrap()));
}

#[tokio::test]
async fn no_more_gets_are_under_way_than_may_be() {
    let world = World::default();
    for no in 0..30 {
        world.settle(u128::from(no), &batches(no, 1, 100), 0).await;
    }
    let history = world.history(|options| options.reads_in_flight = 4);
    world.store.hold();
    let reads: Vec<_> = (0..30)
        .map(|no| {
            let history = Arc::clone(&history);
            tokio::spawn(async move { read(&history, no, 1).await.unwrap() })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(world.store.waiting(), 4);
    world.store.release();
    for (no, span) in (0..).zip(reads) {
        assert_eq!(span.await.unwrap().first, SeqNum::new(no));
    }
}

#[tokio::test]
async fn counts_have_names() {
    let counts = World::default().history(|_| ()).counts();
    assert!(counts.named().any(|(name, count)| name == "memory_hits" && count == 0));
}
