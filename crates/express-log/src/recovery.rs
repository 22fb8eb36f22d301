//! What a log directory holds after whatever happened to it, read with plain blocking I/O.

pub(crate) mod files;
pub(crate) mod read_ahead;
pub(crate) mod replay;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use wire::ids::{Epoch, LogId, Lsn, SegmentId};
use wire::superblock::Superblock;

use self::read_ahead::Files;
use self::replay::{Ends, Replay};
use crate::backfill::Backfill;
pub use crate::core::choice::ChoiceError;
pub use crate::core::scan::Damage;
use crate::entry::ReplayedEntry;
use crate::log::OpenError;

/// How a log was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is no log yet.
    Fresh,
    /// Its writer sealed it.
    Clean,
    /// Its writer stopped without a seal; all that was answered for is there.
    Ended {
        /// The segment in which the log ends.
        segment: SegmentId,
        /// Where in its file.
        offset: u32,
        /// Whether something that nobody was answered for stands behind and is left out.
        torn: bool,
    },
    /// Entries that were durable are not there. What can be read was replayed; nothing may be written.
    Corrupt(Vec<Damage>),
    /// The same, and an operator said to go on without them.
    LossAccepted(Vec<Damage>),
}

/// Why a log directory cannot be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// Another process holds the log, or its last writes have not come to an end.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The directory or the segment that is locked.
        path: PathBuf,
    },
    /// The system refused an operation.
    #[error("{}: {source}", path.display())]
    Io {
        /// On what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Segments are there and no superblock says what they are.
    #[error("{} holds {segments} segments and no superblock", path.display())]
    NoSuperblock {
        /// The directory.
        path: PathBuf,
        /// How many segments it holds.
        segments: usize,
    },
    /// The superblock cannot be used.
    #[error("{}: {source}", path.display())]
    Superblock {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ChoiceError,
    },
    /// A segment of another log stands in the directory.
    #[error("{} belongs to log {found}, not to log {expected}", path.display())]
    Foreign {
        /// The segment.
        path: PathBuf,
        /// The log it says.
        found: LogId,
        /// The log of the directory.
        expected: LogId,
    },
    /// A file in the directory has a length that no writer gives it.
    #[error("{} has {bytes} bytes; a segment has less than 4 GiB", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
}

/// One log directory, locked, while its entries are read.
#[derive(Debug)]
pub struct Recovery {
    dir: PathBuf,
    lock: OwnedFd,
    replay: Replay<Files>,
}

impl Recovery {
    /// Locks `dir`, makes durable what is in it, and reads what its files say of themselves.
    ///
    /// Makes nothing but the directory itself. Waits about a second for a process that was killed and still holds it.
    ///
    /// # Errors
    /// [`RecoveryError`]; nothing has been changed then.
    pub fn open(dir: &Path) -> Result<Self, RecoveryError> {
        let lock = files::lock_dir(dir)?;
        let (superblock, found, source) = files::survey(dir)?;
        let replay = Replay::new(superblock, &found, source).map_err(|source| io_error(dir, source))?;
        Ok(Self { dir: dir.to_owned(), lock, replay })
    }

    /// The log of the directory; none when it holds none yet.
    #[must_use]
    pub fn log_id(&self) -> Option<LogId> {
        self.replay.log_id()
    }

    /// The highest epoch that the superblock or a segment says; zero for a fresh log.
    #[must_use]
    pub fn last_epoch(&self) -> Epoch {
        self.replay.last_epoch()
    }

    /// The epochs that have segments, ascending.
    #[must_use]
    pub fn epochs(&self) -> Vec<Epoch> {
        self.replay.epochs()
    }

    /// Gives `sink` every entry of `epoch` in order, and those of lower epochs that were not asked for before.
    ///
    /// Entries around a damage are given too: whether there is one says [`finish`](Self::finish).
    ///
    /// # Errors
    /// [`RecoveryError::Io`] when a file cannot be read.
    pub fn replay_epoch(&mut self, epoch: Epoch, sink: &mut dyn FnMut(ReplayedEntry<'_>)) -> Result<(), RecoveryError> {
        self.replay.replay_to(Some(epoch), sink).map_err(|source| io_error(&self.dir, source))
    }

    /// Reads what was not replayed, and says how the log was left.
    ///
    /// # Errors
    /// [`RecoveryError::Io`] when a file cannot be read.
    pub fn finish(self) -> Result<Recovered, RecoveryError> {
        let ends = self.replay.finish().map_err(|source| io_error(&self.dir, source))?;
        Ok(Recovered { dir: self.dir, lock: self.lock, ends })
    }
}

/// A log directory that was read to its end, still locked.
#[derive(Debug)]
pub struct Recovered {
    pub(crate) dir: PathBuf,
    pub(crate) lock: OwnedFd,
    pub(crate) ends: Ends,
}

impl Recovered {
    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The log; none when the directory holds none yet.
    #[must_use]
    pub fn log_id(&self) -> Option<LogId> {
        self.ends.superblock.as_ref().map(|(block, _)| block.log)
    }

    /// How the log was left.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        &self.ends.verdict
    }

    /// Whether its writer sealed it, or everything in it was given up.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.ends.verdict == Verdict::Clean
    }

    /// The highest epoch that the log was written in; zero for a fresh one.
    #[must_use]
    pub fn last_epoch(&self) -> Epoch {
        self.ends.last_epoch()
    }

    /// The LSN of the first entry that is kept; [`end_lsn`](Self::end_lsn) when there is none.
    #[must_use]
    pub fn first_lsn(&self) -> Lsn {
        self.ends.first_lsn()
    }

    /// The LSN after the last entry.
    #[must_use]
    pub fn end_lsn(&self) -> Lsn {
        self.ends.next_lsn
    }

    /// How many frames without entries are not there though their neighbours are: nothing is lost, but the disk is not
    /// to be trusted.
    #[must_use]
    pub fn notes_lost(&self) -> u64 {
        self.ends.notes_lost
    }

    /// Reads the entries again, up to the ends that were found: of a log that is not written any more, or before it is.
    /// None when the directory holds no log yet.
    #[must_use]
    pub fn backfill(&self) -> Option<Backfill> {
        let (block, _) = self.ends.superblock.as_ref()?;
        let segments = self.ends.segments.iter().map(|segment| segment.to_ended()).collect();
        Some(Backfill::new(self.dir.clone(), Superblock { segments, ..block.clone() }))
    }

    /// Gives up every entry, because all are held elsewhere, of a log that nobody writes any more. Blocks.
    ///
    /// A superblock without segments says so durably before the files are removed. The directory stays and is unlocked;
    /// a log that goes on there later goes on with the LSN and the segment after the last ones.
    ///
    /// # Errors
    /// [`OpenError::Corrupt`] for a log with damage, until [`accept_loss`](Self::accept_loss) was called: nothing has been
    /// changed then. [`OpenError::Io`]: what was not removed is removed by another attempt.
    pub fn release_all(self) -> Result<(), OpenError> {
        if let Verdict::Corrupt(damages) = &self.ends.verdict {
            return Err(OpenError::Corrupt { damages: damages.clone() });
        }
        if let Some(emptied) = self.ends.emptied() {
            files::write_superblock(&self.dir, &emptied).map_err(OpenError::io("writing the superblock"))?;
        }
        files::remove_segments(&self.dir).map_err(OpenError::io("removing settled segments"))
    }

    /// Goes on without what is lost, because an operator said so.
    #[must_use]
    pub fn accept_loss(mut self) -> Self {
        self.ends.accept_loss();
        self
    }
}

fn io_error(path: &Path, source: io::Error) -> RecoveryError {
    RecoveryError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
