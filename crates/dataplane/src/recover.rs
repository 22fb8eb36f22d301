//! What did all head logs of the data directory hold, whatever shard wrote them?

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use express_log::{EntryPos, Recovered, Recovery, RecoveryError, ReplayedEntry, Verdict};
use wire::ids::Epoch;

use crate::core::{Placement, Streams};
use crate::start_error::StartError;

/// Bytes of entries that go from the reader to the applier at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Chunks that wait between them.
const CHUNKS_MAX: usize = 8;
/// What holds the head logs in a data directory.
const LOGS: &str = "log";

/// How far recovery has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Entries applied.
    pub entries: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Streams known.
    pub streams: u64,
}

/// Every head log of a data directory, locked, and the rows of every stream in them.
#[derive(Debug)]
pub struct RecoveredStar {
    pub(crate) epoch: Epoch,
    pub(crate) placement: Placement,
    /// One a shard.
    pub(crate) streams: Vec<Streams>,
    /// Every log by its number; a position in this list is what names a log in this run.
    pub(crate) logs: Vec<HeadLog>,
    progress: Progress,
}

/// A head log that was recovered.
#[derive(Debug)]
pub(crate) struct HeadLog {
    pub(crate) number: u16,
    pub(crate) recovered: Recovered,
}

impl RecoveredStar {
    /// What the star's new tenure will be: one past the highest of all its logs.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What was recovered.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// How each log was left, by its directory.
    pub fn verdicts(&self) -> impl Iterator<Item = (&Path, &Verdict)> {
        self.logs.iter().map(|log| (log.recovered.dir(), log.recovered.verdict()))
    }
}

/// The directory of the head log that shard `number` makes.
fn log_dir(data: &Path, number: u16) -> PathBuf {
    data.join(LOGS).join(number.to_string())
}

/// Bytes of the segments that the head logs under `data` hold.
#[must_use]
pub fn held_bytes(data: &Path) -> u64 {
    let files = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
    files(data.join(LOGS))
        .flat_map(|log| files(log.path()))
        .filter_map(|file| file.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

/// Locks and reads every head log under `data` and those that `shards` shards will write, and folds their entries, epoch
/// after epoch over all of them. Blocks; one thread reads and checks while this one folds.
///
/// # Errors
/// [`StartError`] when a log can't be read, is damaged or doesn't add up.
pub fn recover(data: &Path, shards: u16, mut on_progress: impl FnMut(Progress)) -> Result<RecoveredStar, StartError> {
    let placement = Placement::even(shards);
    let recoveries = open_all(data, shards)?;
    let paths: Vec<PathBuf> = recoveries.iter().map(|(number, _)| log_dir(data, *number)).collect();
    let (send, receive) = sync_channel(CHUNKS_MAX);
    let reader = thread::Builder::new().name("recovery".to_owned()).spawn(move || read_all(recoveries, &send));
    let reader = reader.map_err(|source| StartError::Logs { path: data.to_owned(), source })?;
    let mut applier = Applier { streams: Streams::new(), progress: Progress::default() };
    let folded = applier.apply_all(&receive, &paths, &mut on_progress);
    drop(receive);
    let Ok(read) = reader.join() else {
        let source = io::Error::other("the reader of the head logs panicked");
        return Err(StartError::Logs { path: data.to_owned(), source });
    };
    let logs = read?;
    refuse_damage(&logs)?;
    folded?;
    let last = logs.iter().map(|(_, last, _)| *last).fold(Epoch::ZERO, Epoch::max);
    let logs = logs.into_iter().map(|(number, _, recovered)| HeadLog { number, recovered }).collect();
    let streams = applier.streams.split(&placement);
    Ok(RecoveredStar { epoch: last.next(), placement, streams, logs, progress: applier.progress })
}

fn open_all(data: &Path, shards: u16) -> Result<Vec<(u16, Recovery)>, StartError> {
    let path = data.join(LOGS);
    let failed = |source| StartError::Logs { path: path.clone(), source };
    fs::create_dir_all(&path).map_err(failed)?;
    let mut numbers: BTreeSet<u16> = (0..shards).collect();
    for entry in fs::read_dir(&path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        match name.to_str().and_then(|name| name.parse::<u16>().ok()) {
            Some(number) => drop(numbers.insert(number)),
            None => tracing::warn!(?name, dir = %path.display(), "left alone: not the name of a head log"),
        }
    }
    let open = |number| Ok((number, Recovery::open(&log_dir(data, number))?));
    numbers.into_iter().map(open).collect()
}

/// Entries of one log, one after the other.
struct Chunk {
    /// Position of the log in the list.
    log: u16,
    bytes: Vec<u8>,
    entries: Vec<EntryPos>,
}

type ReadLogs = Result<Vec<(u16, Epoch, Recovered)>, RecoveryError>;

/// Sends every entry, epoch by epoch; on, without sending, once the applier has given up, for the verdict is still wanted.
fn read_all(mut recoveries: Vec<(u16, Recovery)>, chunks: &SyncSender<Chunk>) -> ReadLogs {
    let epochs: BTreeSet<Epoch> = recoveries.iter().flat_map(|(_, recovery)| recovery.epochs()).collect();
    for epoch in epochs {
        for (log, (_, recovery)) in (0..).zip(&mut recoveries) {
            if !recovery.epochs().contains(&epoch) {
                continue;
            }
            let mut sender = ChunkSender { log, chunks, chunk: None };
            recovery.replay_epoch(epoch, &mut |entry| sender.add(&entry))?;
            sender.flush();
        }
    }
    let finish = |(number, recovery): (u16, Recovery)| {
        let last = recovery.last_epoch();
        recovery.finish().map(|recovered| (number, last, recovered))
    };
    recoveries.into_iter().map(finish).collect()
}

struct ChunkSender<'a> {
    log: u16,
    chunks: &'a SyncSender<Chunk>,
    chunk: Option<Chunk>,
}

impl ChunkSender<'_> {
    fn add(&mut self, entry: &ReplayedEntry<'_>) {
        let chunk = self.chunk.get_or_insert_with(|| Chunk {
            log: self.log,
            bytes: Vec::with_capacity(CHUNK_BYTES + (CHUNK_BYTES >> 3)),
            entries: Vec::with_capacity(1024),
        });
        chunk.bytes.extend_from_slice(entry.bytes);
        chunk.entries.push(entry.pos);
        if chunk.bytes.len() >= CHUNK_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            // An applier that is gone has an error to tell; reading on finds out whether the log is damaged.
            let _ = self.chunks.send(chunk);
        }
    }
}

struct Applier {
    streams: Streams,
    progress: Progress,
}

impl Applier {
    fn apply_all(
        &mut self,
        chunks: &Receiver<Chunk>,
        paths: &[PathBuf],
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), StartError> {
        while let Ok(chunk) = chunks.recv() {
            self.apply(&chunk).map_err(|message| {
                let path = paths.get(usize::from(chunk.log)).cloned().unwrap_or_default();
                StartError::Fold { path, message }
            })?;
            on_progress(self.progress);
        }
        Ok(())
    }

    fn apply(&mut self, chunk: &Chunk) -> Result<(), String> {
        let mut rest = chunk.bytes.as_slice();
        for pos in &chunk.entries {
            let (entry, after) = rest.split_at(pos.bytes as usize);
            self.streams.replay(chunk.log, *pos, entry).map_err(|error| error.to_string())?;
            rest = after;
        }
        self.progress.entries += chunk.entries.len() as u64;
        self.progress.bytes += chunk.bytes.len() as u64;
        self.progress.streams = self.streams.len() as u64;
        Ok(())
    }
}

fn refuse_damage(logs: &[(u16, Epoch, Recovered)]) -> Result<(), StartError> {
    for (_, _, recovered) in logs {
        if let Verdict::Corrupt(damages) = recovered.verdict() {
            return Err(StartError::Corrupt { path: recovered.dir().to_owned(), damages: damages.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
