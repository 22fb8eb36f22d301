use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use wire::bucket::{Bucket, BucketPatch, BucketSpec};
use wire::entry::{Place, Verb};
use wire::handoff::{
    BucketAnswer, BucketTable, BucketVerb, Full, Parcel, ParcelItem, ReplyTo, SettledLogs, ToControl, ToShard,
};
use wire::ids::{BucketId, ClusterId, Epoch, LogId, Lsn, Rev, ShardId, StarId, StreamId};
use wire::names::{BucketName, Key};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;

use super::{Control, ControlSender, StartError, inbox};
use crate::channel::{ClusterError, JoinRequest, UploadOptions};
use crate::history::HistoryOptions;
use crate::index::IndexOptions;
use crate::index::tests::world::Written;
use crate::settle::SettleOptions;
use crate::store::{Fault, LocalDirectory, MemoryStore, ObjectName, PutNonce, Rule, Store, StoreError, StoreOp};
use crate::{LoadError, Opened, Options, Shards, Threads};

const SHARDS: u16 = 3;
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn name(text: &str) -> BucketName {
    BucketName::new(text).unwrap()
}

pub(crate) fn create(text: &str) -> BucketVerb {
    BucketVerb::Create(BucketSpec::named(name(text)))
}

fn list() -> BucketVerb {
    BucketVerb::List { after: String::new(), limit: 0 }
}

/// What a fake shard keeps: its table, how far its lanes have come, and what else it was told.
#[derive(Debug, Default)]
struct ShardState {
    table: Arc<BucketTable>,
    standard: Lsn,
    express: (LogId, Lsn),
    told: Vec<ToShard>,
}

/// A control with shards on threads of their own, whose queues take two messages.
pub(crate) struct Star {
    control: Control,
    pub(crate) sender: ControlSender,
    replies: Receiver<(u64, Result<BucketAnswer, Refusal>)>,
    states: Vec<Arc<Mutex<ShardState>>>,
    threads: Vec<JoinHandle<()>>,
    tickets: u64,
    /// How far head logs were settled when it began.
    pub(crate) settled: SettledLogs,
    /// Why it must stop.
    pub(crate) fenced: Receiver<String>,
}

/// Nothing is settled by its age alone.
pub(crate) fn options() -> Options {
    let upload = UploadOptions { settle_age: Duration::from_secs(3_600), ..UploadOptions::default() };
    let (index, history) = (IndexOptions::default(), HistoryOptions::of_memory(8 << 20));
    let settle = SettleOptions::default();
    Options {
        upload,
        index,
        history,
        settle,
        confirms_clock: false,
        meter: None,
        is_billed: false,
        unapplied_bytes: 64 << 20,
        rooms: None,
    }
}

/// A start of the one star there is.
pub(crate) fn request() -> JoinRequest {
    JoinRequest { star: StarId::from_bytes([3; 16]), logs: Vec::new(), at_least: Epoch::new(1), accept_loss: false }
}

/// The entries as a parcel.
pub(crate) fn parcel(entries: &[Written]) -> Parcel {
    let items = entries.iter().map(|entry| entry.item).collect();
    Parcel { items, bytes: entries.iter().flat_map(|entry| entry.bytes.iter().copied()).collect() }
}

/// Creations of so many streams in a bucket.
fn creations(bucket: BucketId, streams: u8) -> Parcel {
    let creation = |number: u8| {
        let key = Key::new(&format!("stream-{number}")).unwrap();
        let (slot, stream_id) = (Slot::of(bucket, &key), StreamId::from_bytes([number; 16]));
        let verb = Verb::Create { bucket, key, config: wire::config::StreamConfig::default(), created_at_ms: 5 };
        let bytes = verb.encode(Place { stream_id, slot, slot_epoch: Epoch::new(1), rev: Rev::new(1) });
        let length = u32::try_from(bytes.len()).unwrap();
        Written { item: ParcelItem { slot, stream_id, bytes: length, content_bytes: 0, first_ms: 0 }, bytes }
    };
    parcel(&(1..=streams).map(creation).collect::<Vec<_>>())
}

/// Sends until there is room, as a shard does with what must arrive, or until control has stopped.
fn tell(control: &ControlSender, message: impl Fn() -> ToControl) {
    while control.send(message()).is_err() && !control.asks.is_closed() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn serve(
    shard: ShardId,
    queue: &Receiver<ToShard>,
    control: &ControlSender,
    state: &Mutex<ShardState>,
    replies: &SyncSender<(u64, Result<BucketAnswer, Refusal>)>,
) {
    for message in queue {
        match message {
            ToShard::Buckets(table) => {
                let version = table.version;
                state.lock().unwrap().table = table;
                tell(control, || ToControl::TableConfirmed { shard, version });
            }
            ToShard::Freeze { bucket } => {
                let (standard, express) = {
                    let state = state.lock().unwrap();
                    (state.standard, state.express)
                };
                tell(control, || ToControl::Frozen { shard, bucket, standard, express });
            }
            ToShard::BucketReply { ticket, result } => replies.send((ticket, result)).unwrap(),
            ToShard::Counters(_) => {}
            other => state.lock().unwrap().told.push(other),
        }
    }
}

impl Star {
    pub(crate) fn start(store: Arc<dyn Store>) -> Result<Self, StartError> {
        Self::start_with(store, options())
    }

    pub(crate) fn start_with(store: Arc<dyn Store>, options: Options) -> Result<Self, StartError> {
        let background = Opened::open(&Threads::start(&[])?, store, None, options)?.join(request())?;
        let settled = background.settled().clone();
        let (sender, inbox) = inbox();
        let (reply, replies) = sync_channel(64);
        let (mut shards, mut states, mut threads) = (Vec::<crate::ShardSink>::new(), Vec::new(), Vec::new());
        for shard in 0..SHARDS {
            let (to_shard, queue) = sync_channel::<ToShard>(2);
            let state = Arc::new(Mutex::new(ShardState::default()));
            shards.push(Box::new(move |message| to_shard.try_send(message).map_err(|_: TrySendError<_>| Full)));
            states.push(Arc::clone(&state));
            let (control, reply) = (sender.clone(), reply.clone());
            threads.push(thread::spawn(move || serve(ShardId::new(shard), &queue, &control, &state, &reply)));
        }
        let (fence, fenced) = sync_channel(1);
        let shards = Shards { inbox, sinks: shards, owner: Box::new(|_| ShardId::ZERO) };
        let control = background.start(shards, Box::new(move |why| fence.send(why).unwrap()))?;
        Ok(Self { control, sender, replies, states, threads, tickets: 0, settled, fenced })
    }

    /// Hands over what enters the Standard lane of a shard, up to `upto`.
    pub(crate) fn hand_over(&self, shard: u16, upto: u64, parcel: Parcel) {
        let (shard, upto) = (ShardId::new(shard), Lsn::new(upto));
        self.states[usize::from(shard.get())].lock().unwrap().standard = upto;
        self.sender.send(ToControl::Standard { shard, upto, parcel }).unwrap();
    }

    /// Hands over `from..to` of a head log of a shard.
    pub(crate) fn settle(&self, shard: u16, log: LogId, (from, to): (u64, u64), parcel: Parcel) {
        self.wrote(shard, log, to - 1);
        let (shard, from, to) = (ShardId::new(shard), Lsn::new(from), Lsn::new(to));
        self.sender.send(ToControl::Settle { shard, log, from, to, parcel }).unwrap();
    }

    /// A head log of a shard goes up to here.
    pub(crate) fn wrote(&self, shard: u16, log: LogId, last: u64) {
        self.states[usize::from(shard)].lock().unwrap().express = (log, Lsn::new(last));
    }

    /// What a shard was told, beside tables, freezes and answers.
    pub(crate) fn told(&self, shard: u16) -> Vec<ToShard> {
        self.states[usize::from(shard)].lock().unwrap().told.clone()
    }

    /// Waits until a shard is told something, and takes from it what is wanted.
    pub(crate) fn hears<T>(&self, shard: u16, wanted: impl Fn(ToShard) -> Option<T>) -> T {
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            if let Some(found) = self.told(shard).into_iter().find_map(&wanted) {
                return found;
            }
            assert!(std::time::Instant::now() < until, "told only {:?}", self.told(shard));
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A ticket, and the address of the first shard for the answer.
    pub(crate) fn ticket(&mut self) -> ReplyTo {
        self.tickets += 1;
        ReplyTo { shard: ShardId::new(0), ticket: self.tickets }
    }

    pub(crate) fn local(root: &Path) -> Result<Self, StartError> {
        Self::start(Arc::new(LocalDirectory::open(root).unwrap()))
    }

    fn ask(&mut self, verb: BucketVerb) -> u64 {
        self.tickets += 1;
        let ticket = self.tickets;
        let shard = ShardId::new(u16::try_from(ticket % u64::from(SHARDS)).unwrap());
        let reply_to = ReplyTo { shard, ticket };
        self.sender.send(ToControl::Bucket { reply_to, verb }).unwrap();
        ticket
    }

    pub(crate) fn call(&mut self, verb: BucketVerb) -> Result<BucketAnswer, Refusal> {
        let asked = self.ask(verb);
        let (ticket, result) = self.replies.recv_timeout(PATIENCE).unwrap();
        assert_eq!(ticket, asked);
        result
    }

    pub(crate) fn bucket(&mut self, verb: BucketVerb) -> Arc<Bucket> {
        match self.call(verb) {
            Ok(BucketAnswer::Bucket(bucket)) => bucket,
            other => panic!("no bucket: {other:?}"),
        }
    }

    fn served(&self) -> Vec<Arc<BucketTable>> {
        self.states.iter().map(|state| Arc::clone(&state.lock().unwrap().table)).collect()
    }

    pub(crate) fn stop(self) -> ClusterId {
        let cluster = self.control.cluster();
        self.control.stop(Vec::new(), PATIENCE);
        for thread in self.threads {
            thread.join().unwrap();
        }
        assert_eq!(self.replies.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Disconnected));
        cluster
    }
}

#[test]
fn buckets_and_the_cluster_id_outlive_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let mut star = Star::local(root.path()).unwrap();
    let orders = star.bucket(create("orders"));
    star.bucket(create("gone"));
    let patch = BucketPatch { create_stream_on_append: Some(true), ..BucketPatch::default() };
    let changed = star.bucket(BucketVerb::Update(name("orders"), patch));
    assert_eq!(changed.id, orders.id);
    assert_eq!(star.call(BucketVerb::Delete(name("gone"))), Ok(BucketAnswer::Deleted));
    let cluster = star.stop();

    let mut star = Star::local(root.path()).unwrap();
    assert_eq!(star.call(list()), Ok(BucketAnswer::Page(vec![changed], String::new())));
    assert_eq!(star.stop(), cluster);
}

#[test]
fn an_answer_comes_after_every_shard_serves_by_it() {
    let root = tempfile::tempdir().unwrap();
    let mut star = Star::local(root.path()).unwrap();
    for round in 0..20 {
        let bucket = format!("bucket-{round}");
        star.bucket(create(&bucket));
        assert!(star.served().iter().all(|table| table.buckets.contains_key(&name(&bucket))));
        if round % 2 == 0 {
            star.call(BucketVerb::Delete(name(&bucket))).unwrap();
            assert!(star.served().iter().all(|table| !table.buckets.contains_key(&name(&bucket))));
        }
    }
    star.stop();
}

#[test]
fn a_bucket_with_a_stream_on_one_shard_stays() {
    let mut star = Star::start(Arc::new(MemoryStore::new())).unwrap();
    let made = star.bucket(create("orders"));
    star.hand_over(2, 4, creations(made.id, 4));
    let refusal = star.call(BucketVerb::Delete(name("orders"))).unwrap_err();
    assert_eq!((refusal.reason, refusal.message.contains('4')), (Reason::BucketNotEmpty, true));
    assert_eq!(star.bucket(BucketVerb::Get(name("orders"))), made);
    star.stop();
}

#[test]
fn a_bucket_goes_once_the_index_knows_that_its_streams_are_gone() {
    let mut star = Star::start(Arc::new(MemoryStore::new())).unwrap();
    let made = star.bucket(create("orders"));
    star.hand_over(1, 2, creations(made.id, 2));
    assert_eq!(star.call(BucketVerb::Delete(name("orders"))).unwrap_err().reason, Reason::BucketNotEmpty);
    let deletions = (1..=2).map(|number: u8| {
        let slot = Slot::of(made.id, &Key::new(&format!("stream-{number}")).unwrap());
        let stream_id = StreamId::from_bytes([number; 16]);
        let bytes = Verb::Delete.encode(Place { stream_id, slot, slot_epoch: Epoch::new(1), rev: Rev::new(2) });
        let length = u32::try_from(bytes.len()).unwrap();
        Written { item: ParcelItem { slot, stream_id, bytes: length, content_bytes: 0, first_ms: 0 }, bytes }
    });
    star.hand_over(1, 4, parcel(&deletions.collect::<Vec<_>>()));
    assert_eq!(star.call(BucketVerb::Delete(name("orders"))), Ok(BucketAnswer::Deleted));
    star.stop();
}

#[test]
fn many_verbs_at_once_get_one_answer_each_through_small_queues() {
    let mut star = Star::start(Arc::new(MemoryStore::new())).unwrap();
    let verbs = (0..300).map(|i| BucketVerb::Ensure(BucketSpec::named(name(&format!("bucket-{}", i % 7)))));
    let mut open: HashMap<u64, ()> = verbs.map(|verb| (star.ask(verb), ())).collect();
    while !open.is_empty() {
        let (ticket, result) = star.replies.recv_timeout(PATIENCE).unwrap();
        assert!(open.remove(&ticket).is_some());
        result.unwrap();
    }
    assert!(star.served().iter().all(|table| table.buckets.len() == 7));
    star.stop();
}

#[test]
fn a_put_whose_answer_was_lost_is_found_again() {
    let store = MemoryStore::new();
    let mut star = Star::start(Arc::new(store.clone())).unwrap();
    store.inject(StoreOp::PutIfAbsent, Fault::AfterApply);
    let refusal = star.call(create("orders")).unwrap_err();
    assert_eq!(refusal.reason, Reason::Unavailable);
    assert_eq!(star.call(create("orders")).unwrap_err().reason, Reason::AlreadyExists);
    star.bucket(BucketVerb::Get(name("orders")));
    star.stop();
}

#[test]
fn a_stop_answers_the_verbs_that_wait_and_ends_what_the_store_is_doing() {
    let store = MemoryStore::new();
    let mut star = Star::start(Arc::new(store.clone())).unwrap();
    store.hold();
    let asked = [star.ask(create("orders")), star.ask(create("orders")), star.ask(create("others"))];
    while store.waiting() < 2 {
        thread::sleep(Duration::from_millis(1));
    }
    let releaser = thread::spawn({
        let store = store.clone();
        move || {
            thread::sleep(Duration::from_millis(50));
            store.release();
        }
    });
    let Star { control, replies, threads, sender, .. } = star;
    control.stop(Vec::new(), PATIENCE);
    releaser.join().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut answers: Vec<_> = replies.iter().collect();
    answers.sort_by_key(|(ticket, _)| *ticket);
    assert_eq!(answers.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), asked);
    assert!(answers.iter().all(|(_, result)| result.as_ref().is_err_and(|e| e.reason == Reason::Unavailable)));
    let late = ToControl::TableConfirmed { shard: ShardId::new(0), version: 1 };
    assert_eq!(sender.send(late), Err(Full));
    // The puts were under way and have landed; the next start finds them.
    let mut star = Star::start(Arc::new(store)).unwrap();
    star.bucket(BucketVerb::Get(name("orders")));
    star.stop();
}

#[test]
fn a_full_inbox_is_said_at_once() {
    let (sender, inbox) = inbox();
    let confirmed = || ToControl::TableConfirmed { shard: ShardId::new(0), version: 1 };
    let taken = (0..100_000).take_while(|_| sender.send(confirmed()).is_ok()).count();
    assert_eq!(taken, super::INBOX_MAX);
    drop(inbox);
    assert_eq!(sender.send(confirmed()), Err(Full));
}

fn put(store: &MemoryStore, object: &str, body: impl Into<Bytes>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let object = ObjectName::parse(object).unwrap();
    runtime.block_on(store.put_if_absent(&object, body.into(), PutNonce::fresh())).unwrap();
}

/// A store with a cluster and one good bucket.
fn used_store() -> MemoryStore {
    let store = MemoryStore::new();
    let mut star = Star::start(Arc::new(store.clone())).unwrap();
    star.bucket(create("good"));
    star.stop();
    store
}

fn start_error(store: &MemoryStore) -> LoadError {
    match Star::start(Arc::new(store.clone())) {
        Err(StartError::Load(error)) => error,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("it started"),
    }
}

#[test]
fn a_bucket_that_can_not_be_read_keeps_the_star_from_starting_and_is_named() {
    let bucket = |text: &str| Bucket::made(&BucketSpec::named(name(text)), BucketId::from_bytes([1; 16]), 0).encode();
    let mut flipped = bucket("bad");
    *flipped.last_mut().unwrap() ^= 1;
    let mut later = bucket("bad");
    later[4] = 99;
    for (body, says) in [
        (flipped, "damaged"),
        (later, "format 99"),
        (b"garbage".to_vec(), "7 bytes"),
        (Vec::new(), "0 bytes"),
        (bucket("other"), "holds bucket other"),
    ] {
        let store = used_store();
        put(&store, "meta/buckets/bad", body);
        let error = start_error(&store).to_string();
        assert!(error.contains("meta/buckets/bad") && error.contains(says), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_missing_or_damaged_identity_keeps_the_star_from_starting() {
    let store = MemoryStore::new();
    put(&store, "meta/buckets/orders", Vec::new());
    let error = start_error(&store);
    assert!(matches!(error, LoadError::Cluster(ClusterError::Lost { .. })), "{error}");
    let identity = ObjectName::parse("meta/cluster").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let head = runtime.block_on(store.head(&identity));
    assert!(matches!(head, Err(StoreError::NotFound { .. })), "one was made");

    let store = MemoryStore::new();
    put(&store, "meta/cluster", b"garbage".to_vec());
    let error = start_error(&store).to_string();
    assert!(error.contains("meta/cluster") && error.contains("7 bytes"), "{error}");
}

#[test]
fn a_store_that_fails_at_start_is_no_empty_store() {
    for op in [StoreOp::Get, StoreOp::List] {
        let store = used_store();
        store.add(Rule::new(Fault::BeforeApply).of(op));
        let error = start_error(&store);
        assert!(matches!(error, LoadError::Store(StoreError::Unavailable { .. })), "{error}");
        store.calm();
        let mut star = Star::start(Arc::new(store)).unwrap();
        star.bucket(BucketVerb::Get(name("good")));
        star.stop();
    }
}

#[test]
fn a_file_that_was_changed_on_disk_keeps_the_star_from_starting() {
    let root = tempfile::tempdir().unwrap();
    let mut star = Star::local(root.path()).unwrap();
    star.bucket(create("orders"));
    star.stop();
    let file = root.path().join("meta/buckets/orders.obj");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[20] ^= 4;
    std::fs::write(&file, &bytes).unwrap();
    let error = Star::local(root.path()).err().unwrap().to_string();
    assert!(error.contains("meta/buckets/orders is damaged"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
}

#[test]
fn a_deletion_that_a_killed_star_began_is_ended_by_the_next() {
    let store = MemoryStore::new();
    let mut star = Star::start(Arc::new(store.clone())).unwrap();
    star.bucket(create("orders"));
    // The removal fails, so the object stays in `deleting`.
    store.inject(StoreOp::DeleteIfMatch, Fault::BeforeApply);
    assert!(star.call(BucketVerb::Delete(name("orders"))).is_err());
    star.stop();
    let mut star = Star::start(Arc::new(store)).unwrap();
    star.bucket(create("orders"));
    star.stop();
}
