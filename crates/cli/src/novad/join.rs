//! How do the parts of one star come together, and how do they part?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Client;
use control::channel::{JoinRequest, LogFacts};
use control::store::{Metered, Store, StoreError};
use control::{Background, Control, LoadError, LossyStream, Opened, Options, Shards, StartError, Threads};
use dataplane::{Doors, HeadLogs, RecoveredStar};
use tuning::settings::Settings;
use tuning::start::{DataDirectory, Prepared};
use wire::handoff::SettledLogs;
use wire::ids::{LogId, Lsn, StarId, StreamId};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use super::args::Says;
use super::waiting::{For, Waiting, Watched};
use super::{Failure, background, cluster_id, greeting, star_id};
use crate::surfaces::{Bounds, Surfaces};

/// First and longest wait between attempts while the store is away.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How much longer than clients have a stop may take.
const LATE: Duration = Duration::from_millis(1_500);

/// Checks the host, and takes the data directory.
pub(super) fn prepare(settings: &Settings) -> Result<Prepared, Failure> {
    let has_logs = |data: &DataDirectory| dataplane::has_logs(data.path());
    tuning::start::prepare(settings, has_logs).map_err(|error| Failure::new(error.reason(), error))
}

/// How long a check waits for the store.
const CHECK_WITHIN: Duration = Duration::from_secs(5);

/// Looks whether the store is there and is that of these data, and changes nothing in it.
pub(super) fn check(settings: &Settings, prepared: &Prepared) -> Result<(), Failure> {
    let data = prepared.data.path();
    let refused = |error: &dyn ToString| Failure::new(Reason::FailedPrecondition, error.to_string());
    let store = super::store::open(settings, data)?;
    let threads = Threads::start(&[]).map_err(|error| refused(&error))?;
    if let Some(trouble) = threads.find_away(&*store, CHECK_WITHIN) {
        let message = format!("the store {} is away: {}", super::store::place(settings), trouble.why);
        return Err(Failure::new(Reason::Unavailable, message));
    }
    let known = cluster_id::of(data).map_err(|error| refused(&error))?;
    threads.look(&*store, known).map(drop).map_err(|error| Failure::new(reason(&error), error))
}

/// A star that serves.
#[derive(Debug)]
pub(super) struct Star {
    surfaces: Surfaces,
    shards: dataplane::Star,
    control: Control,
    /// Locked while this lives.
    _data: DataDirectory,
}

impl Star {
    /// Takes the store, recovers the head logs onto what it holds, and starts shards and control over queues between them; `serves`
    /// is called when that is done. As long as the store is away it is tried again, and callers are told so.
    /// When `says` accepts loss it goes on without head logs that are lost or can't be read.
    pub(super) fn start(
        settings: &Settings,
        prepared: Prepared,
        says: Says,
        bounds: Bounds,
        serves: impl FnOnce(),
    ) -> Result<Self, Failure> {
        let data = prepared.data.path();
        let refused = |error: &dyn ToString| Failure::new(Reason::FailedPrecondition, error.to_string());
        let star = star_id::of(data).map_err(|error| refused(&error))?;
        let shards = prepared.plan.shard_cpus().len();
        let doors = Doors::open(settings.listen, shards).map_err(|error| Failure::new(error.reason(), error))?;
        let doors = Arc::new(doors);
        let surfaces = serve_surfaces(bounds, settings, &doors, prepared.plan.control_cpus())?;
        let served = surfaces.served();
        let (store, meter) = Metered::new(super::store::open(settings, data)?);
        let threads = Threads::start(prepared.plan.control_cpus()).map_err(|error| refused(&error))?;
        let cluster = cluster_id::of(data).map_err(|error| refused(&error))?;
        let on_up = {
            let (settings, address) = (settings.clone(), doors.addr());
            Box::new(move || greeting::greet(address, served, &settings))
        };
        let waiting = Waiting::begin(Watched {
            doors: Arc::clone(&doors),
            ids: (cluster, star),
            threads: threads.clone(),
            store: Arc::clone(&store),
            place: super::store::place(settings),
            on_up,
        });
        let waiting = waiting.map_err(|error| Failure::new(Reason::Internal, error))?;
        let options = background::options(settings, &prepared, says, meter);
        let taking = Taking { prepared: &prepared, says, star, threads, store, options, waiting: &waiting };
        let (background, recovered) = taking.take()?;
        let (to_control, inbox) = control::inbox();
        let options = dataplane::Options {
            shard_cpus: prepared.plan.shard_cpus().to_vec(),
            settings: settings.clone(),
            log_bytes_max: prepared.log_bytes_max.get(),
            rooms: prepared.rooms.clone(),
            version: env!("CARGO_PKG_VERSION"),
            cluster_id: background.cluster(),
            star_id: star,
            loss_epoch: background.loss_epoch(),
        };
        let shards = dataplane::start(&options, &doors, recovered, move |message| to_control.send(message))
            .map_err(|error| Failure::new(error.reason(), error))?;
        match serve(background, &shards, inbox, waiting) {
            Ok((control, was_up)) => {
                serves();
                if !was_up {
                    greeting::greet(shards.addr(), served, settings);
                }
                Ok(Self { surfaces, shards, control, _data: prepared.data })
            }
            Err(failure) => {
                shards.drain();
                // The error that is being told is the one that counts.
                let _ = shards.join();
                Err(failure)
            }
        }
    }

    /// Finishes what is in flight, has it settled, seals the logs and stops; control answers the shards until they have. It takes
    /// so long and a moment, whatever the store does: the next start goes on with what is left.
    pub(super) fn drain(self, within: Duration) -> Result<(), Failure> {
        let began = Instant::now();
        self.surfaces.stop(LATE / 2);
        self.shards.drain();
        let joined = self.shards.join();
        let left = (within + LATE).saturating_sub(began.elapsed()).max(LATE / 2);
        match joined {
            Ok(logs) => {
                self.control.stop(logs.iter().map(facts_of).collect(), left);
                Ok(())
            }
            Err(error) => {
                self.control.stop(Vec::new(), left);
                Err(Failure::new(Reason::Internal, error))
            }
        }
    }
}

/// Serves HTTP and S2's clients over the wire of the star, as far as the settings want it.
fn serve_surfaces(bounds: Bounds, settings: &Settings, doors: &Doors, cpus: &[usize]) -> Result<Surfaces, Failure> {
    let name = concat!("novad/", env!("CARGO_PKG_VERSION"));
    let star = client::Options::new([greeting::reached_at(doors.addr()).to_string()]).name(name);
    let star = Client::new(star).map_err(|error| Failure::new(error.reason(), error))?;
    let connections_max = usize::try_from(settings.http_connections_max).unwrap_or(usize::MAX);
    let options = gateway::Options { connections_max, threads: cpus.len(), cpus: cpus.to_vec() };
    bounds.serve(&options, &star).map_err(|error| Failure::new(error.reason(), error))
}

/// Notes the logs of shards in the store, gives them the doors, and starts to answer them.
fn serve(
    background: Background,
    shards: &dataplane::Star,
    inbox: control::Inbox,
    waiting: Waiting,
) -> Result<(Control, bool), Failure> {
    let logs: Vec<LogFacts> = shards.logs().iter().map(facts_of).collect();
    let mut pause = Pause::default();
    waiting.waits_for(For::Store);
    while let Err(error) = background.note_logs(&logs) {
        if !error.is_away() {
            return Err(Failure::new(reason(&error), error));
        }
        waiting.has_failed(error.to_string());
        pause.wait();
    }
    let was_up = waiting.end().map_err(|error| Failure::new(Reason::Internal, error))?;
    let joints = Shards { inbox, sinks: shards.shard_senders(), owner: Box::new(shards.owner()) };
    let control = background.start(joints, Box::new(|how| end_fenced(&how)));
    control.map(|control| (control, was_up)).map_err(|error| Failure::new(reason(&error), error))
}

/// Waits between attempts, longer and longer.
#[derive(Debug)]
struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(PAUSE_MIN)
    }
}

impl Pause {
    fn wait(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(PAUSE_MAX);
    }
}

/// Another start has taken over: nothing may be answered any more, and what is in the head logs is the other's to settle.
fn end_fenced(how: &str) {
    tracing::error!("{how}");
    std::process::exit(i32::from(Reason::FailedPrecondition.exit_code()));
}

fn facts_of(left: &dataplane::LogLeft) -> LogFacts {
    let dataplane::LogLeft { number, log, epoch, end_lsn, is_settled } = *left;
    LogFacts { log, number, last_epoch: epoch, end_lsn, clean: is_settled }
}

/// What a star is started with.
struct Taking<'a> {
    prepared: &'a Prepared,
    says: Says,
    star: StarId,
    threads: Threads,
    store: Arc<dyn Store>,
    options: Options,
    waiting: &'a Waiting,
}

/// Why an attempt to take the store and the head logs has failed.
enum Hindrance {
    /// It will fail again.
    Failure(Failure),
    /// The store is away.
    Away(String),
    /// The head log in this directory can't be served from.
    Log(PathBuf, Failure),
}

impl From<Failure> for Hindrance {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<StartError> for Hindrance {
    fn from(error: StartError) -> Self {
        if error.is_away() { Self::Away(error.to_string()) } else { Self::Failure(Failure::new(reason(&error), error)) }
    }
}

impl From<dataplane::StartError> for Hindrance {
    fn from(error: dataplane::StartError) -> Self {
        let failure = Failure::new(error.reason(), &error);
        match error.lost_log() {
            Some(dir) => Self::Log(dir.to_owned(), failure),
            None if failure.reason == Reason::Unavailable => Self::Away(failure.message),
            None => Self::Failure(failure),
        }
    }
}

impl Taking<'_> {
    /// Takes the store and recovers the head logs, as soon as the store lets it; logs that can't be served from are set aside first
    /// when that is accepted.
    fn take(&self) -> Result<(Background, RecoveredStar), Failure> {
        let mut pause = Pause::default();
        let mut has_lost = false;
        loop {
            match self.try_to() {
                Ok((background, recovered)) => {
                    self.tell_accepted(&background, has_lost);
                    return Ok((background, recovered));
                }
                Err(Hindrance::Log(dir, failure)) if self.says.accepts_loss => {
                    tracing::warn!(error = failure.message, "a loss is accepted");
                    set_aside(&dir)?;
                    has_lost = true;
                }
                Err(Hindrance::Failure(failure) | Hindrance::Log(_, failure)) => return Err(failure),
                Err(Hindrance::Away(why)) => {
                    self.waiting.has_failed(why);
                    pause.wait();
                }
            }
        }
    }

    /// Says what was accepted, if anything was.
    fn tell_accepted(&self, background: &Background, has_set_aside: bool) {
        if !background.lost().is_empty() {
            tell_losses(background);
        } else if self.says.accepts_loss && !has_set_aside {
            tracing::warn!("--accept-loss was given and there is nothing to accept: start without it");
        }
    }

    fn try_to(&self) -> Result<(Background, RecoveredStar), Hindrance> {
        self.waiting.waits_for(For::Store);
        let (background, logs) = self.join(self.logs()?)?;
        self.waiting.waits_for(For::Logs);
        let began = Instant::now();
        let mut settled = Settled { upto: background.settled().clone(), background: &background };
        let recovered = logs.recover(background.incarnation(), &mut settled, tell_progress())?;
        for (reach, dir) in recovered.reaches() {
            let dataplane::LogReach { number, log, last_epoch, end_lsn } = reach;
            if let Some(fault) = background.judge(&[LogFacts { log, number, last_epoch, end_lsn, clean: false }]).pop()
            {
                let remedy = "bring back what is missing, or start with --accept-loss to go on without it";
                let failure = Failure::new(Reason::FailedPrecondition, format!("{fault}; {remedy}"));
                return Err(Hindrance::Log(dir.to_owned(), failure));
            }
        }
        tell_recovered(&recovered, began);
        Ok((background, recovered))
    }

    fn logs(&self) -> Result<HeadLogs, Failure> {
        let shards = self.prepared.plan.shard_cpus().len();
        let shards = u16::try_from(shards).map_err(|_| Failure::new(Reason::Invalid, "too many shards"))?;
        HeadLogs::open(self.prepared.data.path(), shards).map_err(|error| Failure::new(error.reason(), error))
    }

    /// Joins with the head logs that are here; those that the store has forgotten are set aside.
    fn join(&self, logs: HeadLogs) -> Result<(Background, HeadLogs), Hindrance> {
        let facts = logs.facts();
        let known = facts.iter().filter_map(|facts| {
            let (log, number, last_epoch) = (facts.log?, facts.number, facts.last_epoch);
            // How far it reaches is judged once it is read.
            Some(LogFacts { log, number, last_epoch, end_lsn: Lsn::ZERO, clean: false })
        });
        let last_epoch = facts.iter().map(|facts| facts.last_epoch).max().unwrap_or_default();
        let request = JoinRequest {
            star: self.star,
            logs: known.collect(),
            at_least: last_epoch.next(),
            accept_loss: self.says.accepts_loss,
        };
        let data = self.prepared.data.path();
        let unknown = |error| Failure::new(Reason::FailedPrecondition, error);
        let cluster = cluster_id::of(data).map_err(unknown)?;
        let opened = Opened::open(&self.threads, Arc::clone(&self.store), cluster, self.options.clone())?;
        let background = opened.join(request)?;
        cluster_id::keep(data, background.cluster()).map_err(unknown)?;
        let dirs: BTreeMap<LogId, PathBuf> = logs.dirs().into_iter().collect();
        let lost: Vec<&PathBuf> = background.lost().iter().filter_map(|log| dirs.get(log)).collect();
        if lost.is_empty() {
            return Ok((background, logs));
        }
        drop(logs);
        lost.into_iter().try_for_each(|dir| set_aside(dir))?;
        Ok((background, self.logs()?))
    }
}

/// Moves the directory of a head log out of the way; nothing in it is changed.
fn set_aside(dir: &Path) -> Result<(), Failure> {
    let taken = (0_u32..).map(|no| dir.with_extension(format!("lost-{no}"))).find(|path| !path.exists());
    let aside = taken.unwrap_or_else(|| dir.with_extension("lost"));
    std::fs::rename(dir, &aside).map_err(|error| {
        let (from, to) = (dir.display(), aside.display());
        Failure::new(Reason::FailedPrecondition, format!("the head log {from} can't be moved to {to}: {error}"))
    })?;
    tracing::warn!(log = %dir.display(), aside = %aside.display(), "a head log is given up: its files are kept there");
    Ok(())
}

/// What recovery asks of the background.
struct Settled<'a> {
    upto: SettledLogs,
    background: &'a Background,
}

impl dataplane::Settled for Settled<'_> {
    fn upto(&self, log: LogId) -> Lsn {
        self.upto.get(&log).copied().unwrap_or_default()
    }

    fn rows(&mut self, streams: &[(Slot, StreamId)]) -> Result<Vec<StreamRow>, Refusal> {
        self.background.rows(streams)
    }
}

/// Which streams go on behind a gap, as far as the store knows them.
fn tell_losses(background: &Background) {
    let losses = match background.losses() {
        Ok(losses) => losses,
        Err(error) => {
            return tracing::warn!(%error, "which streams lost records can't be told: each goes on behind a gap");
        }
    };
    for LossyStream { address, stream_id, from } in &losses.named {
        tracing::warn!(stream = %address, %stream_id, %from, "what a stream had from this sequence number on may be lost");
    }
    let (streams, named, has_more) = (losses.streams, losses.named.len(), losses.has_more);
    tracing::warn!(
        streams,
        named,
        has_more,
        "Express streams of which the store has a part go on 2^32 sequence numbers later or a multiple of it, and readers are told of the gap; those \
         that only a lost log knew are gone, and one that is made again at such a name is a new stream"
    );
}

fn tell_progress() -> impl FnMut(dataplane::Progress) {
    let mut told = Instant::now();
    move |progress: dataplane::Progress| {
        if told.elapsed().as_secs() >= 1 {
            told = Instant::now();
            let dataplane::Progress { entries, bytes, streams } = progress;
            tracing::info!(entries, bytes, streams, "recovering");
        }
    }
}

fn tell_recovered(recovered: &RecoveredStar, began: Instant) {
    let dataplane::Progress { entries, bytes, streams } = recovered.progress();
    for (log, verdict) in recovered.verdicts() {
        tracing::debug!(log = %log.display(), ?verdict, "head log");
    }
    tracing::info!(
        entries,
        bytes,
        streams,
        epoch = recovered.epoch().get(),
        took_ms = began.elapsed().as_millis(),
        "recovered what the store does not hold yet"
    );
}

/// What a start of the background that failed is called to users and programs.
fn reason(error: &control::StartError) -> Reason {
    match error {
        control::StartError::Load(LoadError::Store(source)) => StoreError::reason(source),
        control::StartError::Index(source) => source.reason(),
        _ => Reason::FailedPrecondition,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_log_that_is_given_up_is_kept_beside_and_never_over_another() {
        let data = tempfile::tempdir().unwrap();
        let log = data.path().join("0");
        for content in ["first", "second"] {
            fs::create_dir(&log).unwrap();
            fs::write(log.join("seg-0"), content).unwrap();
            set_aside(&log).unwrap();
            assert!(!log.exists());
        }
        for (aside, content) in [("0.lost-0", "first"), ("0.lost-1", "second")] {
            assert_eq!(fs::read_to_string(data.path().join(aside).join("seg-0")).unwrap(), content);
        }
        let error = set_aside(&log).unwrap_err();
        assert!(error.message.contains(&log.display().to_string()), "{error:?}");
    }
}
