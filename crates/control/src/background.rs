//! How does the background take the store, before there are shards?
//!
//! In this order: the buckets are read; the star joins, which fences whoever wrote before it; what was committed and is not
//! in the index durably is applied to it. Then head logs can be recovered onto the rows of the index, and shards started.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use failpoints::{Point, hit};
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout};
use tuning::room::Rooms;
use wire::handoff::SettledLogs;
use wire::ids::{ClusterId, Epoch, LogId, ShardId, StreamId};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use crate::channel::{
    self, Channel, ChannelError, JoinError, JoinRequest, KnownLogs, LogFacts, LogFault, PriorChannel, ReadError,
    UploadOptions,
};
use crate::history::{HistoryOptions, NvmeOpenError};
use crate::index::{Index, IndexError, IndexOptions, IndexOwner, SlotMade};
use crate::load::{self, LoadError, Loaded};
use crate::losses::{self, Losses};
use crate::outbox::ShardSink;
use crate::settle::SettleOptions;
use crate::shell::{Control, Inbox, Parts};
use crate::store::{Span, Store, StoreMeter, Trouble};

/// Threads for blocking file work.
const BLOCKING_THREADS: usize = 16;
/// Threads for everything else.
const WORKERS: usize = 2;

/// What the background may cost, and when it does what.
#[derive(Debug, Clone)]
pub struct Options {
    /// How chunks are cut and put.
    pub upload: UploadOptions,
    /// What the index may cost.
    pub index: IndexOptions,
    /// What reads of settled records may cost.
    pub history: HistoryOptions,
    /// When what is behind the channel does what.
    pub settle: SettleOptions,
    /// An operator says that the wall clock is right.
    pub confirms_clock: bool,
    /// Counts what is asked of the store, if anything does.
    pub meter: Option<Arc<StoreMeter>>,
    /// Whether the store takes money for it.
    pub is_billed: bool,
    /// Bytes of committed chunks that wait to be applied to the index, at most; one chunk in any case.
    pub unapplied_bytes: usize,
    /// The disks of this host that are written; `None`: nobody looks at them.
    pub rooms: Option<Rooms>,
}

/// Why the background does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What the store holds can't be served.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The star may not write the store.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The index can't be read, or what was committed can't be applied to it.
    #[error("the index can't be brought up to date: {0}")]
    Index(#[from] IndexError),
    /// Head logs can't be noted in the store.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The file for blocks of settled records can't be made.
    #[error(transparent)]
    Cache(#[from] NvmeOpenError),
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
    #[error("can't start the background's threads: {source}")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
}

/// What the background is joined to.
pub struct Shards {
    /// Where shards' messages come from.
    pub inbox: Inbox,
    /// By shard, where messages for it go.
    pub sinks: Vec<ShardSink>,
    /// Which shard owns a slot.
    pub owner: Box<dyn Fn(Slot) -> ShardId + Send + Sync>,
}

impl std::fmt::Debug for Shards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shards").field("sinks", &self.sinks.len()).finish_non_exhaustive()
    }
}

/// The threads that the background works on; clones are the same ones. They end with the last clone, without a wait for what a
/// store still owes.
#[derive(Clone, Debug)]
pub struct Threads(Arc<Running>);

#[derive(Debug)]
struct Running(Option<Runtime>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Threads {
    /// Starts them on these CPUs; on any when there are none.
    ///
    /// # Errors
    /// [`StartError`] when they can't run there, or there are none to be had.
    pub fn start(cpus: &[usize]) -> Result<Self, StartError> {
        runtime(cpus).map(|runtime| Self(Arc::new(Running(Some(runtime)))))
    }

    fn runtime(&self) -> &Runtime {
        self.0.0.as_ref().expect("it is taken when the last clone goes")
    }

    /// Blocks until the work is done.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime().block_on(work)
    }

    /// Lets what is made while the guard lives use the threads.
    pub(crate) fn enter(&self) -> tokio::runtime::EnterGuard<'_> {
        self.runtime().enter()
    }

    /// The cluster that a store belongs to, if any does, changing nothing. It must be the one that is known.
    ///
    /// # Errors
    /// [`StartError`] as a start would have it: the store is away, is another cluster's, or has lost what says which it is.
    pub fn look(&self, store: &dyn Store, known: Option<ClusterId>) -> Result<Option<ClusterId>, StartError> {
        Ok(self.block_on(channel::look(store, known)).map_err(LoadError::from)?)
    }

    /// Asks a store for a sign of life, for so long at most; why there is none.
    #[must_use]
    pub fn find_away(&self, store: &dyn Store, within: Duration) -> Option<Trouble> {
        let since = Instant::now();
        let object = channel::cluster_object();
        let silent = || Trouble { since, why: format!("no answer within {} ms", within.as_millis()).into() };
        match self.block_on(async { timeout(within, store.get(&object, Span::Whole)).await }) {
            Err(_) => Some(store.trouble().unwrap_or_else(silent)),
            Ok(Err(error)) if error.is_away() => Some(Trouble { since, why: error.to_string().into() }),
            Ok(_) => None,
        }
    }
}

/// A store whose buckets were read, and the threads to work with it.
#[derive(Debug)]
pub struct Opened {
    threads: Threads,
    store: Arc<dyn Store>,
    loaded: Loaded,
    options: Options,
}

/// A store that this star writes, with an index that has all that was committed.
#[derive(Debug)]
pub struct Background {
    threads: Threads,
    store: Arc<dyn Store>,
    loaded: Loaded,
    options: Options,
    channel: Channel,
    loss_epoch: Epoch,
    lost: Vec<LogId>,
    known_logs: KnownLogs,
    prior: Vec<PriorChannel>,
    index: Arc<Index>,
    settled: SettledLogs,
}

impl StartError {
    /// Whether the store can't be reached or did not answer: the same may succeed later, with nothing changed.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            Self::Load(LoadError::Store(error)) | Self::Join(JoinError::Store(error)) => error.is_away(),
            Self::Join(JoinError::Cluster(error)) => error.is_away(),
            Self::Join(JoinError::Chunk(ReadError::Store(error))) => error.is_away(),
            Self::Channel(ChannelError::Cluster(error)) => error.is_away(),
            Self::Index(error) => error.reason() == Reason::Unavailable,
            _ => false,
        }
    }
}

impl Opened {
    /// Reads the buckets. A star that has joined before knows the cluster of its data, and takes no other.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn open(
        threads: &Threads,
        store: Arc<dyn Store>,
        known: Option<ClusterId>,
        options: Options,
    ) -> Result<Self, StartError> {
        let loaded = threads.block_on(load::load(&store, known))?;
        Ok(Self { threads: threads.clone(), store, loaded, options })
    }

    /// Takes the store for this star, and brings the index up to date.
    ///
    /// # Errors
    /// [`StartError`]; nothing that was committed is lost by it.
    pub fn join(self, request: JoinRequest) -> Result<Background, StartError> {
        let Self { threads, store, loaded, options } = self;
        let began = Instant::now();
        let (joined, index, replayed) = threads.block_on(async {
            let joined = channel::join(&store, request).await?;
            let made = slot_made(&joined.channel);
            let owner = IndexOwner::of(&joined.channel);
            let index = Index::open(Arc::clone(&store), owner, joined.slots_with_index, options.index, made).await?;
            let replayed = index.replay(&joined.prior).await?;
            Ok::<_, StartError>((joined, index, replayed))
        })?;
        tracing::info!(
            incarnation = joined.incarnation.get(),
            chunks = replayed.chunks,
            took_ms = began.elapsed().as_millis(),
            "the store is this star's"
        );
        let (channel, loss_epoch) = (joined.channel, joined.loss_epoch);
        for fault in &joined.lost {
            tracing::warn!(%fault, "a loss is accepted");
        }
        let lost = joined.lost.iter().map(LogFault::log).collect();
        let (index, settled) = (Arc::new(index), replayed.settled);
        Ok(Background {
            threads,
            store,
            loaded,
            options,
            channel,
            loss_epoch,
            lost,
            known_logs: joined.known_logs,
            prior: joined.prior,
            index,
            settled,
        })
    }
}

impl Background {
    /// The cluster that the store belongs to.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.channel.cluster()
    }

    /// The star's new tenure.
    #[must_use]
    pub fn incarnation(&self) -> Epoch {
        self.channel.incarnation()
    }

    /// The last incarnation that began with an accepted loss; zero when none did.
    #[must_use]
    pub fn loss_epoch(&self) -> Epoch {
        self.loss_epoch
    }

    /// Head logs that this start gives up: one of them that is here must not be written.
    #[must_use]
    pub fn lost(&self) -> &[LogId] {
        &self.lost
    }

    /// What the store has of the streams that may have lost records with a head log.
    ///
    /// # Errors
    /// [`StartError`] when the index can't be read.
    pub fn losses(&self) -> Result<Losses, StartError> {
        let buckets = self.loaded.buckets.iter().map(|(bucket, _)| bucket);
        Ok(self.threads.block_on(losses::survey(&self.index, buckets, self.loss_epoch))?)
    }

    /// How far head logs are settled.
    #[must_use]
    pub fn settled(&self) -> &SettledLogs {
        &self.settled
    }

    /// The rows of these streams that the index has. Blocks.
    ///
    /// # Errors
    /// `unavailable` when the index can't be read.
    pub fn rows(&self, streams: &[(Slot, StreamId)]) -> Result<Vec<StreamRow>, Refusal> {
        let rows = self.threads.block_on(self.index.rows_by_id(streams));
        rows.map_err(|error| Refusal::new(Reason::Unavailable, error.to_string()))
    }

    /// What is wrong with head logs, now that it is known how far they reach.
    #[must_use]
    pub fn judge(&self, logs: &[LogFacts]) -> Vec<LogFault> {
        self.known_logs.faults(logs)
    }

    /// Notes the head logs that shards have opened. They take no record before this has answered.
    ///
    /// # Errors
    /// See [`StartError`]; it can be asked again.
    pub fn note_logs(&self, logs: &[LogFacts]) -> Result<(), StartError> {
        hit(Point::LogsNote);
        self.threads.block_on(self.channel.note_logs(logs))?;
        hit(Point::LogsNoted);
        Ok(())
    }

    /// Starts to serve the shards, whose head logs are noted. When it returns, the bucket table is on its way to each of them.
    ///
    /// # Errors
    /// See [`StartError`]; nothing runs then.
    pub fn start(self, shards: Shards, on_fenced: Box<dyn FnOnce(String) + Send>) -> Result<Control, StartError> {
        let Self { threads, store, loaded, mut options, channel, prior, index, settled, .. } = self;
        options.upload.settled = settled;
        Control::start(threads, Parts { store, loaded, options, channel, prior, index, shards, on_fenced })
    }
}

/// Notes slots in the cluster; those that are made at the same time are noted together.
fn slot_made(channel: &Channel) -> SlotMade {
    let channel = channel.clone();
    let wanted = Arc::new(AtomicU64::new(0));
    let noted = Arc::new(tokio::sync::Mutex::new(0));
    Arc::new(move |slot: Slot| {
        let (channel, wanted, noted) = (channel.clone(), Arc::clone(&wanted), Arc::clone(&noted));
        Box::pin(async move {
            let bit = 1 << slot.get();
            wanted.fetch_or(bit, Ordering::AcqRel);
            let mut noted = noted.lock().await;
            if *noted & bit == 0 {
                *noted |= channel.add_slots_with_index(wanted.load(Ordering::Acquire)).await?;
            }
            Ok(())
        })
    })
}

fn runtime(cpus: &[usize]) -> Result<Runtime, StartError> {
    let failed = |source| StartError::Pin { cpus: cpus.to_vec(), source };
    let set = cpu_set(cpus).map_err(failed)?;
    can_run_on(set).map_err(failed)?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .thread_name("nova-control")
        .on_thread_start(move || {
            if let Some(set) = &set
                && let Err(error) = rustix::thread::sched_setaffinity(None, set)
            {
                tracing::warn!(%error, "a thread of the background runs on any CPU");
            }
        })
        .build()
        .map_err(|source| StartError::Thread { source })
}

/// Tries the CPUs with a thread of its own.
fn can_run_on(set: Option<rustix::thread::CpuSet>) -> io::Result<()> {
    let Some(set) = set else { return Ok(()) };
    let tried = std::thread::spawn(move || rustix::thread::sched_setaffinity(None, &set)).join();
    tried.map_err(|_| io::Error::other("the thread that tried panicked"))?.map_err(Into::into)
}

/// The CPUs as a set; none when any will do.
fn cpu_set(cpus: &[usize]) -> io::Result<Option<rustix::thread::CpuSet>> {
    if cpus.is_empty() {
        return Ok(None);
    }
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus {
        if *cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        set.set(*cpu);
    }
    Ok(Some(set))
}

#[cfg(test)]
mod tests;
