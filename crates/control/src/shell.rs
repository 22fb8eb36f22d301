//! What runs the decisions: one thread that takes what shards ask and what the store answers, in turns.

use std::io;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use wire::handoff::{Full, ReplyTo, ToControl, ToShard};
use wire::ids::{BucketId, ClusterId};
use wire::names::BucketName;
use wire::reason::Reason;
use wire::refusal::Refusal;

use crate::core::buckets::{Buckets, Command, Stored};
use crate::load::{self, LoadError, Loaded};
use crate::outbox::{Outbox, ShardSink};
use crate::store::{Effect, PutNonce, Store, StoreError};

/// Messages from shards that wait to be taken. Full: the shard answers its client `unavailable`, or tries again.
const INBOX_MAX: usize = 4_096;
/// Between attempts to read again what the store failed to say.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Between attempts to hand a message to a shard whose queue was full.
const SEND_AGAIN: Duration = Duration::from_millis(1);
/// How long a stop waits for shards to take their last answers.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// Threads for blocking file work.
const BLOCKING_THREADS: usize = 16;

/// The way to control, for shards: never waits.
#[derive(Clone, Debug)]
pub struct ControlSender(mpsc::Sender<ToControl>);

impl ControlSender {
    /// Hands a message over.
    ///
    /// # Errors
    /// [`Full`] when control has no room for it, or has stopped.
    pub fn send(&self, message: ToControl) -> Result<(), Full> {
        self.0.try_send(message).map_err(|_| Full)
    }
}

/// What control receives by; made before the shards are, so that they can be given the other end.
#[derive(Debug)]
pub struct Inbox(mpsc::Receiver<ToControl>);

/// Makes the bounded queue from shards to control.
#[must_use]
pub fn inbox() -> (ControlSender, Inbox) {
    let (sender, receiver) = mpsc::channel(INBOX_MAX);
    (ControlSender(sender), Inbox(receiver))
}

/// What control is joined to.
pub struct Joints {
    /// Where shards' messages come from.
    pub inbox: Inbox,
    /// Where metadata is kept.
    pub store: Arc<dyn Store>,
    /// By shard, where messages for it go.
    pub shards: Vec<ShardSink>,
    /// CPUs that its threads may run on; empty: any.
    pub cpus: Vec<usize>,
}

impl std::fmt::Debug for Joints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shards = self.shards.len();
        f.debug_struct("Joints").field("store", &self.store).field("shards", &shards).finish_non_exhaustive()
    }
}

/// Why control does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What the store holds can't be served.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// More shards than there are numbers for.
    #[error("{shards} shards are more than {}", u16::MAX)]
    Shards {
        /// How many.
        shards: usize,
    },
    /// The threads can't run on the CPUs chosen.
    #[error("can't run the background on CPUs {cpus:?}: {source}")]
    Pin {
        /// The CPUs.
        cpus: Vec<usize>,
        /// What the system said.
        source: io::Error,
    },
    /// There is no thread or runtime to be had.
    #[error("can't start the background's thread: {source}")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
}

/// The background of a star, on a thread of its own. Dropped, it stops by itself; [`Control::stop`] waits for it.
#[derive(Debug)]
pub struct Control {
    cluster: ClusterId,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Control {
    /// Starts the background. When it returns, all metadata was read, and the bucket table is on its way to every shard.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub fn start(joints: Joints) -> Result<Self, StartError> {
        let shards = joints.shards.len();
        let shards = u16::try_from(shards).map_err(|_| StartError::Shards { shards })?;
        let (stop, stopping) = oneshot::channel();
        let (started, starting) = std_mpsc::sync_channel(1);
        let lost = || StartError::Thread { source: io::Error::other("it ended before it had started") };
        let thread = thread::Builder::new().name("nova-control".to_owned());
        let thread = thread.spawn(move || {
            // Refused only if the caller is gone, and then `stopping` ends it.
            match prepare(&joints) {
                Ok((runtime, loaded)) => runtime.block_on(async {
                    let cluster = loaded.cluster;
                    let shell = Shell::new(shards, joints, loaded);
                    started.send(Ok(cluster)).ok();
                    shell.run(stopping).await;
                }),
                Err(e) => drop(started.send(Err(e))),
            }
        });
        let thread = thread.map_err(|source| StartError::Thread { source })?;
        let cluster = starting.recv().map_err(|_| lost())??;
        Ok(Self { cluster, stop, thread })
    }

    /// The cluster that the store belongs to.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Finishes what the store is doing, answers the verbs that wait with `unavailable`, and ends the thread.
    pub fn stop(self) {
        // Refused only by a thread that has ended.
        self.stop.send(()).ok();
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn prepare(joints: &Joints) -> Result<(tokio::runtime::Runtime, Loaded), StartError> {
    pin(&joints.cpus)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("nova-store")
        .build()
        .map_err(|source| StartError::Thread { source })?;
    let loaded = runtime.block_on(load::load(&joints.store))?;
    Ok((runtime, loaded))
}

/// Binds this thread, and so those it starts, to the CPUs.
fn pin(cpus: &[usize]) -> Result<(), StartError> {
    if cpus.is_empty() {
        return Ok(());
    }
    let failed = |source| StartError::Pin { cpus: cpus.to_vec(), source };
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        if *cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(failed(io::Error::from(io::ErrorKind::InvalidInput)));
        }
        set.set(*cpu);
    }
    rustix::thread::sched_setaffinity(None, &set).map_err(|e| failed(e.into()))
}

struct Shell {
    inbox: mpsc::Receiver<ToControl>,
    store: Arc<dyn Store>,
    outboxes: Vec<Outbox>,
    buckets: Buckets,
    /// At most one a bucket name.
    store_tasks: JoinSet<(BucketName, Stored)>,
}

/// What a turn begins with.
enum Event {
    Message(ToControl),
    Stored(BucketName, Stored),
    ReadAgain,
    SendAgain,
    Stop,
}

impl Shell {
    fn new(shards: u16, joints: Joints, loaded: Loaded) -> Self {
        let (buckets, commands) = Buckets::on_loaded(shards, loaded.buckets);
        let mut shell = Self {
            inbox: joints.inbox.0,
            store: joints.store,
            outboxes: joints.shards.into_iter().map(Outbox::new).collect(),
            buckets,
            store_tasks: JoinSet::new(),
        };
        shell.perform(commands);
        shell
    }

    async fn run(mut self, mut stopping: oneshot::Receiver<()>) {
        let mut read_again = interval(READ_AGAIN);
        read_again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let unsent = self.outboxes.iter().any(|outbox| !outbox.is_empty());
            let room = !self.outboxes.iter().any(Outbox::is_full);
            let event = tokio::select! {
                _ = &mut stopping => Event::Stop,
                Some(ended) = self.store_tasks.join_next() => {
                    let (name, stored) = ended.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
                    Event::Stored(name, stored)
                }
                message = self.inbox.recv(), if room => message.map_or(Event::Stop, Event::Message),
                _ = read_again.tick() => Event::ReadAgain,
                () = sleep(SEND_AGAIN), if unsent => Event::SendAgain,
            };
            let commands = match event {
                Event::Message(message) => self.decide(message),
                Event::Stored(name, stored) => self.buckets.on_stored(&name, stored),
                Event::ReadAgain => self.buckets.on_tick(),
                Event::SendAgain => {
                    self.outboxes.iter_mut().for_each(Outbox::flush);
                    Vec::new()
                }
                Event::Stop => break,
            };
            self.perform(commands);
        }
        self.end().await;
    }

    fn decide(&mut self, message: ToControl) -> Vec<Command> {
        match message {
            ToControl::Bucket { reply_to, verb } => {
                let id = BucketId::from_bytes(uuid::Uuid::now_v7().into_bytes());
                self.buckets.on_verb(reply_to, verb, unix_ms(), id)
            }
            ToControl::TableConfirmed { shard, version } => self.buckets.on_confirmed(shard, version),
            ToControl::Frozen { shard, bucket, streams, .. } => self.buckets.on_frozen(shard, bucket, streams),
            ToControl::Standard { .. }
            | ToControl::Settle { .. }
            | ToControl::Flush
            | ToControl::Load { .. }
            | ToControl::ReadHistory { .. }
            | ToControl::ListIndex { .. } => Vec::new(),
        }
    }

    fn perform(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Tell(message) => self.outboxes.iter_mut().for_each(|outbox| outbox.send(message.clone())),
                Command::Reply { to, result } => {
                    self.send(to, ToShard::BucketReply { ticket: to.ticket, result });
                }
                Command::Put { .. } | Command::Remove { .. } | Command::Read { .. } => {
                    self.store_tasks.spawn(ask(Arc::clone(&self.store), command));
                }
            }
        }
    }

    fn send(&mut self, to: ReplyTo, message: ToShard) {
        if let Some(outbox) = self.outboxes.get_mut(usize::from(to.shard.get())) {
            outbox.send(message);
        } else {
            tracing::error!(shard = to.shard.get(), ticket = to.ticket, "an answer for a shard that there is not");
        }
    }

    /// Every request is answered, and no write is left half asked for.
    async fn end(mut self) {
        let commands = self.buckets.on_stop();
        self.perform(commands);
        self.inbox.close();
        while let Ok(message) = self.inbox.try_recv() {
            if let ToControl::Bucket { reply_to, .. } = message {
                let result = Err(Refusal::new(Reason::Unavailable, "the star is stopping: try another, or later"));
                self.send(reply_to, ToShard::BucketReply { ticket: reply_to.ticket, result });
            }
        }
        while self.store_tasks.join_next().await.is_some() {}
        let mut waited = Duration::ZERO;
        while self.outboxes.iter().any(|outbox| !outbox.is_empty()) && waited < STOP_GRACE {
            sleep(SEND_AGAIN).await;
            waited += SEND_AGAIN;
            self.outboxes.iter_mut().for_each(Outbox::flush);
        }
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
                let kept = match &expected {
                    Some(version) => store.put_if_match(&object, version, body, nonce).await?,
                    None => store.put_if_absent(&object, body, nonce).await?,
                };
                Ok(Stored::Kept(kept))
            };
            let stored = put.await.unwrap_or_else(|e| failed(&name, &e));
            (name, stored)
        }
        Command::Remove { name, expected } => {
            let remove = async {
                store.delete_if_match(&load::object_of(&name)?, &expected).await?;
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
    tracing::warn!(bucket = %name, %error, "the store failed");
    Stored::Failed { effect, refusal: Refusal::new(reason, format!("bucket {name}: {error}")) }
}

pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
