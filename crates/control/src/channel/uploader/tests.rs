use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use wire::ids::{Epoch, Lsn};

use super::{UNTAKEN_MAX, UploadOptions};
use crate::channel::lease::{Lease, LeaseState, object_of};
use crate::channel::tests::{EXPRESS, LOG, SHARD, STANDARD, Writer, recover, request, star};
use crate::channel::{ChunkId, PriorChannel, join, read_chunk};
use crate::store::{Fault, LocalDirectory, MemoryStore, Rule, Span, Store, StoreOp, When};

async fn start(options: UploadOptions) -> (MemoryStore, Arc<dyn Store>, Writer) {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let joined = join(&store, request(star(1))).await.unwrap();
    let writer = Writer::with(joined, options);
    (memory, store, writer)
}

async fn lease(store: &Arc<dyn Store>) -> Lease {
    Lease::decode(&store.get(&object_of(star(1)), Span::Whole).await.unwrap().body).unwrap()
}

fn written(end: u64) -> [PriorChannel; 1] {
    [PriorChannel { incarnation: Epoch::new(1), low: 0, end }]
}

#[tokio::test(start_paused = true)]
async fn a_lone_parcel_is_committed_without_waiting_for_anything_but_the_store() {
    let (_, store, mut writer) = start(UploadOptions::default()).await;
    let began = Instant::now();
    writer.standard(1..4);
    let chunk = writer.committed.recv().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(chunk.at, ChunkId { incarnation: Epoch::new(1), position: 1 });
    assert_eq!((chunk.standard, chunk.settled), (vec![(SHARD, Lsn::new(3))], vec![]));
    let (bytes, footer) = read_chunk(store.as_ref(), chunk.at).await.unwrap();
    assert_eq!((bytes, footer), (chunk.bytes, chunk.footer));
    assert_eq!(recover(store.as_ref(), &written(2), STANDARD).await.0, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_large_chunk_is_built_elsewhere_and_is_the_same() {
    let (_, store, mut writer) = start(UploadOptions::default()).await;
    writer.standard(1..20_001);
    writer.until(20_000).await;
    assert_eq!(recover(store.as_ref(), &written(2), STANDARD).await.0.len(), 20_000);
}

/// Sixty small parcels of both kinds, under one rule of trouble.
async fn survives(rule: Rule, hedge: bool) {
    let options = UploadOptions {
        settle_age: Duration::from_millis(100),
        put_timeout: Duration::from_secs(2),
        hedge,
        ..UploadOptions::default()
    };
    let (memory, store, mut writer) = start(options).await;
    memory.add(rule.under("c/").of(StoreOp::PutIfAbsent));
    for number in 1..=60 {
        writer.standard(number..number + 1);
        writer.settle(number..number + 1);
        sleep(Duration::from_millis(30)).await;
    }
    let finish = writer.handle.clone();
    let finishing = tokio::spawn(async move { finish.finish().await });
    writer.until(60).await;
    let mut last = ChunkId { incarnation: Epoch::new(1), position: 1 };
    drop(writer.handle);
    while let Some(chunk) = writer.committed.recv().await {
        last = chunk.at;
    }
    finishing.await.unwrap().unwrap();
    memory.calm();
    let after = join(&store, request(star(1))).await.unwrap();
    assert!(after.prior[0].end > last.position);
    let all: Vec<_> = (1..=60).collect();
    assert_eq!(recover(store.as_ref(), &after.prior, STANDARD).await.0, all);
    assert_eq!(recover(store.as_ref(), &after.prior, EXPRESS).await, (all, Lsn::new(61)));
}

#[tokio::test(start_paused = true)]
async fn no_kind_of_trouble_loses_or_doubles_a_commit() {
    let faults = [
        Fault::BeforeApply,
        Fault::AfterApply,
        Fault::Late(Duration::from_millis(30)),
        Fault::Late(Duration::from_secs(30)),
        Fault::ServerError,
        Fault::SlowDown,
        Fault::Conflict,
        Fault::Hang,
    ];
    for fault in faults {
        for hedge in [false, true] {
            survives(Rule::new(fault).when(When::Chance(0.3)), hedge).await;
            survives(Rule::new(fault).when(When::Nth(1)), hedge).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_put_that_is_late_is_sent_a_second_time_where_that_is_wanted() {
    for (hedge, commits_within) in [(true, 250), (false, 20_200)] {
        let (memory, _, mut writer) = start(UploadOptions { hedge, ..UploadOptions::default() }).await;
        for rev in 1..10 {
            writer.standard(rev..rev + 1);
            writer.until(rev).await;
        }
        memory.inject(StoreOp::PutIfAbsent, Fault::Hang);
        let began = Instant::now();
        writer.standard(10..11);
        writer.until(10).await;
        let took = began.elapsed();
        assert!(took <= Duration::from_millis(commits_within) && took >= Duration::from_millis(200), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_told_and_so_is_its_return() {
    let (memory, _, mut writer) = start(UploadOptions::default()).await;
    let mut stall = writer.handle.stall();
    memory.add(Rule::new(Fault::ServerError).under("c/"));
    let began = Instant::now();
    writer.standard(1..2);
    stall.wait_for(Option::is_some).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2) && began.elapsed() < Duration::from_millis(2_100));
    let why = stall.borrow().clone().unwrap();
    assert!(why.contains("status 500") && why.contains("c/0000000000000001/0000000000000001"), "{why}");
    memory.calm();
    writer.until(1).await;
    assert_eq!(*stall.borrow(), None);
}

#[tokio::test(start_paused = true)]
async fn chunks_that_nobody_takes_keep_more_from_being_put() {
    let (memory, _, writer) = start(UploadOptions { chunk_bytes: 1, ..UploadOptions::default() }).await;
    let before = memory.objects();
    for rev in 1..200 {
        writer.standard(rev..rev + 1);
    }
    sleep(Duration::from_secs(5)).await;
    let put = memory.objects() - before;
    let bound = UNTAKEN_MAX + 1 + UploadOptions::default().in_flight;
    assert!(put >= UNTAKEN_MAX && put <= bound, "{put} chunks were put");
    let mut writer = writer;
    writer.until(199).await;
}

#[tokio::test(start_paused = true)]
async fn a_star_that_ends_in_order_commits_what_it_was_given_and_gives_up_its_lease() {
    let (_, store, mut writer) = start(UploadOptions::default()).await;
    writer.settle(1..6);
    assert!(timeout(Duration::from_millis(500), writer.committed.recv()).await.is_err());
    let began = Instant::now();
    writer.handle.finish().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO, "it does not wait for more to settle");
    assert_eq!(writer.committed.recv().await.unwrap().settled, [(SHARD, LOG, Lsn::new(5))]);
    writer.joined.channel.release(&[]).await.unwrap();
    let lease = lease(&store).await;
    assert_eq!((lease.state, lease.hint), (LeaseState::Released, 2));
    assert!(writer.joined.channel.publish_low(1).await.is_err(), "nothing is published any more");
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_and_says_how_far_the_channel_is() {
    let (_, store, mut writer) = start(UploadOptions::default()).await;
    sleep(Duration::from_secs(25)).await;
    assert_eq!(lease(&store).await.renewals, 2);
    for rev in 1..=70 {
        writer.standard(rev..rev + 1);
        writer.until(rev).await;
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(lease(&store).await.hint, 64);
    writer.joined.channel.publish_low(71).await.unwrap();
    assert_eq!((lease(&store).await.low, lease(&store).await.hint), (71, 71));
    writer.joined.channel.publish_low(5).await.unwrap();
    assert_eq!(lease(&store).await.low, 71, "it never falls");
}

#[tokio::test(start_paused = true)]
async fn a_low_that_could_not_be_published_is_not_said_to_be() {
    let (memory, store, mut writer) = start(UploadOptions::default()).await;
    writer.standard(1..2);
    writer.until(1).await;
    memory.add(Rule::new(Fault::ServerError).of(StoreOp::PutIfMatch));
    let publish = writer.joined.channel.publish_low(1);
    assert!(timeout(Duration::from_secs(60), publish).await.is_err());
    memory.calm();
    let next = join(&store, request(star(1))).await.unwrap();
    assert!(writer.joined.channel.publish_low(2).await.is_err());
    assert_eq!(next.prior.len(), 1);
    writer.joined.channel.fenced().await;
}

#[tokio::test]
async fn entries_are_committed_in_a_directory_too() {
    let root = tempfile::Builder::new().prefix("nova-channel").tempdir_in("/var/tmp").unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalDirectory::open(root.path()).unwrap());
    let mut writer = Writer::start(&store, request(star(1))).await;
    for rev in 1..20 {
        writer.standard(rev..rev + 1);
        writer.settle(rev..rev + 1);
    }
    writer.handle.flush();
    writer.until(19).await;
    writer.handle.finish().await.unwrap();
    drop(writer);
    let after = join(&store, request(star(1))).await.unwrap();
    let all: Vec<_> = (1..20).collect();
    assert_eq!(recover(store.as_ref(), &after.prior, STANDARD).await.0, all);
    assert_eq!(recover(store.as_ref(), &after.prior, EXPRESS).await, (all, Lsn::new(20)));
}
