//! How do the parts of one star come together, and how do they part?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use control::channel::{JoinRequest, LogFacts};
use control::store::{Metered, Store, StoreError, StoreMeter};
use control::{Background, Control, LoadError, Opened, Shards};
use dataplane::{HeadLogs, RecoveredStar};
use tuning::settings::Settings;
use tuning::start::{DataDirectory, Prepared};
use wire::handoff::SettledLogs;
use wire::ids::{LogId, Lsn, StarId, StreamId};
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::slot::Slot;
use wire::stream_row::StreamRow;

use super::args::Says;
use super::{Failure, background, cluster_id, star_id};

/// Checks the host, and takes the data directory.
pub(super) fn prepare(settings: &Settings) -> Result<Prepared, Failure> {
    let held = |data: &DataDirectory| dataplane::held_bytes(data.path());
    tuning::start::prepare(settings, held).map_err(|error| Failure::new(error.reason(), error))
}

/// A star that serves.
#[derive(Debug)]
pub(super) struct Star {
    shards: dataplane::Star,
    control: Control,
    /// Locked while this lives.
    _data: DataDirectory,
}

impl Star {
    /// Takes the store, recovers the head logs onto what it holds, and starts shards and control over queues between them.
    /// When `says` accepts loss it goes on without head logs that are lost or can't be read.
    pub(super) fn start(settings: &Settings, prepared: Prepared, says: Says) -> Result<Self, Failure> {
        let data = prepared.data.path();
        let star = star_id::of(data).map_err(|error| Failure::new(Reason::FailedPrecondition, error))?;
        let (store, meter) = Metered::new(super::store::open(settings, data)?);
        let (background, recovered) = Taking { settings, prepared: &prepared, says, star, store, meter }.take()?;
        let (to_control, inbox) = control::inbox();
        let options = dataplane::Options {
            listen: settings.listen,
            shard_cpus: prepared.plan.shard_cpus().to_vec(),
            settings: settings.clone(),
            log_bytes_max: prepared.log_bytes_max.get(),
            version: env!("CARGO_PKG_VERSION"),
            cluster_id: background.cluster(),
            star_id: star,
            loss_epoch: background.loss_epoch(),
        };
        let shards = dataplane::start(&options, recovered, move |message| to_control.send(message))
            .map_err(|error| Failure::new(error.reason(), error))?;
        let owner = Box::new(shards.owner());
        let joints = Shards { inbox, sinks: shards.shard_senders(), owner };
        let logs: Vec<LogFacts> = shards.logs().iter().map(facts_of).collect();
        match background.start(joints, &logs, Box::new(|how| end_fenced(&how))) {
            Ok(control) => Ok(Self { shards, control, _data: prepared.data }),
            Err(error) => {
                shards.drain();
                // The error that is being told is the one that counts.
                let _ = shards.join();
                Err(Failure::new(reason(&error), error))
            }
        }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> std::net::SocketAddr {
        self.shards.addr()
    }

    /// Finishes what is in flight, has it settled, seals the logs and stops; control answers the shards until they have.
    pub(super) fn drain(self) -> Result<(), Failure> {
        self.shards.drain();
        match self.shards.join() {
            Ok(logs) => {
                self.control.stop(logs.iter().map(facts_of).collect());
                Ok(())
            }
            Err(error) => {
                self.control.stop(Vec::new());
                Err(Failure::new(Reason::Internal, error))
            }
        }
    }
}

/// Another start has taken over: nothing may be answered any more, and what is in the head logs is the other's to settle.
fn end_fenced(how: &str) {
    tracing::error!("{how}");
    std::process::exit(i32::from(Reason::FailedPrecondition.exit_code()));
}

fn facts_of(left: &dataplane::LogLeft) -> LogFacts {
    let dataplane::LogLeft { number, log, epoch, is_settled, .. } = *left;
    // How far it reaches is told by what is settled of it: its end is not known before it is read.
    LogFacts { log, number, last_epoch: epoch, end_lsn: Lsn::ZERO, clean: is_settled }
}

/// What a star is started with.
struct Taking<'a> {
    settings: &'a Settings,
    prepared: &'a Prepared,
    says: Says,
    star: StarId,
    store: Arc<dyn Store>,
    meter: Arc<StoreMeter>,
}

impl Taking<'_> {
    /// Takes the store and recovers the head logs; those that can't be read are set aside first when that is accepted.
    fn take(&self) -> Result<(Background, RecoveredStar), Failure> {
        let mut logs = self.logs()?;
        loop {
            let (background, kept) = self.join(logs)?;
            let began = Instant::now();
            let mut settled = Settled { upto: background.settled().clone(), background: &background };
            match kept.recover(background.incarnation(), &mut settled, tell_progress()) {
                Ok(recovered) => {
                    tell_recovered(&recovered, began);
                    return Ok((background, recovered));
                }
                Err(error) => match error.lost_log().map(Path::to_owned).filter(|_| self.says.accepts_loss) {
                    Some(lost) => {
                        tracing::warn!(%error, "a head log is set aside");
                        drop(background);
                        set_aside(&lost)?;
                        logs = self.logs()?;
                    }
                    None => return Err(Failure::new(error.reason(), error)),
                },
            }
        }
    }

    fn logs(&self) -> Result<HeadLogs, Failure> {
        let shards = self.prepared.plan.shard_cpus().len();
        let shards = u16::try_from(shards).map_err(|_| Failure::new(Reason::Invalid, "too many shards"))?;
        HeadLogs::open(self.prepared.data.path(), shards).map_err(|error| Failure::new(error.reason(), error))
    }

    /// Joins with the head logs that are here; those that the store has forgotten are set aside.
    fn join(&self, logs: HeadLogs) -> Result<(Background, HeadLogs), Failure> {
        let options = background::options(self.settings, self.prepared, self.says, Arc::clone(&self.meter));
        let facts = logs.facts();
        let known = facts.iter().filter_map(|facts| {
            let (log, number, last_epoch) = (facts.log?, facts.number, facts.last_epoch);
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
        let opened = Opened::open(Arc::clone(&self.store), cluster, options);
        let background = opened.and_then(|opened| opened.join(request));
        let background = background.map_err(|error| Failure::new(reason(&error), error))?;
        cluster_id::keep(data, background.cluster()).map_err(unknown)?;
        let dirs: BTreeMap<LogId, PathBuf> = logs.dirs().into_iter().collect();
        let lost: Vec<&PathBuf> = background.lost().iter().filter_map(|log| dirs.get(log)).collect();
        if lost.is_empty() {
            return Ok((background, logs));
        }
        drop(logs);
        lost.into_iter().try_for_each(|dir| set_aside(dir))?;
        self.logs().map(|logs| (background, logs))
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
