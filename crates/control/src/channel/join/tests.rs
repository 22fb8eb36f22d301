use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use wire::ids::Epoch;

use super::{JoinError, JoinRequest, Joined, join};
use crate::channel::cluster::Cluster;
use crate::channel::lease::{Lease, LeaseState, object_of};
use crate::channel::logs::{LogFacts, LogFault};
use crate::channel::tests::{STANDARD, Writer, facts, recover, request, star};
use crate::channel::{ChannelError, ClusterError, PriorChannel};
use crate::store::{
    Fault, LocalDirectory, MemoryStore, ObjectName, PutNonce, Rule, Span, Store, StoreError, StoreOp, When,
};

fn memory() -> (MemoryStore, Arc<dyn Store>) {
    let memory = MemoryStore::new();
    (memory.clone(), Arc::new(memory))
}

async fn cluster(store: &Arc<dyn Store>) -> Cluster {
    let object = ObjectName::parse("meta/cluster").unwrap();
    Cluster::decode(&store.get(&object, Span::Whole).await.unwrap().body).unwrap()
}

async fn put(store: &Arc<dyn Store>, name: &str, body: &[u8]) {
    let name = ObjectName::parse(name).unwrap();
    store.put_if_absent(&name, Bytes::copy_from_slice(body), PutNonce::fresh()).await.unwrap();
}

fn with_logs(number: u8, logs: &[LogFacts]) -> JoinRequest {
    JoinRequest { logs: logs.to_vec(), ..request(star(number)) }
}

fn prior(incarnation: u64, end: u64) -> PriorChannel {
    PriorChannel { incarnation: Epoch::new(incarnation), low: 0, end }
}

#[tokio::test(start_paused = true)]
async fn the_first_star_makes_the_cluster_and_an_empty_channel() {
    let (_, store) = memory();
    let joined = join(&store, request(star(1))).await.unwrap();
    assert_eq!((joined.incarnation, joined.loss_epoch), (Epoch::new(1), Epoch::ZERO));
    assert_eq!((joined.prior, joined.slots_with_index), (vec![], 0));
    let cluster = cluster(&store).await;
    assert_eq!(cluster.id, joined.cluster);
    assert!(cluster.is_owned_by(Epoch::new(1)));
    let lease = store.get(&object_of(star(1)), Span::Whole).await.unwrap();
    assert_eq!(Lease::decode(&lease.body).unwrap(), Lease::held(Epoch::new(1)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_its_cluster_is_not_taken_for_a_new_one() {
    for found in ["meta/buckets/orders", "c/0000000000000001/0000000000000000", "m/0000/manifest/1"] {
        let (_, store) = memory();
        put(&store, found, b"x").await;
        let error = join(&store, request(star(1))).await.unwrap_err();
        assert!(matches!(&error, JoinError::Cluster(ClusterError::Lost { .. })), "{error}");
        assert!(error.to_string().contains(found) && error.to_string().contains("meta/cluster"), "{error}");
    }
}

async fn a_restart_over(store: Arc<dyn Store>) {
    let mut ghost = Writer::start(&store, request(star(1))).await;
    for rev in 1..4 {
        ghost.standard(rev..rev + 1);
        ghost.until(rev).await;
    }
    let mut next = Writer::start(&store, request(star(1))).await;
    assert_eq!((next.joined.incarnation, &next.joined.prior), (Epoch::new(2), &vec![prior(1, 4)]));
    assert_eq!(recover(store.as_ref(), &next.joined.prior, STANDARD).await.0, [1, 2, 3]);

    ghost.standard(4..5);
    assert!(ghost.committed.recv().await.is_none(), "a fenced star commits nothing");
    let fenced = ghost.joined.channel.fenced().await.to_string();
    assert!(fenced.contains("incarnation 1") && fenced.contains(&star(1).to_string()), "{fenced}");
    assert!(matches!(ghost.handle.finish().await, Err(ChannelError::Fenced(_))));
    assert!(matches!(ghost.joined.channel.publish_low(1).await, Err(ChannelError::Fenced(_))));
    assert!(ghost.joined.channel.note_logs(&[]).await.is_err());

    next.standard(4..5);
    next.until(4).await;
    let after = join(&store, request(star(1))).await.unwrap();
    assert_eq!(after.prior, [prior(1, 4), prior(2, 2)]);
    assert_eq!(recover(store.as_ref(), &after.prior, STANDARD).await.0, [1, 2, 3, 4]);
    after.channel.forget_prior(Epoch::new(1)).await.unwrap();
    assert_eq!(join(&store, request(star(1))).await.unwrap().prior, [prior(2, 2)], "an empty channel is not replayed");
}

#[tokio::test(start_paused = true)]
async fn a_restart_fences_its_ghost_in_memory() {
    a_restart_over(memory().1).await;
}

#[tokio::test]
async fn a_restart_fences_its_ghost_in_a_directory() {
    let root = tempfile::Builder::new().prefix("nova-channel").tempdir_in("/var/tmp").unwrap();
    a_restart_over(Arc::new(LocalDirectory::open(root.path()).unwrap())).await;
}

#[tokio::test(start_paused = true)]
async fn a_put_that_arrives_after_the_fence_is_never_told_to_be_committed() {
    let (memory, store) = memory();
    let mut ghost = Writer::start(&store, request(star(1))).await;
    ghost.standard(1..2);
    ghost.until(1).await;
    let chunks = || Rule::new(Fault::Late(Duration::from_secs(5))).of(StoreOp::PutIfAbsent).under("c/");
    memory.add(chunks().when(When::Nth(1)));
    memory.add(Rule::new(Fault::SlowDown).of(StoreOp::PutIfAbsent).under("c/0000000000000001/0000000000000002"));
    ghost.standard(2..3);
    sleep(Duration::from_millis(10)).await;
    memory.calm();
    let next = join(&store, request(star(1))).await.unwrap();
    assert_eq!(next.prior, [prior(1, 2)]);
    sleep(Duration::from_secs(10)).await;
    assert!(ghost.committed.recv().await.is_none());
    let later = join(&store, request(star(1))).await.unwrap();
    assert_eq!(recover(store.as_ref(), &later.prior, STANDARD).await.0, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_hole_ends_a_channel_though_chunks_stand_behind_it() {
    let (memory, store) = memory();
    let mut ghost = Writer::start(&store, request(star(1))).await;
    memory.add(Rule::new(Fault::SlowDown).under("c/0000000000000001/0000000000000002"));
    for rev in 1..5 {
        ghost.standard(rev..rev + 1);
        sleep(Duration::from_millis(60)).await;
    }
    let mut told = Vec::new();
    while let Ok(chunk) = ghost.committed.try_recv() {
        told.push(chunk.at.position);
    }
    assert_eq!(told, [1]);
    drop(ghost);
    memory.calm();
    let next = join(&store, request(star(1))).await.unwrap();
    assert_eq!(next.prior, [prior(1, 2)]);
    assert_eq!(recover(store.as_ref(), &next.prior, STANDARD).await.0, [1]);
}

#[tokio::test(start_paused = true)]
async fn a_long_channel_is_searched_from_what_its_lease_says_and_not_below() {
    let (memory, store) = memory();
    let mut ghost = Writer::start(&store, request(star(1))).await;
    for rev in 1..=150 {
        ghost.standard(rev..rev + 1);
        ghost.until(rev).await;
    }
    ghost.joined.channel.publish_low(100).await.unwrap();
    for position in 0..100 {
        let chunk = crate::channel::ChunkId { incarnation: Epoch::new(1), position };
        store.delete(&crate::channel::chunk_name(chunk)).await.unwrap();
    }
    // What lies below the hint is not asked for.
    for digit in 0..=8 {
        memory.add(Rule::new(Fault::ServerError).under(&format!("c/0000000000000001/00000000000000{digit}")));
    }
    let next = join(&store, request(star(1))).await.unwrap();
    assert_eq!(next.prior, [PriorChannel { incarnation: Epoch::new(1), low: 100, end: 151 }]);
    memory.calm();
    let revs = recover(store.as_ref(), &next.prior, STANDARD).await.0;
    assert_eq!(revs, (100..=150).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_another_star_uses_is_refused_and_one_that_it_released_is_free() {
    let (_, store) = memory();
    let first = Writer::start(&store, with_logs(1, &[facts(3, 0, 1)])).await;
    let error = join(&store, with_logs(2, &[])).await.unwrap_err();
    assert!(matches!(error, JoinError::Owned { .. }), "{error}");
    assert!(error.to_string().contains(&star(1).to_string()) && error.to_string().contains("incarnation 1"), "{error}");

    first.settle(1..5);
    first.handle.finish().await.unwrap();
    first.joined.channel.release(&[LogFacts { clean: true, ..facts(3, 1, 5) }]).await.unwrap();
    let began = Instant::now();
    let second = join(&store, with_logs(2, &[facts(4, 0, 1)])).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "nobody waits for a released lease");
    assert_eq!(second.prior, [prior(1, 2)]);
    second.channel.release(&[LogFacts { clean: true, ..facts(4, 2, 1) }]).await.unwrap();
    // The first comes back with the log it left.
    let third = join(&store, with_logs(1, &[facts(3, 1, 5)])).await.unwrap();
    assert_eq!((third.incarnation, third.lost), (Epoch::new(3), vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_star_that_died_is_displaced_after_its_lease_and_its_logs_are_not_given_up_unasked() {
    let (_, store) = memory();
    drop(Writer::start(&store, with_logs(1, &[facts(3, 0, 1)])).await);
    let began = Instant::now();
    let error = join(&store, request(star(2))).await.unwrap_err();
    assert!(began.elapsed() >= Duration::from_millis(31_500));
    let JoinError::Logs { faults } = &error else { panic!("{error}") };
    assert!(matches!(faults[..], [LogFault::Missing { number: 3, .. }]), "{error}");
    assert!(error.to_string().contains("--accept-loss") && error.to_string().contains(&star(1).to_string()), "{error}");
    assert_eq!(cluster(&store).await.owner.unwrap().star, star(1), "a refused star changes nothing");

    let joined = join(&store, JoinRequest { accept_loss: true, ..request(star(2)) }).await.unwrap();
    assert_eq!((joined.loss_epoch, joined.lost.len()), (joined.incarnation, 1));
    // What was given up stays so.
    let after = join(&store, request(star(2))).await.unwrap();
    assert_eq!((after.loss_epoch, after.lost.len()), (joined.incarnation, 0));
}

#[tokio::test(start_paused = true)]
async fn a_star_without_logs_that_died_is_displaced_and_fenced() {
    let (_, store) = memory();
    let mut first = Writer::start(&store, request(star(1))).await;
    first.standard(1..2);
    first.until(1).await;
    let lease = store.get(&object_of(star(1)), Span::Whole).await.unwrap();
    drop(first);
    let second = join(&store, request(star(2))).await.unwrap();
    assert_eq!(second.prior, [prior(1, 2)]);
    let fenced = store.get(&object_of(star(1)), Span::Whole).await.unwrap();
    assert_ne!(fenced.meta.version, lease.meta.version);
    assert!(matches!(Lease::decode(&fenced.body).unwrap().state, LeaseState::Fenced(by) if by.star == star(2)));
    let error = join(&store, request(star(1))).await.unwrap_err();
    assert!(matches!(error, JoinError::Owned { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn head_logs_that_do_not_fit_are_refused_and_change_nothing() {
    let (_, store) = memory();
    let first = join(&store, with_logs(1, &[facts(3, 0, 1), facts(4, 0, 1)])).await.unwrap();
    first.channel.note_logs(&[facts(3, 1, 900), facts(4, 1, 50)]).await.unwrap();
    drop(first);
    let before = cluster(&store).await;
    for (logs, says) in [
        (vec![facts(3, 1, 900)], "is not here"),
        (vec![facts(3, 1, 899), facts(4, 1, 50)], "old copy"),
        (vec![facts(3, 0, 900), facts(4, 1, 50)], "old copy"),
        (vec![facts(3, 1, 900), facts(4, 1, 50), facts(9, 1, 7)], "another store"),
    ] {
        let error = join(&store, with_logs(1, &logs)).await.unwrap_err();
        assert!(error.to_string().contains(says) && error.to_string().contains("--accept-loss"), "{error}");
        assert_eq!(cluster(&store).await, before);
    }
    let logs = [facts(3, 1, 899), facts(9, 1, 7)];
    let joined = join(&store, JoinRequest { accept_loss: true, ..with_logs(1, &logs) }).await.unwrap();
    assert_eq!((joined.lost.len(), joined.loss_epoch), (3, joined.incarnation));
    let joined = join(&store, with_logs(1, &[facts(5, 0, 1)])).await.unwrap();
    assert!(joined.lost.is_empty(), "{:?}", joined.lost);
}

#[tokio::test(start_paused = true)]
async fn joins_that_race_take_different_incarnations_and_one_is_left() {
    let (memory, store) = memory();
    memory.set_latency(crate::store::Latency { p50: Duration::from_millis(5), p99: Duration::from_millis(80) });
    let mut racers = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let store = Arc::clone(&store);
        racers.spawn(async move { join(&store, request(star(1))).await });
    }
    let results = racers.join_all().await;
    let won: Vec<&Joined> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    let taken: BTreeSet<_> = won.iter().map(|joined| joined.incarnation).collect();
    assert_eq!(taken.len(), won.len());
    sleep(Duration::from_secs(30)).await;
    let owner = cluster(&store).await.owner.unwrap().incarnation;
    let mut alive = Vec::new();
    for joined in won {
        let fenced = tokio::time::timeout(Duration::from_secs(1), joined.channel.fenced()).await;
        alive.extend(fenced.is_err().then_some(joined.incarnation));
    }
    assert_eq!(alive, [owner]);
    for error in results.into_iter().filter_map(Result::err) {
        let is_race = matches!(error, JoinError::Overtaken { .. } | JoinError::LeaseContended { .. });
        assert!(is_race || matches!(error, JoinError::Cluster(_)), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_stars_that_race_for_a_dead_ones_store_do_not_both_get_it() {
    let (_, store) = memory();
    drop(Writer::start(&store, request(star(1))).await);
    let race = |number: u8| {
        let store = Arc::clone(&store);
        async move { join(&store, request(star(number))).await }
    };
    let (second, third) = tokio::join!(race(2), race(3));
    assert!(second.is_ok() != third.is_ok(), "{second:?} {third:?}");
}

#[tokio::test(start_paused = true)]
async fn a_join_that_is_cut_off_anywhere_is_made_good_by_the_next() {
    for steps in 0..40 {
        let (memory, store) = memory();
        let mut ghost = Writer::start(&store, request(star(1))).await;
        ghost.standard(1..3);
        ghost.until(2).await;
        memory.hold();
        let joining = Arc::clone(&store);
        let task = tokio::spawn(async move { join(&joining, request(star(1))).await });
        for _ in 0..steps {
            memory.step();
        }
        sleep(Duration::from_millis(1)).await;
        task.abort();
        memory.release();
        let next = join(&store, request(star(1))).await.unwrap();
        assert_eq!(recover(store.as_ref(), &next.prior, STANDARD).await.0, [1, 2], "{steps} steps");
        assert!(ghost.committed.try_recv().is_err(), "{steps} steps");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_once_anywhere_does_not_keep_a_star_from_joining() {
    let faults = [Fault::BeforeApply, Fault::AfterApply, Fault::Late(Duration::from_secs(3)), Fault::Conflict];
    for (fault, number) in faults.into_iter().flat_map(|fault| (1..40).map(move |number| (fault, number))) {
        let (memory, store) = memory();
        let mut ghost = Writer::start(&store, request(star(1))).await;
        ghost.standard(1..3);
        ghost.until(2).await;
        memory.add(Rule::new(fault).when(When::Nth(number)));
        let next = join(&store, request(star(1))).await.unwrap();
        assert_eq!(recover(store.as_ref(), &next.prior, STANDARD).await.0, [1, 2], "{fault:?} at {number}");
        sleep(Duration::from_secs(5)).await;
        let after = join(&store, request(star(1))).await.unwrap();
        assert_eq!(recover(store.as_ref(), &after.prior, STANDARD).await.0, [1, 2], "{fault:?} at {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_said_to_be_and_a_damaged_object_is_named() {
    let (memory, store) = memory();
    memory.add(Rule::new(Fault::ServerError));
    let error = join(&store, request(star(1))).await.unwrap_err();
    let is_down = |error: &JoinError| {
        matches!(error, JoinError::Store(StoreError::Unavailable { .. }))
            || matches!(error, JoinError::Cluster(ClusterError::Store(StoreError::Unavailable { .. })))
    };
    assert!(is_down(&error), "{error}");
    memory.calm();
    drop(join(&store, request(star(1))).await.unwrap());
    for name in ["stars/01010101-0101-0101-0101-010101010101/lease", "c/0000000000000001/0000000000000001"] {
        let object = ObjectName::parse(name).unwrap();
        let before = store.get(&object, Span::Whole).await.ok();
        if before.is_none() {
            put(&store, name, b"garbage").await;
        }
        memory.tamper(&object, Bytes::from_static(b"garbage"));
        let error = join(&store, request(star(1))).await.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("restore it"), "{error}");
        if let Some(before) = before {
            memory.tamper(&object, before.body);
        }
    }
}
