//! What did all head logs of the data directory hold, whatever shard wrote them?

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use express_log::{EntryPos, Recovered, Recovery, RecoveryError, ReplayedEntry, Verdict};
use wire::entry::{Entry, Verb};
use wire::ids::{Epoch, LogId, Lsn, StreamId};
use wire::refusal::Refusal;
use wire::slot::Slot;
use wire::stream_row::StreamRow;

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

/// What the standard store holds of the head logs already. What it holds is not read again: streams go on from its rows.
pub trait Settled {
    /// The last entry of a log that the store and its index hold; zero for none.
    fn upto(&self, log: LogId) -> Lsn;

    /// The rows of those of the streams that the index has.
    ///
    /// # Errors
    /// A refusal when the index can't be read: the star doesn't start then.
    fn rows(&mut self, streams: &[(Slot, StreamId)]) -> Result<Vec<StreamRow>, Refusal>;
}

/// A store that holds nothing of any head log.
#[derive(Debug, Clone, Copy, Default)]
pub struct NothingSettled;

impl Settled for NothingSettled {
    fn upto(&self, _log: LogId) -> Lsn {
        Lsn::ZERO
    }

    fn rows(&mut self, _streams: &[(Slot, StreamId)]) -> Result<Vec<StreamRow>, Refusal> {
        Ok(Vec::new())
    }
}

/// What is known of a head log before its entries are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogFacts {
    /// Its number, which is that of the shard that wrote it.
    pub number: u16,
    /// Its id; none when it has never been written.
    pub log: Option<LogId>,
    /// The highest epoch in it.
    pub last_epoch: Epoch,
}

/// How far a head log reaches, now that it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogReach {
    /// Its number.
    pub number: u16,
    /// Its id.
    pub log: LogId,
    /// The highest epoch in it.
    pub last_epoch: Epoch,
    /// One past its last entry.
    pub end_lsn: Lsn,
}

/// Every head log of a data directory, locked and not read yet.
#[derive(Debug)]
pub struct HeadLogs {
    data: PathBuf,
    shards: u16,
    recoveries: Vec<(u16, Recovery)>,
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
    pub(crate) progress: Progress,
    /// How long it took to read and fold the head logs.
    pub(crate) took: Duration,
}

/// A head log that was recovered.
#[derive(Debug)]
pub(crate) struct HeadLog {
    pub(crate) number: u16,
    pub(crate) recovered: Recovered,
    /// The last of its entries that is settled.
    pub(crate) settled: Lsn,
    /// Where the entries of each tenure end that are not, oldest first.
    pub(crate) tenures: Vec<(Epoch, Lsn)>,
}

impl RecoveredStar {
    /// The star's new tenure.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What was recovered.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// How far each log reaches that was ever written, and its directory.
    #[must_use]
    pub fn reaches(&self) -> Vec<(LogReach, &Path)> {
        let mut reaches = Vec::new();
        for HeadLog { number, recovered, .. } in &self.logs {
            let (number, last_epoch, end_lsn) = (*number, recovered.last_epoch(), recovered.end_lsn());
            let reach = |log| (LogReach { number, log, last_epoch, end_lsn }, recovered.dir());
            reaches.extend(recovered.log_id().map(reach));
        }
        reaches
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

/// Whether a head log under `data` was ever written; one that was set aside is none.
#[must_use]
pub fn has_logs(data: &Path) -> bool {
    let files = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
    let is_log = |log: &fs::DirEntry| log.file_name().to_str().is_some_and(|name| name.parse::<u16>().is_ok());
    files(data.join(LOGS)).filter(is_log).any(|log| files(log.path()).next().is_some())
}

impl HeadLogs {
    /// Locks every head log under `data` and those that `shards` shards will write.
    ///
    /// # Errors
    /// [`StartError`] when a log can't be locked or says nothing of itself.
    pub fn open(data: &Path, shards: u16) -> Result<Self, StartError> {
        Ok(Self { data: data.to_owned(), shards, recoveries: open_all(data, shards)? })
    }

    /// What is known of each.
    #[must_use]
    pub fn facts(&self) -> Vec<LogFacts> {
        let facts = |(number, recovery): &(u16, Recovery)| LogFacts {
            number: *number,
            log: recovery.log_id(),
            last_epoch: recovery.last_epoch(),
        };
        self.recoveries.iter().map(facts).collect()
    }

    /// The directory of each that was ever written.
    #[must_use]
    pub fn dirs(&self) -> Vec<(LogId, PathBuf)> {
        let dir = |(number, log): &(u16, Recovery)| Some((log.log_id()?, log_dir(&self.data, *number)));
        self.recoveries.iter().filter_map(dir).collect()
    }

    /// Reads all of them for a star whose new tenure is `epoch`, and folds what is not settled onto the rows of the store,
    /// epoch after epoch over all logs. Blocks; one thread reads and checks while this one folds.
    ///
    /// # Errors
    /// [`StartError`] when a log can't be read, is damaged, doesn't add up, or ends before what the store holds of it.
    pub fn recover(
        self,
        epoch: Epoch,
        settled: &mut dyn Settled,
        mut on_progress: impl FnMut(Progress),
    ) -> Result<RecoveredStar, StartError> {
        let began = Instant::now();
        let Self { data, shards, recoveries } = self;
        let placement = Placement::even(shards);
        let paths: Vec<PathBuf> = recoveries.iter().map(|(number, _)| log_dir(&data, *number)).collect();
        let upto: Vec<Lsn> =
            recoveries.iter().map(|(_, log)| log.log_id().map_or(Lsn::ZERO, |log| settled.upto(log))).collect();
        let (send, receive) = sync_channel(CHUNKS_MAX);
        let reader = thread::Builder::new().name("recovery".to_owned()).spawn(move || read_all(recoveries, &send));
        let reader = reader.map_err(|source| StartError::Logs { path: data.clone(), source })?;
        let tenures = vec![Vec::new(); upto.len()];
        let mut applier = Applier { streams: Streams::new(), progress: Progress::default(), upto, tenures, settled };
        let folded = applier.apply_all(&receive, &paths, &mut on_progress);
        drop(receive);
        let Ok(read) = reader.join() else {
            let source = io::Error::other("the reader of the head logs panicked");
            return Err(StartError::Logs { path: data, source });
        };
        let logs = read?;
        refuse_damage(&logs)?;
        folded?;
        let Applier { streams, progress, upto, tenures, .. } = applier;
        let known = upto.into_iter().zip(tenures);
        let logs = logs.into_iter().zip(known).map(|((number, recovered), (settled, tenures))| {
            let (first, end, path) = (recovered.first_lsn(), recovered.end_lsn(), recovered.dir().to_owned());
            if settled >= end {
                return Err(StartError::OlderThanStore { path, end, settled });
            }
            if first > settled.next() {
                return Err(StartError::NewerThanStore { path, first, settled });
            }
            Ok(HeadLog { number, recovered, settled, tenures })
        });
        let logs = logs.collect::<Result<_, _>>()?;
        let streams = streams.split(&placement);
        Ok(RecoveredStar { epoch, streams, placement, logs, progress, took: began.elapsed() })
    }
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
    entries: Vec<(Lsn, EntryPos)>,
}

type ReadLogs = Result<Vec<(u16, Recovered)>, RecoveryError>;

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
    let finish = |(number, recovery): (u16, Recovery)| recovery.finish().map(|recovered| (number, recovered));
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
        chunk.entries.push((entry.lsn, entry.pos));
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

struct Applier<'a> {
    streams: Streams,
    progress: Progress,
    /// How far each log is settled, by its position in the list.
    upto: Vec<Lsn>,
    /// Where the entries of each tenure end that are not settled, by the position of the log.
    tenures: Vec<Vec<(Epoch, Lsn)>>,
    settled: &'a mut dyn Settled,
}

impl Applier<'_> {
    fn apply_all(
        &mut self,
        chunks: &Receiver<Chunk>,
        paths: &[PathBuf],
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), StartError> {
        while let Ok(chunk) = chunks.recv() {
            self.take_rows(&chunk)?;
            self.apply(&chunk).map_err(|message| {
                let path = paths.get(usize::from(chunk.log)).cloned().unwrap_or_default();
                StartError::Fold { path, message }
            })?;
            on_progress(self.progress);
        }
        Ok(())
    }

    /// Notes an entry of a tenure; they come in their order.
    fn note_tenure(&mut self, log: u16, epoch: Epoch, lsn: Lsn) {
        let at = usize::from(log);
        let (Some(tenures), Some(settled)) = (self.tenures.get_mut(at), self.upto.get(at)) else { return };
        if lsn <= *settled {
            return;
        }
        match tenures.last_mut() {
            Some((last, end)) if *last == epoch => *end = lsn.next(),
            _ => tenures.push((epoch, lsn.next())),
        }
    }

    fn settled_upto(&self, chunk: &Chunk) -> Lsn {
        self.upto.get(usize::from(chunk.log)).copied().unwrap_or_default()
    }

    /// Takes in the rows of streams that go on here and were made in what is settled.
    fn take_rows(&mut self, chunk: &Chunk) -> Result<(), StartError> {
        let settled = self.settled_upto(chunk);
        let (mut seen, mut wanted) = (HashSet::new(), Vec::new());
        let mut rest = chunk.bytes.as_slice();
        for (lsn, pos) in &chunk.entries {
            let (entry, after) = rest.split_at(pos.bytes as usize);
            rest = after;
            // What doesn't decode is told when it is applied.
            let Ok((entry, _)) = Entry::decode(entry) else { continue };
            let place = entry.place();
            self.note_tenure(chunk.log, place.slot_epoch, *lsn);
            let is_new = *lsn > settled && !self.streams.knows(place.stream_id) && seen.insert(place.stream_id);
            if is_new && !matches!(entry, Entry::Verb { verb: Verb::Create { .. }, .. }) {
                wanted.push((place.slot, place.stream_id));
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let rows = self.settled.rows(&wanted).map_err(|refusal| StartError::Index { refusal })?;
        for row in rows {
            self.streams.replay_row(&row);
        }
        Ok(())
    }

    fn apply(&mut self, chunk: &Chunk) -> Result<(), String> {
        let settled = self.settled_upto(chunk);
        let mut rest = chunk.bytes.as_slice();
        for (lsn, pos) in &chunk.entries {
            let (entry, after) = rest.split_at(pos.bytes as usize);
            rest = after;
            if *lsn <= settled {
                continue;
            }
            self.streams.replay(chunk.log, *pos, entry).map_err(|error| error.to_string())?;
            self.progress.entries += 1;
            self.progress.bytes += entry.len() as u64;
        }
        self.progress.streams = self.streams.len() as u64;
        Ok(())
    }
}

fn refuse_damage(logs: &[(u16, Recovered)]) -> Result<(), StartError> {
    for (_, recovered) in logs {
        if let Verdict::Corrupt(damages) = recovered.verdict() {
            return Err(StartError::Corrupt { path: recovered.dir().to_owned(), damages: damages.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
