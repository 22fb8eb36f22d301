//! What is one shard made of, from its thread's first step to its last?

use std::cell::{Cell, OnceCell, RefCell};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use express_log::{HistoryReader, Log, LogOptions, Recovered};
use tuning::bounds::HISTORY_FILES_OPEN_MAX;
use wire::ids::{Epoch, LogId, Lsn, ShardId};

use crate::bell::Waiters;
use crate::core::{Feed, Placement, Shard, ShardConfig, Shares, Streams, Work};
use crate::feeding::{Fed, Feeds};
use crate::hop::Mailbox;
use crate::os;
use crate::recover::HeadLog;
use crate::shell::{Bells, RECEIVE_BYTES, Shell, State};
use crate::star::StarFacts;
use crate::start_error::StartError;
use crate::surroundings::{Surroundings, TellControl};

/// What a stream in memory takes, about: a shard keeps as many as its memory bound has room for, and drops what is idle.
const ROW_BYTES: usize = 512;

/// Everything that the thread of a shard is given.
pub(crate) struct ShardStart {
    pub(crate) shard: ShardId,
    pub(crate) epoch: Epoch,
    pub(crate) placement: Placement,
    pub(crate) streams: Streams,
    pub(crate) recovered: Recovered,
    /// The last entry of its head log that is settled.
    pub(crate) settled: Lsn,
    /// Where the entries of each earlier tenure end in it that are not settled.
    pub(crate) tenures: Vec<(Epoch, Lsn)>,
    /// Logs that no shard writes any more, to be settled by this one, with their positions.
    pub(crate) other_logs: Vec<(u16, HeadLog)>,
    /// See [`Options`](crate::Options).
    pub(crate) loss_epoch: Epoch,
    pub(crate) log_options: LogOptions,
    /// The directories of all head logs, in the order in which this run counts them.
    pub(crate) dirs: Vec<PathBuf>,
    /// Bytes of the ring, and of all.
    pub(crate) memory: (usize, usize),
    pub(crate) star: Arc<StarFacts>,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) listener: TcpListener,
}

/// The life of a shard; says once whether it has started.
pub(crate) async fn run(
    start: ShardStart,
    tell_control: TellControl,
    say: Sender<(ShardId, Result<LogId, StartError>)>,
) {
    let shard = start.shard;
    let began = begin(start, tell_control).await;
    let (shell, listener) = match began {
        Ok(began) => began,
        // Whoever started this shard hears of it, or is gone.
        Err(error) => return drop(say.send((shard, Err(error)))),
    };
    let _ = say.send((shard, Ok(shell.log.id())));
    drop(say);
    shell.until_drained(listener).await;
}

async fn begin(start: ShardStart, tell_control: TellControl) -> Result<(Rc<Shell>, OwnedFd), StartError> {
    let ShardStart { shard, epoch, star, .. } = start;
    let own_dir = start.recovered.dir().to_owned();
    let called: Rc<OnceCell<Rc<Shell>>> = Rc::default();
    let calls = Rc::clone(&called);
    let on_durable = move |lsn| {
        // Before there is a shell nothing was appended that anyone waits for.
        if let Some(shell) = calls.get() {
            shell.on_durable(lsn);
        }
    };
    let next = start.recovered.end_lsn();
    let log = Log::open(start.log_options, start.recovered, epoch, on_durable, express_log::abort).await;
    let log = log.map_err(|source| StartError::Open { shard, source })?;
    log.keep_within(Arc::clone(&star.rooms.data));
    let failed = |source| StartError::Listen { addr: std::net::SocketAddr::from(([0, 0, 0, 0], 0)), source };
    let second = OwnedFd::from(start.listener.try_clone().map_err(failed)?);
    let config = ShardConfig {
        shard,
        placement: start.placement,
        epoch,
        own_log: shard.get(),
        append_window: star.append_window,
        ring_bytes_max: start.memory.0,
        held_bytes_max: start.memory.1 - start.memory.0.min(start.memory.1),
        own_log_id: log.id(),
        loss_epoch: start.loss_epoch,
        standard_patience: star.standard_patience,
        rows_max: start.memory.1 / ROW_BYTES,
    };
    let own = Fed::own(Feed::new(log.id(), start.settled, next, start.tenures), shard.get(), own_dir);
    let others = start.other_logs.into_iter().filter_map(|(index, log)| Fed::other(log, index));
    let feeds = Feeds::new(std::iter::once(own).chain(others).collect(), &star.old_logs);
    let shares = Shares::new(&star.shares);
    let mut world = Surroundings::new(
        (shard, usize::from(star.shards)),
        (log.clone(), feeds),
        (star.started, shares),
        tell_control,
    );
    world.store_room.clone_from(&star.rooms.store);
    let state = State::new(Shard::new(config, start.streams), world);
    let shell = Rc::new(Shell {
        me: shard,
        epoch,
        state: RefCell::new(state),
        scratch: RefCell::new(vec![0; RECEIVE_BYTES].into_boxed_slice()),
        log,
        star,
        mailboxes: start.mailboxes,
        bells: Bells::default(),
        looked_up: Waiters::default(),
        timer_at: Cell::new(None),
        is_draining: Cell::new(false),
        is_closed: Cell::new(false),
        is_over: Cell::new(false),
    });
    // It was empty until now.
    let _ = called.set(Rc::clone(&shell));
    let reader = HistoryReader::new(start.dirs, HISTORY_FILES_OPEN_MAX);
    spawn_tasks(&shell, reader, OwnedFd::from(start.listener));
    Ok((shell, second))
}

fn spawn_tasks(shell: &Rc<Shell>, reader: HistoryReader, listener: OwnedFd) {
    let shell = || Rc::clone(shell);
    glommio::spawn_local(shell().pump()).detach();
    glommio::spawn_local(shell().feed_control()).detach();
    glommio::spawn_local(shell().take_mail()).detach();
    glommio::spawn_local(shell().serve_held()).detach();
    glommio::spawn_local(shell().serve_put_off(Work::Read)).detach();
    glommio::spawn_local(shell().serve_put_off(Work::CatchUp)).detach();
    glommio::spawn_local(shell().do_chores()).detach();
    glommio::spawn_local(shell().send_overflow()).detach();
    glommio::spawn_local(shell().keep_time()).detach();
    glommio::spawn_local(shell().beat()).detach();
    glommio::spawn_local(shell().be_poked()).detach();
    glommio::spawn_local(shell().look_after_connections()).detach();
    glommio::spawn_local(shell().read_history(reader)).detach();
    glommio::spawn_local(shell().accept(os::adopt_listener(listener))).detach();
}
