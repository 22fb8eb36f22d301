//! How do the shards of a star start, and how are they stopped?

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use express_log::{LogOptions, SyncMode};
use glommio::{ExecutorJoinHandle, LocalExecutorBuilder, PoolPlacement};
use tuning::room::Rooms;
use tuning::settings::{LogSync, Settings, Shares};
use wire::handoff::{Full, ToControl, ToShard};
use wire::ids::{ClusterId, Epoch, LogId, Lsn, ShardId, StarId};
use wire::slot::Slot;

use crate::core::Placement;
use crate::doors::Doors;
use crate::feeding::OldLogs;
use crate::hop::Mailbox;
use crate::recover::RecoveredStar;
use crate::shard_thread::{self, ShardStart};
use crate::start_error::StartError;
use crate::watchdog::Watchdog;

/// No task is ever preempted: with a shorter timer the executor may go to sleep with tasks that could run.
const PREEMPT_TIMER: Duration = Duration::from_secs(3_600);
/// Entries of a shard's rings.
const RING_DEPTH: usize = 512;
/// Memory that a shard's commit buffers come from, enough for every commit that may be pending; it is registered with the
/// rings where the memlock limit allows. From the heap each commit would fault its pages in again: a tenth of a shard's
/// time at 64 connections × 16 in flight.
const IO_MEMORY_BYTES: usize = 16 << 20;
/// Threads for calls that block, beside the shard's own.
const BLOCKING_THREADS: usize = 2;
/// Rings of a shard that sleep, and so get `IORING_SETUP_COOP_TASKRUN`.
const COOP_RINGS: u32 = 2;

/// What a star is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The CPU of each shard.
    pub shard_cpus: Vec<usize>,
    /// What the operator chose.
    pub settings: Settings,
    /// Bytes that each head log may take.
    pub log_bytes_max: u64,
    /// The disks of the head logs and of the store.
    pub rooms: Rooms,
    /// The version that clients are told.
    pub version: &'static str,
    /// The cluster.
    pub cluster_id: ClusterId,
    /// The star.
    pub star_id: StarId,
    /// An Express stream that the index has of an earlier tenure than this ends in a gap: a head log was lost, and an operator
    /// accepted that. Zero when none was.
    pub loss_epoch: Epoch,
}

/// How a head log was left when its star stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLeft {
    /// Its number.
    pub number: u16,
    /// Its id.
    pub log: LogId,
    /// The tenure that wrote it last.
    pub epoch: Epoch,
    /// One past its last entry.
    pub end_lsn: Lsn,
    /// The store holds all of it.
    pub is_settled: bool,
}

/// What every shard of a star knows.
#[derive(Debug)]
pub(crate) struct StarFacts {
    pub(crate) shards: u16,
    pub(crate) version: &'static str,
    pub(crate) cluster_id: ClusterId,
    pub(crate) star_id: StarId,
    pub(crate) append_window: u32,
    pub(crate) keepalive: Duration,
    pub(crate) drain_timeout: Duration,
    /// How long what is under way in the standard store may wait once that takes nothing.
    pub(crate) standard_patience: Duration,
    /// How long a record may be on this disk alone.
    pub(crate) backlog_age_max: Duration,
    pub(crate) connections_max: usize,
    pub(crate) shares: Shares,
    pub(crate) rooms: Rooms,
    pub(crate) started: Instant,
    /// How long the head logs took to recover, and how many entries were read of them.
    pub(crate) recovery: (Duration, u64),
    /// Shards that have nothing to do while the star drains, a bit each.
    pub(crate) quiet_shards: AtomicU64,
    /// The star drains, and no shard waits for others to become quiet any more.
    pub(crate) finishes: AtomicBool,
    /// Shards that serve no more frames and have answered all, a bit each.
    pub(crate) answered_shards: AtomicU64,
    /// Head logs whose entries of earlier tenures are not all settled.
    pub(crate) old_logs: Arc<OldLogs>,
    /// How head logs were left, by the shards that have stopped.
    pub(crate) left: Mutex<Vec<LogLeft>>,
}

/// A star that serves.
#[derive(Debug)]
pub struct Star {
    addr: SocketAddr,
    mailboxes: Arc<[Mailbox]>,
    threads: Vec<ExecutorJoinHandle<()>>,
    watchdog: Watchdog,
    facts: Arc<StarFacts>,
    logs: Vec<LogLeft>,
    placement: Placement,
}

/// Tells one shard something, from any thread; full when the shard has not heard enough of what it was told before.
pub type TellShard = Box<dyn Fn(ToShard) -> Result<(), Full> + Send>;

/// The thread of a shard ended before its time.
#[derive(Debug, thiserror::Error)]
#[error("the thread of shard {shard} ended early: {message}")]
pub struct ShardEnded {
    /// Which shard.
    pub shard: ShardId,
    /// What the runtime says.
    pub message: String,
}

/// Ends the process after the message of any panic: a panic would end only its shard, half changed, and the others would
/// go on. For builds that unwind.
pub fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

/// Starts the shards of a star behind its doors; each serves once control has sent it a table of buckets.
///
/// # Errors
/// [`StartError`]; no thread is left behind then.
pub fn start(
    options: &Options,
    doors: &Doors,
    recovered: RecoveredStar,
    to_control: impl Fn(ToControl) -> Result<(), Full> + Send + Clone + 'static,
) -> Result<Star, StartError> {
    let shards = options.shard_cpus.len();
    if shards != recovered.streams.len() {
        return Err(StartError::Shards { recovered: recovered.streams.len(), asked: shards });
    }
    express_log::try_ring().map_err(|source| StartError::IoUring { source })?;
    let (addr, listeners) = (doors.addr(), doors.listeners(shards)?);
    let mailboxes: Arc<[Mailbox]> = (0..shards).map(|_| Mailbox::new(shards)).collect();
    let watchdog = watch(&mailboxes)?;
    let tenures = recovered.logs.iter().flat_map(|log| log.tenures.iter().map(|(epoch, _)| *epoch));
    let facts = Arc::new(facts(options, &recovered, OldLogs::new(tenures)));
    let RecoveredStar { epoch, placement, streams, mut logs, .. } = recovered;
    let dirs: Vec<PathBuf> = logs.iter().map(|log| log.recovered.dir().to_owned()).collect();
    let mut others: Vec<_> = (placement.shards()..).zip(logs.split_off(shards)).collect();
    let (say, said) = mpsc::channel();
    let (facts_of_star, threads) = (Arc::clone(&facts), Vec::new());
    let mut star = Star {
        addr,
        mailboxes,
        threads,
        watchdog,
        facts: facts_of_star,
        logs: Vec::new(),
        placement: placement.clone(),
    };
    let parts = logs.into_iter().zip(streams).zip(listeners).zip(&options.shard_cpus);
    for (((log, streams), listener), cpu) in parts {
        let shard = ShardId::new(log.number);
        let start = ShardStart {
            shard,
            epoch,
            placement: placement.clone(),
            streams,
            recovered: log.recovered,
            settled: log.settled,
            tenures: log.tenures,
            // The first shard is there always.
            other_logs: std::mem::take(&mut others),
            loss_epoch: options.loss_epoch,
            log_options: log_options(options),
            dirs: dirs.clone(),
            memory: (
                options.settings.memory.ring_bytes_max.as_usize(),
                options.settings.memory.shard_bytes_max.as_usize(),
            ),
            star: Arc::clone(&facts),
            mailboxes: Arc::clone(&star.mailboxes),
            listener,
        };
        let to_control = to_control.clone();
        let say = say.clone();
        match spawn(shard, *cpu, move || shard_thread::run(start, Box::new(to_control), say)) {
            Ok(thread) => star.threads.push(thread),
            Err(error) => {
                star.give_up();
                return Err(error);
            }
        }
    }
    drop(say);
    match await_all(&said, shards) {
        Ok(logs) => {
            check_coop(shards);
            let left = |(number, log)| LogLeft { number, log, epoch, end_lsn: Lsn::ZERO, is_settled: false };
            star.logs = logs.into_iter().map(left).collect();
            Ok(star)
        }
        Err(error) => {
            star.give_up();
            Err(error)
        }
    }
}

fn watch(mailboxes: &Arc<[Mailbox]>) -> Result<Watchdog, StartError> {
    let failed = |error: io::Error| {
        let (shard, cpu, message) = (ShardId::ZERO, 0, error.to_string());
        StartError::Executor { shard, cpu, message }
    };
    Watchdog::start(Arc::clone(mailboxes)).map_err(failed)
}

fn facts(options: &Options, recovered: &RecoveredStar, old_logs: OldLogs) -> StarFacts {
    let settings = &options.settings;
    StarFacts {
        shards: recovered.placement.shards(),
        version: options.version,
        cluster_id: options.cluster_id,
        star_id: options.star_id,
        append_window: settings.append_window,
        keepalive: settings.keepalive_ms.duration(),
        drain_timeout: settings.drain_timeout_ms.duration(),
        standard_patience: settings.s3.attempt_timeout_ms.duration(),
        backlog_age_max: settings.settle.backlog_age_max_ms.duration(),
        connections_max: settings.connections_max as usize,
        shares: settings.shares.clone(),
        rooms: options.rooms.clone(),
        started: Instant::now(),
        recovery: (recovered.took, recovered.progress.entries),
        quiet_shards: AtomicU64::new(0),
        finishes: AtomicBool::new(false),
        answered_shards: AtomicU64::new(0),
        old_logs: Arc::new(old_logs),
        left: Mutex::default(),
    }
}

fn log_options(options: &Options) -> LogOptions {
    let log = &options.settings.log;
    LogOptions {
        segment_bytes: u32::try_from(log.segment_bytes.get()).unwrap_or(u32::MAX),
        log_bytes_max: options.log_bytes_max,
        commits_in_flight: usize::from(log.commits_in_flight),
        sync: match log.sync {
            LogSync::Dsync => SyncMode::Dsync,
            LogSync::Fdatasync => SyncMode::Fdatasync,
        },
        inline_commit: log.inline_commit,
        ..LogOptions::default()
    }
}

fn spawn<F: Future<Output = ()> + 'static>(
    shard: ShardId,
    cpu: usize,
    run: impl FnOnce() -> F + Send + 'static,
) -> Result<ExecutorJoinHandle<()>, StartError> {
    LocalExecutorBuilder::new(glommio::Placement::Fixed(cpu))
        .name(&format!("shard-{shard}"))
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(RING_DEPTH)
        .preempt_timer(PREEMPT_TIMER)
        .blocking_thread_pool_placement(PoolPlacement::Unbound(BLOCKING_THREADS))
        .spawn(run)
        .map_err(|error| StartError::Executor { shard, cpu, message: error.to_string() })
}

type Said = (ShardId, Result<LogId, StartError>);

/// The head log of each shard, by its number, once all have started.
fn await_all(said: &mpsc::Receiver<Said>, shards: usize) -> Result<Vec<(u16, LogId)>, StartError> {
    let mut logs = Vec::with_capacity(shards);
    let mut waiting: Vec<ShardId> =
        (0..shards).map(|shard| ShardId::new(u16::try_from(shard).unwrap_or(u16::MAX))).collect();
    while let Some(missing) = waiting.first().copied() {
        let Ok((shard, result)) = said.recv() else { return Err(StartError::Ended { shard: missing }) };
        logs.push((shard.get(), result?));
        waiting.retain(|waits| *waits != shard);
    }
    Ok(logs)
}

fn check_coop(shards: usize) {
    let (rings, wanted) = (express_log::coop_taskrun_rings(), COOP_RINGS * u32::try_from(shards).unwrap_or(u32::MAX));
    if rings < wanted {
        tracing::warn!(rings, wanted, "IORING_SETUP_COOP_TASKRUN did not take hold: shards serve about half the load");
    }
}

impl Star {
    /// The address that is listened on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The head logs that shards write.
    #[must_use]
    pub fn logs(&self) -> &[LogLeft] {
        &self.logs
    }

    /// Says which shard owns a slot.
    pub fn owner(&self) -> impl Fn(Slot) -> ShardId + Send + Sync + use<> {
        let placement = self.placement.clone();
        move |slot| placement.shard(slot)
    }

    /// For each shard, what tells it something; it never waits.
    #[must_use]
    pub fn shard_senders(&self) -> Vec<TellShard> {
        let sender = |shard: usize| -> TellShard {
            let mailboxes = Arc::clone(&self.mailboxes);
            Box::new(move |message| mailboxes[shard].control.push(message).map_err(|_| Full))
        };
        (0..self.mailboxes.len()).map(sender).collect()
    }

    /// Asks every shard to finish and stop; [`Star::join`] waits for it.
    pub fn drain(&self) {
        for mailbox in self.mailboxes.iter() {
            let mut message = ToShard::Drain;
            while let Err(back) = mailbox.control.push(message) {
                message = back;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Waits until every shard has stopped, and says how their head logs are left.
    ///
    /// # Errors
    /// [`ShardEnded`] for the first whose thread ended in another way.
    pub fn join(self) -> Result<Vec<LogLeft>, ShardEnded> {
        let mut ended = Ok(());
        for (shard, thread) in (0..).map(ShardId::new).zip(self.threads) {
            let joined = thread.join().map_err(|error| ShardEnded { shard, message: error.to_string() });
            ended = ended.and_then(|()| joined.map(drop));
        }
        self.watchdog.stop();
        let left = std::mem::take(&mut *self.facts.left.lock().unwrap_or_else(PoisonError::into_inner));
        ended.map(|()| left)
    }

    /// Stops what has started.
    fn give_up(self) {
        self.drain();
        // The error that is being told is the one that counts.
        let _ = self.join();
    }
}

#[cfg(test)]
pub(crate) mod tests;
