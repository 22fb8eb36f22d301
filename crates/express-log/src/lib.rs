//! Makes batches durable on NVMe in order and finds its tail again after a crash.

use std::cell::Cell;
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use wire::ids::{Epoch, LogId, Lsn, SegmentId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    Dsync,
    Fdatasync,
}

#[derive(Debug, Clone)]
pub struct LogOptions {
    pub segment_bytes: u32,
    pub log_bytes_max: u64,
    pub commits_in_flight: usize,
    pub commit_start_bytes: usize,
    pub commit_bytes_max: usize,
    pub pending_bytes_max: usize,
    pub sync: SyncMode,
    pub ready_segments: usize,
    pub inline_commit: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            log_bytes_max: 16 << 30,
            commits_in_flight: 2,
            commit_start_bytes: 64 << 10,
            commit_bytes_max: 1 << 20,
            pending_bytes_max: 8 << 20,
            sync: SyncMode::Dsync,
            ready_segments: 1,
            inline_commit: false,
        }
    }
}

/// Where the bytes of an entry lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPos {
    pub segment: SegmentId,
    pub offset: u32,
    pub bytes: u32,
}

#[derive(Debug)]
pub struct ReplayedEntry<'a> {
    pub lsn: Lsn,
    pub pos: EntryPos,
    pub bytes: &'a [u8],
}

#[derive(Debug)]
pub enum RecoveryError {
    Io { path: PathBuf, source: io::Error },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub segment: SegmentId,
    pub offset: u32,
    pub lsns: Range<Lsn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Fresh,
    Clean,
    Torn { segment: SegmentId, offset: u32, discarded_bytes: u64 },
    Corrupt(Vec<Damage>),
}

/// One log directory, locked.
#[derive(Debug)]
pub struct Recovery(());

impl Recovery {
    pub fn open(_dir: &Path) -> Result<Self, RecoveryError> {
        unimplemented!()
    }
    /// The highest epoch of the superblock and the segments; zero for a fresh log.
    pub fn last_epoch(&self) -> Epoch {
        unimplemented!()
    }
    /// None for a directory that is not there or empty.
    pub fn log_id(&self) -> Option<LogId> {
        unimplemented!()
    }
    pub fn epochs(&self) -> Vec<Epoch> {
        unimplemented!()
    }
    /// Ascending order of epochs only.
    pub fn replay_epoch(
        &mut self,
        _epoch: Epoch,
        _sink: &mut dyn FnMut(ReplayedEntry<'_>),
    ) -> Result<(), RecoveryError> {
        unimplemented!()
    }
    pub fn finish(self) -> Result<Recovered, RecoveryError> {
        unimplemented!()
    }
}

#[derive(Debug)]
pub struct Recovered(());

impl Recovered {
    pub fn dir(&self) -> &Path {
        unimplemented!()
    }
    pub fn log_id(&self) -> Option<LogId> {
        unimplemented!()
    }
    pub fn verdict(&self) -> &Verdict {
        unimplemented!()
    }
    pub fn end_lsn(&self) -> Lsn {
        unimplemented!()
    }
    #[must_use]
    pub fn accept_loss(self) -> Self {
        self
    }
}

#[derive(Debug)]
pub enum OpenError {
    Corrupt(Vec<Damage>),
}

#[derive(Debug)]
pub enum FatalError {
    Write { segment: SegmentId, offset: u32, source: io::Error },
}

/// The default for `on_fatal`: prints one line and aborts the process.
pub fn abort(_error: &FatalError) {
    std::process::abort();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoomClass {
    Data,
    Control,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// Passes by itself: wait.
    Busy { pending_bytes: usize, pending_bytes_max: usize },
    /// Passes when something is settled or the operator gives more space.
    Full { used_bytes: u64, log_bytes_max: u64 },
}

/// Too many wait for room already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyWaiters {
    pub waiters: usize,
}

#[derive(Debug, Clone, Default)]
pub struct LogMetrics {
    pub commits: u64,
    pub heartbeats: u64,
    pub entries: u64,
    pub entry_bytes: u64,
    pub written_bytes: u64,
    pub padding_bytes: u64,
    pub in_flight: usize,
    pub pending_bytes: usize,
    pub wait_last_us: u64,
    pub wait_ewma_us: u64,
    pub flush_last_us: u64,
    pub flush_ewma_us: u64,
    pub segments: usize,
    pub segments_ready: usize,
    pub used_bytes: u64,
    pub log_bytes_max: u64,
}

#[derive(Debug, Clone)]
pub struct Log(std::rc::Rc<Cell<u64>>);

impl Log {
    pub async fn open(
        _options: LogOptions,
        _recovered: Recovered,
        _epoch: Epoch,
        _on_durable: impl FnMut(Lsn) + 'static,
        _on_fatal: impl FnMut(&FatalError) + 'static,
    ) -> Result<Self, OpenError> {
        unimplemented!()
    }
    pub fn log_id(&self) -> LogId {
        unimplemented!()
    }
    pub fn epoch(&self) -> Epoch {
        unimplemented!()
    }
    pub fn room(&self, _entry_bytes: usize, _class: RoomClass) -> Result<(), NoRoom> {
        unimplemented!()
    }
    pub async fn wait_for_room(&self) -> Result<(), TooManyWaiters> {
        unimplemented!()
    }
    pub fn append<R>(&self, _entry_bytes: usize, _fill: impl FnOnce(&mut [u8]) -> R) -> (Lsn, EntryPos, R) {
        unimplemented!()
    }
    pub fn kick(&self) {
        unimplemented!()
    }
    pub fn durable_lsn(&self) -> Lsn {
        unimplemented!()
    }
    pub fn assigned_lsn(&self) -> Lsn {
        unimplemented!()
    }
    pub async fn seal(&self) {
        unimplemented!()
    }
    pub fn metrics(&self) -> LogMetrics {
        unimplemented!()
    }
}

/// Bytes of a head log.
#[derive(Debug)]
pub struct ReadBytes(glommio::io::ReadResult);

impl Deref for ReadBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Debug)]
pub struct HistoryReader(());

impl HistoryReader {
    pub fn new(_dirs: Vec<PathBuf>, _open_files_max: usize) -> Self {
        Self(())
    }
    pub async fn read(&self, _log: usize, _segment: SegmentId, _offset: u32, _bytes: u32) -> io::Result<ReadBytes> {
        unimplemented!()
    }
}

/// How many rings of this process got COOP_TASKRUN.
pub fn coop_taskrun_rings() -> u32 {
    0
}
