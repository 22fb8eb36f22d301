//! Why does a star not start?

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use express_log::{Damage, OpenError, RecoveryError};
use wire::ids::{Lsn, ShardId};
use wire::reason::Reason;
use wire::refusal::Refusal;

/// Why a star does not start. Nothing was served, and nothing that was acked is touched.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory of the head logs can't be read.
    #[error("the directory of the head logs {} can't be read: {source}", path.display())]
    Logs {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A head log can't be recovered.
    #[error("a head log can't be recovered: {0}")]
    Recovery(#[from] RecoveryError),
    /// Acked entries are damaged.
    #[error("{}", corruption(path, damages))]
    Corrupt {
        /// The directory of the log.
        path: PathBuf,
        /// Where, and what is lost; at least one.
        damages: Vec<Damage>,
    },
    /// The entries of a head log don't add up to streams.
    #[error("the head log {} does not add up: {message}; nothing is served from it until an intact copy is put back", path.display())]
    Fold {
        /// The directory of the log.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A head log ends before what the store holds of it.
    #[error(
        "the head log {} ends at lsn {end}, and the store holds what it wrote up to lsn {settled}: it is an older copy; put \
         back the latest one, or give up what only it holds with --accept-loss", path.display()
    )]
    OlderThanStore {
        /// The directory of the log.
        path: PathBuf,
        /// The LSN after its last entry.
        end: Lsn,
        /// The last entry that the store holds.
        settled: Lsn,
    },
    /// A head log has given up more than the store holds of it.
    #[error(
        "the head log {} begins at lsn {first}, and the store holds what it wrote up to lsn {settled}: the store is an older copy; \
         put back the latest one", path.display()
    )]
    NewerThanStore {
        /// The directory of the log.
        path: PathBuf,
        /// Its first entry that is kept.
        first: Lsn,
        /// The last entry that the store holds.
        settled: Lsn,
    },
    /// The rows that streams go on from can't be read from the index.
    #[error("the index can't be read: {refusal}")]
    Index {
        /// What it said.
        refusal: Refusal,
    },
    /// Recovery was made for another number of shards.
    #[error("{recovered} shards were recovered, and {asked} are to be started")]
    Shards {
        /// For how many the rows were split.
        recovered: usize,
        /// How many are to start.
        asked: usize,
    },
    /// No ring can be set up.
    #[error(
        "io_uring can't be used by this process: {source}; where a container forbids it, allow io_uring_setup, \
         io_uring_enter and io_uring_register in its seccomp profile"
    )]
    IoUring {
        /// What the system said.
        source: io::Error,
    },
    /// The address can't be listened on.
    #[error("{addr} can't be listened on: {source}{}", in_use_remedy(source))]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The thread of a shard can't be started.
    #[error("shard {shard} can't be started on CPU {cpu}: {message}")]
    Executor {
        /// The shard.
        shard: ShardId,
        /// Its CPU.
        cpu: usize,
        /// What the runtime said.
        message: String,
    },
    /// A head log can't be written.
    #[error("the head log of shard {shard} can't be opened: {source}{}", if is_full(source) { "; free some room" } else { "" })]
    Open {
        /// The shard.
        shard: ShardId,
        /// Why.
        source: OpenError,
    },
    /// The thread of a shard ended before it served.
    #[error("the thread of shard {shard} ended while it started")]
    Ended {
        /// The shard.
        shard: ShardId,
    },
}

impl StartError {
    /// The directory of the head log that can't be served from; without it the star may start, and loses what only it holds.
    #[must_use]
    pub fn lost_log(&self) -> Option<&std::path::Path> {
        match self {
            Self::Corrupt { path, .. } | Self::Fold { path, .. } | Self::OlderThanStore { path, .. } => Some(path),
            _ => None,
        }
    }

    /// What it is called to users and programs.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Index { refusal } => refusal.reason,
            Self::Open { source, .. } if is_full(source) => Reason::ResourceExhausted,
            Self::Shards { .. } | Self::Executor { .. } | Self::Ended { .. } => Reason::Internal,
            _ => Reason::FailedPrecondition,
        }
    }
}

/// Whether it is for want of room on the disk.
fn is_full(error: &OpenError) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error, OpenError::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
}

fn corruption(path: &std::path::Path, damages: &[Damage]) -> String {
    let places: Vec<String> = damages
        .iter()
        .map(|damage| {
            let Damage { segment, offset, lsns, .. } = damage;
            format!("segment {:016x} at offset {offset} (lsn {} up to {})", segment.get(), lsns.start, lsns.end)
        })
        .collect();
    format!(
        "the head log {} is damaged where acked entries stood: {}; put back an intact copy of these files, \
         or start with --accept-loss to go on without what only this log holds",
        path.display(),
        places.join(", ")
    )
}

fn in_use_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => "; stop who listens there, or choose another address with --listen",
        io::ErrorKind::PermissionDenied => "; choose a port above 1023 with --listen",
        io::ErrorKind::AddrNotAvailable => "; choose an address of this host with --listen",
        _ => "",
    }
}
