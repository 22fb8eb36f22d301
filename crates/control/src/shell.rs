//! What runs the decisions: buckets in turns on one thread, streams in tasks beside it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use failpoints::{Point, hit, wall_shift_ms};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle as TaskHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};
use wire::handoff::{Full, ReplyTo, ToControl, ToShard};
use wire::ids::{BucketId, ClusterId, LogId, Lsn, ShardId};
use wire::names::BucketName;
use wire::reason::Reason;
use wire::refusal::Refusal;

use crate::background::{Options, Shards, StartError, Threads};
use crate::channel::{Channel, LogFacts, PriorChannel, Uploader};
use crate::core::buckets::{Buckets, Command, Stored};
use crate::counters;
use crate::history::{History, Locate};
use crate::index::Index;
use crate::load::{self, LoadError, Loaded};
use crate::outbox::Outboxes;
use crate::plane::{AppliedTo, Plane};
use crate::rarely::Rarely;
use crate::room;
use crate::settle::{SettleParts, Settler};
use crate::store::{Effect, PutNonce, Store, StoreError};

/// Messages from shards that wait to be taken. Full: the shard answers its client `unavailable`, or tries again.
const INBOX_MAX: usize = 16_384;
/// Between attempts to read again what the store failed to say.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Between attempts to hand a message to a shard whose queue was full.
const SEND_AGAIN: Duration = Duration::from_millis(1);
/// How long a stop waits for shards to take their last answers.
const STOP_GRACE: Duration = Duration::from_millis(200);

/// The way to control, for shards: never waits.
#[derive(Clone, Debug)]
pub struct ControlSender {
    asks: mpsc::Sender<ToControl>,
    entries: mpsc::UnboundedSender<ToControl>,
}

impl ControlSender {
    /// Hands a message over.
    ///
    /// # Errors
    /// [`Full`] when control has no room for it, or has stopped. Entries always find room: what shards may have handed over
    /// and not seen settled bounds them.
    pub fn send(&self, message: ToControl) -> Result<(), Full> {
        match message {
            ToControl::Standard { .. } | ToControl::Settle { .. } | ToControl::Flush => {
                self.entries.send(message).map_err(|_| Full)
            }
            ask => self.asks.try_send(ask).map_err(|_| Full),
        }
    }
}

/// What control receives by; made before the shards are, so that they can be given the other end.
#[derive(Debug)]
pub struct Inbox {
    asks: mpsc::Receiver<ToControl>,
    entries: mpsc::UnboundedReceiver<ToControl>,
}

/// Makes the queues from shards to control.
#[must_use]
pub fn inbox() -> (ControlSender, Inbox) {
    let (asks, asked) = mpsc::channel(INBOX_MAX);
    let (entries, handed_over) = mpsc::unbounded_channel();
    (ControlSender { asks, entries }, Inbox { asks: asked, entries: handed_over })
}

/// What control is made of.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) loaded: Loaded,
    pub(crate) options: Options,
    pub(crate) channel: Channel,
    /// Channels that ended and are still kept.
    pub(crate) prior: Vec<PriorChannel>,
    pub(crate) index: Arc<Index>,
    pub(crate) shards: Shards,
    /// Called when another start has taken over: nothing may be answered any more.
    pub(crate) on_fenced: Box<dyn FnOnce(String) + Send>,
}

/// What a stop is told.
#[derive(Debug, Default)]
struct Stop {
    /// How the head logs were left.
    logs: Vec<LogFacts>,
    /// How long the store is waited for.
    within: Duration,
}

/// The background of a star, on threads of its own. Dropped, it stops by itself; [`Control::stop`] waits for it.
#[derive(Debug)]
pub struct Control {
    cluster: ClusterId,
    stop: oneshot::Sender<Stop>,
    thread: JoinHandle<()>,
}

impl Control {
    /// Starts to serve the shards.
    pub(crate) fn start(threads: Threads, parts: Parts) -> Result<Self, StartError> {
        let shards = parts.shards.sinks.len();
        let shards = u16::try_from(shards).map_err(|_| StartError::Shards { shards })?;
        let (stop, stopping) = oneshot::channel();
        let cluster = parts.loaded.cluster;
        let locate: Arc<dyn Locate> = Arc::<Index>::clone(&parts.index);
        let history = {
            let _inside = threads.enter();
            History::new(Arc::clone(&parts.store), locate, &parts.options.history)?
        };
        let thread = thread::Builder::new().name("nova-control".to_owned());
        let thread = thread.spawn(move || {
            threads.block_on(async move { Shell::new(shards, parts, history).run(stopping).await });
        });
        let thread = thread.map_err(|source| StartError::Thread { source })?;
        Ok(Self { cluster, stop, thread })
    }

    /// The cluster that the store belongs to.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Finishes what the store is doing, answers the verbs that wait with `unavailable`, commits and applies what was handed
    /// over, and releases the store, if it does all that `within` this time; else the next start goes on with it. `logs` says how
    /// the head logs were left.
    pub fn stop(self, logs: Vec<LogFacts>, within: Duration) {
        // Refused only by a thread that has ended.
        self.stop.send(Stop { logs, within }).ok();
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A bucket whose streams are being counted: once the index has what its shards had done, it counts right.
#[derive(Debug, Default)]
struct Counting {
    reported: u16,
}

struct Shell {
    shards: u16,
    asks: mpsc::Receiver<ToControl>,
    store: Arc<dyn Store>,
    channel: Channel,
    outboxes: Arc<Outboxes>,
    plane: Arc<Plane>,
    buckets: Buckets,
    counting: BTreeMap<BucketId, Counting>,
    /// At most one a bucket name.
    store_tasks: JoinSet<(BucketName, Stored)>,
    /// Shards that have been waited for, and streams of buckets that were counted.
    counts: JoinSet<Counted>,
    /// Lookups and reads for shards.
    lookups: JoinSet<()>,
    /// What takes entries, and how it is told to take no more.
    taking: (oneshot::Sender<()>, TaskHandle<()>),
    /// What runs beside this: it ends when its inputs do.
    tasks: Vec<TaskHandle<()>>,
    /// What goes on behind the channel, until the index is closed.
    settling: TaskHandle<()>,
    fenced: TaskHandle<()>,
}

enum Counted {
    /// The index has what this shard had done when it froze the bucket.
    Reached(BucketId),
    /// So many streams are there.
    Streams(BucketId, Result<u64, String>),
}

/// What a turn begins with.
enum Event {
    Message(ToControl),
    Stored(BucketName, Stored),
    Counted(Counted),
    LookedUp,
    ReadAgain,
    SendAgain,
    Stop(Stop),
}

impl Shell {
    fn new(shards: u16, parts: Parts, history: History) -> Self {
        let Parts { store, loaded, options, channel, prior, index, shards: joints, on_fenced } = parts;
        let Shards { inbox, sinks, owner } = joints;
        let rooms = options.rooms.clone();
        let (buckets, commands) = Buckets::on_loaded(shards, loaded.buckets);
        let outboxes = Arc::new(Outboxes::new(sinks));
        let history = Arc::new(history);
        let applied = AppliedTo::new(&options.upload.settled, options.unapplied_bytes);
        let (uploader, committed) = Uploader::start(&channel, options.upload);
        let plane = Arc::new(Plane {
            uploader,
            index,
            history,
            outboxes: Arc::clone(&outboxes),
            applied,
            unapplied: 0.into(),
            is_stalled: false.into(),
        });
        let settler = Arc::new(Settler::new(
            SettleParts {
                store: Arc::clone(&store),
                index: Arc::clone(&plane.index),
                channel: channel.clone(),
                history: Arc::clone(&plane.history),
                prior,
                newest_ms: None,
                confirms_clock: options.confirms_clock,
                room: rooms.as_ref().and_then(|rooms| rooms.store.clone()),
            },
            options.settle,
        ));
        let trims = {
            let outboxes = Arc::clone(&outboxes);
            move |slot, message| outboxes.send(owner(slot), message)
        };
        let (stop_taking, stop) = oneshot::channel();
        let taking = tokio::spawn(Arc::clone(&plane).take_entries(inbox.entries, stop));
        let told = counters::Told { meter: options.meter, is_billed: options.is_billed, rooms: rooms.clone() };
        let mut tasks = vec![
            tokio::spawn(Arc::clone(&plane).tell_commits(committed, channel.unrenewed())),
            tokio::spawn(Arc::clone(&plane).checkpoint()),
            tokio::spawn(counters::tell(Arc::clone(&plane), Arc::clone(&settler), told)),
        ];
        tasks.extend(rooms.map(|rooms| tokio::spawn(room::watch(Arc::clone(&plane), rooms))));
        let settling = tokio::spawn(settler.run(trims));
        let fenced = tokio::spawn({
            let channel = channel.clone();
            async move { on_fenced(channel.fenced().await.to_string()) }
        });
        let mut shell = Self {
            shards,
            asks: inbox.asks,
            store,
            channel,
            outboxes,
            plane,
            buckets,
            counting: BTreeMap::new(),
            store_tasks: JoinSet::new(),
            counts: JoinSet::new(),
            lookups: JoinSet::new(),
            taking: (stop_taking, taking),
            tasks,
            settling,
            fenced,
        };
        shell.perform(commands);
        shell
    }

    async fn run(mut self, mut stopping: oneshot::Receiver<Stop>) {
        let mut read_again = interval(READ_AGAIN);
        read_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stop = loop {
            let unsent = !self.outboxes.are_empty();
            let room = !self.outboxes.is_any_full();
            let event = tokio::select! {
                stop = &mut stopping => Event::Stop(stop.unwrap_or_default()),
                Some(ended) = self.store_tasks.join_next() => {
                    let (name, stored) = ended.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
                    Event::Stored(name, stored)
                }
                Some(ended) = self.counts.join_next() => {
                    Event::Counted(ended.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())))
                }
                Some(ended) = self.lookups.join_next() => {
                    ended.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
                    Event::LookedUp
                }
                // Without shards there is nothing to do until the stop says how their logs are left.
                Some(message) = self.asks.recv(), if room => Event::Message(message),
                _ = read_again.tick() => Event::ReadAgain,
                () = sleep(SEND_AGAIN), if unsent => Event::SendAgain,
            };
            let commands = match event {
                Event::Message(message) => self.decide(message),
                Event::Stored(name, stored) => self.buckets.on_stored(&name, stored),
                Event::Counted(counted) => self.on_counted(counted),
                Event::LookedUp => Vec::new(),
                Event::ReadAgain => self.buckets.on_tick(),
                Event::SendAgain => {
                    self.outboxes.flush();
                    Vec::new()
                }
                Event::Stop(stop) => break stop,
            };
            self.perform(commands);
        };
        self.end(stop).await;
    }

    fn decide(&mut self, message: ToControl) -> Vec<Command> {
        let plane = Arc::clone(&self.plane);
        match message {
            ToControl::Bucket { reply_to, verb } => {
                let id = BucketId::from_bytes(uuid::Uuid::now_v7().into_bytes());
                return self.buckets.on_verb(reply_to, verb, unix_ms(), id);
            }
            ToControl::TableConfirmed { shard, version } => return self.buckets.on_confirmed(shard, version),
            ToControl::Frozen { shard, bucket, standard, express } => self.on_frozen(shard, bucket, standard, express),
            ToControl::Load { reply_to, key } => drop(self.lookups.spawn(plane.load(reply_to, key))),
            ToControl::ReadHistory { reply_to, slot, stream_id, from, bytes_max } => {
                self.lookups.spawn(plane.read(reply_to, (slot, stream_id), from, bytes_max));
            }
            ToControl::ListIndex { reply_to, bucket, after, limit } => {
                self.lookups.spawn(plane.list(reply_to, bucket, (after, limit)));
            }
            entries @ (ToControl::Standard { .. } | ToControl::Settle { .. } | ToControl::Flush) => plane.take(entries),
        }
        Vec::new()
    }

    /// A shard makes no more streams in a bucket: what it has done is waited for, then the index counts.
    fn on_frozen(&mut self, shard: ShardId, bucket: BucketId, standard: Lsn, express: (LogId, Lsn)) {
        hit(Point::BucketFrozen);
        let plane = Arc::clone(&self.plane);
        self.counts.spawn(async move {
            plane.uploader.flush();
            plane.applied.reaches(shard, standard, express).await;
            Counted::Reached(bucket)
        });
    }

    fn on_counted(&mut self, counted: Counted) -> Vec<Command> {
        match counted {
            Counted::Reached(bucket) => {
                let counting = self.counting.entry(bucket).or_default();
                counting.reported += 1;
                if counting.reported >= self.shards {
                    self.counting.remove(&bucket);
                    self.count(bucket);
                }
                Vec::new()
            }
            Counted::Streams(bucket, Ok(streams)) => {
                let part = |shard| if shard == 0 { streams } else { 0 };
                let shards = (0..self.shards).map(|shard| (ShardId::new(shard), part(shard)));
                shards.flat_map(|(shard, part)| self.buckets.on_frozen(shard, bucket, part)).collect()
            }
            Counted::Streams(bucket, Err(error)) => {
                tracing::warn!(%bucket, error, "the streams of a bucket can't be counted");
                self.count(bucket);
                Vec::new()
            }
        }
    }

    fn count(&mut self, bucket: BucketId) {
        let plane = Arc::clone(&self.plane);
        self.counts.spawn(async move {
            let counted = plane.index.count(bucket).await;
            if counted.is_err() {
                sleep(READ_AGAIN).await;
            }
            Counted::Streams(bucket, counted.map_err(|error| error.to_string()))
        });
    }

    fn perform(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Tell(message) => self.outboxes.send_all(&message),
                Command::Reply { to, result } => {
                    self.send(to, ToShard::BucketReply { ticket: to.ticket, result });
                }
                Command::Put { .. } | Command::Remove { .. } | Command::Read { .. } => {
                    self.store_tasks.spawn(ask(Arc::clone(&self.store), command));
                }
            }
        }
    }

    fn send(&self, to: ReplyTo, message: ToShard) {
        self.outboxes.send(to.shard, message);
    }

    /// Every request is answered, no write is left half asked for, and what was handed over is in the store.
    async fn end(mut self, Stop { logs, within }: Stop) {
        let until = Instant::now() + within;
        let commands = self.buckets.on_stop();
        self.perform(commands);
        self.asks.close();
        while let Ok(message) = self.asks.try_recv() {
            if let ToControl::Bucket { reply_to, .. } = message {
                let result = Err(Refusal::new(Reason::Unavailable, "the star is stopping: try another, or later"));
                self.send(reply_to, ToShard::BucketReply { ticket: reply_to.ticket, result });
            }
        }
        let verbs = async { while self.store_tasks.join_next().await.is_some() {} };
        if timeout_at(until, verbs).await.is_err() {
            tracing::warn!(
                verbs = self.store_tasks.len(),
                "the store has not answered bucket verbs: they may take effect yet"
            );
        }
        self.lookups.shutdown().await;
        self.counts.shutdown().await;
        let (stop_taking, taking) = self.taking;
        // It has ended when the shards have.
        stop_taking.send(()).ok();
        if let Err(panic) = taking.await {
            std::panic::resume_unwind(panic.into_panic());
        }
        self.settling.abort();
        // Ended by that, or by a panic that has been told.
        drop(self.settling.await);
        if timeout_at(until, finish(&self.plane, &self.channel, &logs)).await.is_err() {
            let within_ms = within.as_millis();
            tracing::warn!(within_ms, "the store did not take everything in time: the next start goes on with it");
        }
        for LogFacts { log, number, end_lsn, .. } in logs {
            let unsettled = unsettled(end_lsn, self.plane.applied.express(log));
            if unsettled > 0 {
                tracing::warn!(%log, number, unsettled, "entries of a head log are not in the store yet: they are on this disk");
            }
        }
        let mut waited = Duration::ZERO;
        while !self.outboxes.are_empty() && waited < STOP_GRACE {
            sleep(SEND_AGAIN).await;
            waited += SEND_AGAIN;
            self.outboxes.flush();
        }
        self.fenced.abort();
        self.tasks.iter().for_each(TaskHandle::abort);
    }
}

/// Entries of a log that ends before `end`, with all up to `settled` in the store.
fn unsettled(end: Lsn, settled: Lsn) -> u64 {
    end.get().saturating_sub(settled.get() + 1)
}

/// Commits what was handed over, makes the index durable, and releases the store.
async fn finish(plane: &Plane, channel: &Channel, logs: &[LogFacts]) {
    if let Err(error) = plane.finish(channel).await {
        tracing::warn!(%error, "not everything is in the index: the next start goes on with it");
        return;
    }
    let is_settled = |facts: &LogFacts| unsettled(facts.end_lsn, plane.applied.express(facts.log)) == 0;
    let logs: Vec<_> =
        logs.iter().map(|facts| LogFacts { clean: facts.clean || is_settled(facts), ..*facts }).collect();
    if let Err(error) = channel.release(&logs).await {
        tracing::warn!(%error, "the store is not released: the next start takes over as after a crash");
    }
}

/// Does what a command asks of the store, and puts the answer into the core's words.
async fn ask(store: Arc<dyn Store>, command: Command) -> (BucketName, Stored) {
    let store = store.as_ref();
    match command {
        Command::Put { bucket, expected } => {
            let name = bucket.name.clone();
            let put = async {
                let (object, nonce) = (load::object_of(&name)?, PutNonce::fresh());
                let body = Bytes::from(bucket.encode());
                hit(Point::BucketPut);
                let kept = match &expected {
                    Some(version) => store.put_if_match(&object, version, body, nonce).await?,
                    None => store.put_if_absent(&object, body, nonce).await?,
                };
                hit(Point::BucketPutDone);
                Ok(Stored::Kept(kept))
            };
            let stored = put.await.unwrap_or_else(|e| failed(&name, &e));
            (name, stored)
        }
        Command::Remove { name, expected } => {
            let remove = async {
                hit(Point::BucketRemove);
                store.delete_if_match(&load::object_of(&name)?, &expected).await?;
                hit(Point::BucketRemoved);
                Ok(Stored::Removed)
            };
            let stored = remove.await.unwrap_or_else(|e| failed(&name, &e));
            (name, stored)
        }
        Command::Read { name } => {
            let read = async {
                let found = load::read_bucket(store, &load::object_of(&name)?).await?;
                Ok(Stored::Found(found))
            };
            let stored = read.await.unwrap_or_else(|e| failed(&name, &e));
            (name, stored)
        }
        Command::Tell(_) | Command::Reply { .. } => unreachable!("the store is asked neither"),
    }
}

fn failed(name: &BucketName, error: &LoadError) -> Stored {
    let (effect, reason) = match error {
        LoadError::Store(
            StoreError::AlreadyExists { .. } | StoreError::VersionMismatch { .. } | StoreError::NotFound { .. },
        ) => return Stored::Conflict,
        LoadError::Store(e) => (e.effect(), e.reason()),
        _ => (Effect::None, Reason::Internal),
    };
    static SAID: Rarely = Rarely::new();
    if SAID.is_due() {
        tracing::warn!(bucket = %name, %error, "the store failed");
    }
    Stored::Failed { effect, refusal: Refusal::new(reason, format!("bucket {name}: {error}")) }
}

pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX).saturating_add(wall_shift_ms())
}

#[cfg(test)]
pub(crate) mod tests;
