//! May `novad` serve on this host with these settings? Each refusal is one sentence with the value
//! and the remedy.

mod directory;
mod limits;

use std::fmt;
use std::path::Path;

use thiserror::Error;
use wire::reason::Reason;

pub use directory::{DataDirectory, DirectoryError};
pub use limits::LimitError;
pub(crate) use limits::{connections_fitting, memlock_needed, open_files_needed};

use crate::host::{self, Fitness, IoUringDisabled, KernelRelease};
use crate::machine::{CpuList, DataDisk, Machine, Process};
use crate::plan::{self, Goal, HostPlan, LogRoomError, Plan};
use crate::room::Rooms;
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
    /// The disk has no room for new head logs.
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
    /// Shards are laid out otherwise than the host's plan has them.
    PlanLeft {
        /// CPUs of the shards.
        cpus: CpuList,
        /// CPUs that the plan gives them.
        suited: CpuList,
    },
    /// The file system works, but at a price or a risk.
    FileSystemDoubtful {
        /// Its kind.
        kind: host::FileSystem,
        /// The price or the risk.
        why: &'static str,
    },
    /// A disk is so full that no records are taken until there is room.
    DiskLow {
        /// What is free on each that is.
        rooms: Vec<String>,
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
            Self::PlanLeft { cpus, suited } => write!(
                f,
                "shards run on CPU {cpus}, and CPU {suited} would suit this host: `nova host plan` says why and how"
            ),
            Self::FileSystemDoubtful { kind, why } => {
                write!(f, "the data directory is on {kind}: {why}")
            }
            Self::DiskLow { rooms } => {
                write!(f, "no records are taken until there is room: {}", rooms.join(", "))
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
    /// The disks of the data and of the store.
    pub rooms: Rooms,
    /// What to tell the operator.
    pub notices: Vec<Notice>,
}

/// Checks the host, raises the process's soft limits as far as needed, and takes the data directory:
/// made when absent, locked against a second process.
///
/// On a disk that is full what was kept back is given up, so that what is there can be served. `has_logs` tells whether the
/// directory holds head logs already; it is asked once the lock is held.
///
/// # Errors
/// [`StartError`]; the directory is as it was, but may be made.
pub fn prepare(settings: &Settings, has_logs: impl FnOnce(&DataDirectory) -> bool) -> Result<Prepared, StartError> {
    host::io_uring_allowed()?;
    limits::ensure_memlock()?;
    let cpus = host::cpus_allowed();
    let plan = Plan::new(settings.shards, &cpus);
    let shards = plan.shard_cpus().len();
    let http_connections_max = settings.surface_connections_max();
    limits::ensure_open_files(shards, settings.connections_max, http_connections_max)?;
    let data = DataDirectory::open(&settings.data)?;

    let mut notices = kernel_notices();
    if plan.shares_cores() {
        notices.push(Notice::CoresShared { shards, cpus: cpus.len() });
    } else {
        notices.extend(plan_left(settings, &plan));
    }
    if let Fitness::Doubtful(why) = data.file_system().fitness() {
        notices.push(Notice::FileSystemDoubtful { kind: data.file_system(), why });
    }
    let segments_bytes = settings.log.segment_bytes.get().saturating_mul(shards as u64);
    let store = settings.store.directory(data.path());
    let rooms = Rooms::open(data.path(), store.as_deref(), segments_bytes).map_err(|source| data.failed(source))?;
    if !has_logs(&data) {
        let room = Bytes::new(data.free_bytes()?.saturating_add(rooms.data.held_bytes()));
        plan::check_new_logs(&settings.log, shards, room, &rooms.data.marks())?;
    }
    if rooms.is_any_low() {
        notices.push(Notice::DiskLow {
            rooms: rooms.each().filter(|room| room.is_low()).map(ToString::to_string).collect(),
        });
    }
    Ok(Prepared { plan, data, log_bytes_max: plan::log_bytes_max(&settings.log), rooms, notices })
}

/// Whether the shards are where the host's plan has none, for either goal.
fn plan_left(settings: &Settings, plan: &Plan) -> Option<Notice> {
    let machine = Machine::new(Path::new("/"), Process::here(), DataDisk::below(&settings.data));
    let free = Settings { shards: 0, ..settings.clone() };
    let suited = |goal| {
        let plan = HostPlan::of(&machine, &free, goal);
        CpuList::new(plan.shards().iter().map(|shard| shard.cpu))
    };
    let cpus = CpuList::new(plan.shard_cpus().iter().copied());
    let suits = [suited(Goal::Latency), suited(Goal::Throughput)];
    if suits.contains(&cpus) {
        return None;
    }
    let [suited, _] = suits;
    Some(Notice::PlanLeft { cpus, suited })
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
