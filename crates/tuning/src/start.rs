//! May `novad` serve on this host with these settings? Each refusal is one sentence with the value
//! and the remedy.

mod directory;
mod limits;

use std::fmt;

use thiserror::Error;
use wire::reason::Reason;

pub use directory::{DataDirectory, DirectoryError};
pub use limits::LimitError;

use crate::host::{self, Fitness, IoUringDisabled, KernelRelease};
use crate::plan::{self, LogRoomError, Plan};
use crate::settings::Settings;
use crate::units::Bytes;

/// Why `novad` does not start on this host with these settings.
#[derive(Debug, Error)]
pub enum StartError {
    /// `io_uring` is switched off.
    #[error(transparent)]
    IoUring(#[from] IoUringDisabled),
    /// A limit of the process is too small.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The data directory can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The disk has no room for the head logs.
    #[error(transparent)]
    LogRoom(#[from] LogRoomError),
}

impl StartError {
    /// What it is called to users and programs.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::LogRoom(_) | Self::Directory(DirectoryError::Full { .. }) => Reason::ResourceExhausted,
            Self::IoUring(_) | Self::Limit(_) | Self::Directory(_) => Reason::FailedPrecondition,
        }
    }
}

/// Something to know about at start that does not stand in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The kernel is older than what nova is tried on.
    KernelOld {
        /// The one that runs.
        running: KernelRelease,
    },
    /// The kernel lacks `IORING_SETUP_COOP_TASKRUN`.
    CoopTaskrunMissing {
        /// The one that runs.
        running: KernelRelease,
    },
    /// Shards share CPUs with each other or with the background.
    CoresShared {
        /// Shards.
        shards: usize,
        /// CPUs that this process may run on.
        cpus: usize,
    },
    /// The file system works, but at a price or a risk.
    FileSystemDoubtful {
        /// Its kind.
        kind: host::FileSystem,
        /// The price or the risk.
        why: &'static str,
    },
    /// The head logs get less of the disk than the settings allow.
    LogSmaller {
        /// What the settings say.
        asked: Bytes,
        /// What each log gets.
        given: Bytes,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KernelOld { running } => {
                let wanted = KernelRelease::RECOMMENDED;
                write!(f, "kernel {running} is older than the recommended {wanted}")
            }
            Self::CoopTaskrunMissing { running } => write!(
                f,
                "kernel {running} is older than {}: shards serve about half the load",
                KernelRelease::COOP_TASKRUN
            ),
            Self::CoresShared { shards, cpus } => {
                write!(f, "{shards} shards on {cpus} CPUs share cores with each other or with the background")
            }
            Self::FileSystemDoubtful { kind, why } => {
                write!(f, "the data directory is on {kind}: {why}")
            }
            Self::LogSmaller { asked, given } => {
                write!(f, "each head log may take {given} of the disk, less than log.bytes_max = {asked}")
            }
        }
    }
}

/// What the checks found and took: the data directory stays locked while this lives.
#[derive(Debug)]
pub struct Prepared {
    /// Which CPU serves which shard.
    pub plan: Plan,
    /// The data directory, locked.
    pub data: DataDirectory,
    /// Bytes that each head log may take on disk.
    pub log_bytes_max: Bytes,
    /// What to tell the operator.
    pub notices: Vec<Notice>,
}

/// Checks the host, raises the process's soft limits as far as needed, and takes the data directory:
/// made when absent, locked against a second process.
///
/// `held_bytes` tells how many bytes of the directory are head logs already; it is asked once the
/// lock is held.
pub fn prepare(settings: &Settings, held_bytes: impl FnOnce(&DataDirectory) -> u64) -> Result<Prepared, StartError> {
    host::io_uring_allowed()?;
    limits::ensure_memlock()?;
    let cpus = host::cpus_allowed();
    let plan = Plan::new(settings.shards, &cpus);
    let shards = plan.shard_cpus().len();
    limits::ensure_open_files(shards, settings.connections_max)?;
    let data = DataDirectory::open(&settings.data)?;

    let mut notices = kernel_notices();
    if plan.shares_cores() {
        notices.push(Notice::CoresShared { shards, cpus: cpus.len() });
    }
    if let Fitness::Doubtful(why) = data.file_system().fitness() {
        notices.push(Notice::FileSystemDoubtful { kind: data.file_system(), why });
    }
    let room = Bytes::new(data.free_bytes()?.saturating_add(held_bytes(&data)));
    let log_bytes_max = plan::log_bytes_max(&settings.log, shards, room)?;
    if log_bytes_max.get() + settings.log.segment_bytes.get() <= settings.log.bytes_max.get() {
        let asked = settings.log.bytes_max;
        notices.push(Notice::LogSmaller { asked, given: log_bytes_max });
    }
    Ok(Prepared { plan, data, log_bytes_max, notices })
}

fn kernel_notices() -> Vec<Notice> {
    let Some(running) = KernelRelease::running() else {
        return Vec::new();
    };
    let mut notices = Vec::new();
    if running < KernelRelease::RECOMMENDED {
        notices.push(Notice::KernelOld { running });
    }
    if running < KernelRelease::COOP_TASKRUN {
        notices.push(Notice::CoopTaskrunMissing { running });
    }
    notices
}

#[cfg(test)]
mod tests;
