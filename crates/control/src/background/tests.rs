use std::sync::Arc;
use std::thread;
use std::time::Duration;

use wire::handoff::{BucketAnswer, BucketVerb, ToShard};
use wire::ids::{ClusterId, LogId, Lsn, ShardId};

use super::{Opened, Shards, StartError, Threads};
use crate::index::tests::world::Stream;
use crate::shell::inbox;
use crate::shell::tests::{Star, create, name, options, parcel, request};
use crate::store::{Fault, LocalDirectory, MemoryStore, Rule, Store, StoreOp};

fn open(store: Arc<dyn Store>) -> Result<Opened, StartError> {
    Opened::open(&Threads::start(&[])?, store, None, options())
}

const LOG: LogId = LogId::from_bytes([5; 16]);

#[test]
fn stars_that_open_a_store_at_once_agree_on_the_cluster() {
    let root = tempfile::tempdir().unwrap();
    let opens: Vec<_> = (0..4)
        .map(|_| {
            let store = Arc::new(LocalDirectory::open(root.path()).unwrap());
            thread::spawn(move || open(store).unwrap().loaded.cluster)
        })
        .collect();
    let clusters: Vec<_> = opens.into_iter().map(|open| open.join().unwrap()).collect();
    assert!(clusters.iter().all(|cluster| *cluster == clusters[0]), "{clusters:?}");
}

#[test]
fn rows_and_settled_logs_are_back_after_a_restart() {
    let store = MemoryStore::new();
    let star = Star::start(Arc::new(store.clone())).unwrap();
    assert!(star.settled.is_empty());
    let mut stream = Stream::new(1, "orders");
    star.settle(0, LOG, (1, 4), parcel(&[stream.create(), stream.append(3, 10), stream.append(2, 10)]));
    star.stop();
    let background = open(Arc::new(store.clone())).unwrap().join(request()).unwrap();
    assert_eq!(background.settled().get(&LOG), Some(&Lsn::new(3)));
    let rows = background.rows(&[(stream.slot(), stream.id()), (stream.slot(), Stream::new(2, "b").id())]).unwrap();
    assert_eq!(rows.iter().map(|row| (row.stream_id, row.tail.seq_num.get())).collect::<Vec<_>>(), [(stream.id(), 5)]);
    drop(background);
    // The next one finds it too, though the last has written nothing.
    let star = Star::start(Arc::new(store)).unwrap();
    assert_eq!(star.settled.get(&LOG), Some(&Lsn::new(3)));
    star.settle(0, LOG, (4, 5), parcel(&[stream.append(1, 10)]));
    star.stop();
}

#[test]
fn a_bucket_is_deleted_by_shards_that_have_written_nothing_since_the_start() {
    let store = MemoryStore::new();
    let mut star = Star::start(Arc::new(store.clone())).unwrap();
    star.bucket(create("orders"));
    let mut stream = Stream::new(1, "of another bucket");
    star.settle(0, LOG, (1, 2), parcel(&[stream.create()]));
    star.stop();
    let mut star = Star::start(Arc::new(store)).unwrap();
    star.wrote(0, LOG, 1);
    assert_eq!(star.call(BucketVerb::Delete(name("orders"))), Ok(BucketAnswer::Deleted));
    star.stop();
}

#[test]
fn a_second_start_fences_the_first_which_commits_nothing_more() {
    let store = MemoryStore::new();
    let first = Star::start(Arc::new(store.clone())).unwrap();
    let mut stream = Stream::new(1, "orders");
    let creation = parcel(&[stream.create()]);
    let second = Star::start(Arc::new(store)).unwrap();
    first.hand_over(0, 1, creation.clone());
    let why = first.fenced.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(why.contains("incarnation"), "{why}");
    assert!(first.told(0).is_empty());
    second.hand_over(0, 1, creation);
    second.hears(0, |told| matches!(told, ToShard::Committed { standard } if standard == Lsn::new(1)).then_some(()));
    first.stop();
    second.stop();
}

#[test]
fn the_threads_run_on_the_cpus_that_were_chosen() {
    let first = (0..rustix::thread::CpuSet::MAX_CPU)
        .find(|cpu| rustix::thread::sched_getaffinity(None).unwrap().is_set(*cpu))
        .unwrap();
    let open = |cpus: Vec<usize>| Opened::open(&Threads::start(&cpus)?, Arc::new(MemoryStore::new()), None, options());
    let background = open(vec![first]).unwrap().join(request()).unwrap();
    let (_sender, inbox) = inbox();
    let shards = Shards { inbox, sinks: Vec::new(), owner: Box::new(|_| ShardId::ZERO) };
    background.start(shards, Box::new(|_| ())).unwrap().stop(Vec::new(), Duration::from_secs(20));
    for none in [1023, 100_000] {
        let error = open(vec![none]).unwrap_err();
        assert!(matches!(error, StartError::Pin { .. }) && error.to_string().contains(&none.to_string()), "{error}");
    }
}

#[test]
fn a_store_that_is_away_is_told_from_one_that_can_not_be_had() {
    let store = MemoryStore::new();
    let threads = Threads::start(&[]).unwrap();
    let find_away = || threads.find_away(&store, Duration::from_millis(200));
    assert_eq!(find_away(), None, "an empty store is there");
    for (fault, says) in [(Fault::Hang, "no answer within 200 ms"), (Fault::BeforeApply, "meta/cluster")] {
        store.add(Rule::new(fault).of(StoreOp::Get));
        let why = find_away().unwrap().why;
        assert!(why.contains(says), "{why}");
        store.calm();
    }
    store.add(Rule::new(Fault::BeforeApply));
    assert!(open(Arc::new(store.clone())).unwrap_err().is_away());
    store.calm();
    let opened = open(Arc::new(store.clone())).unwrap();
    store.add(Rule::new(Fault::BeforeApply).of(StoreOp::PutIfMatch));
    assert!(opened.join(request()).unwrap_err().is_away());
    store.calm();
    // It is asked again, and nothing stands in the way.
    drop(open(Arc::new(store.clone())).unwrap().join(request()).unwrap());
    let other = Opened::open(&threads, Arc::new(store), Some(ClusterId::from_bytes([9; 16])), options());
    assert!(!other.unwrap_err().is_away());
}
