//! Are the process's limits large enough, and can they be raised where they are not?

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

use crate::bounds;
use crate::units::Bytes;

/// Memory that a shard's runtime insists on being allowed to lock.
pub(super) const MEMLOCK_BYTES_MIN: u64 = 512 << 10;

/// Descriptors of one shard besides its connections: rings, segments, readers, timers.
const SHARD_FILES: u64 = 64;

/// Descriptors of the process besides its shards: the background, logs, metrics, spare ones.
const PROCESS_FILES: u64 = 256;

/// A limit of the process is too small and may not be raised by it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LimitError {
    /// Too little memory may be locked.
    #[error(
        "this process may lock {allowed} of memory and needs {needed} (RLIMIT_MEMLOCK): raise it \
         with `ulimit -l {kib}`, LimitMEMLOCK= in a unit file or --ulimit memlock= of a container",
        kib = needed.get() / 1024
    )]
    Memlock {
        /// What it may lock at most.
        allowed: Bytes,
        /// What it needs.
        needed: Bytes,
    },
    /// Too few files may be open.
    #[error(
        "this process may open {allowed} files and needs {needed} for {shards} shards with \
         connections_max = {connections_max}{}: raise RLIMIT_NOFILE with `ulimit -n {needed}`, or lower \
         connections_max{}",
        beside(*http_connections_max), fitting(*connections_fitting)
    )]
    OpenFiles {
        /// What it may open at most.
        allowed: u64,
        /// What it needs.
        needed: u64,
        /// Shards.
        shards: usize,
        /// What the settings say.
        connections_max: u32,
        /// What the settings say of HTTP; 0 when it is off.
        http_connections_max: u32,
        /// The most connections a shard that would fit; 0 when none would.
        connections_fitting: u64,
    },
}

fn beside(http_connections: u32) -> String {
    if http_connections == 0 { String::new() } else { format!(" and http_connections_max = {http_connections}") }
}

fn fitting(connections: u64) -> String {
    if connections == 0 { String::new() } else { format!(" to {connections}") }
}

/// Raises the soft limit of locked memory when it is too small and the hard one allows it.
pub(super) fn ensure_memlock() -> Result<(), LimitError> {
    let limit = getrlimit(Resource::Memlock);
    match judge(limit, MEMLOCK_BYTES_MIN) {
        Verdict::Enough => Ok(()),
        Verdict::Raise(raised) if setrlimit(Resource::Memlock, raised).is_ok() => Ok(()),
        Verdict::Raise(_) | Verdict::TooSmall => Err(LimitError::Memlock {
            allowed: Bytes::new(limit.maximum.or(limit.current).unwrap_or(0)),
            needed: Bytes::new(MEMLOCK_BYTES_MIN),
        }),
    }
}

/// Raises the soft limit of open files when it is too small and the hard one allows it.
pub(super) fn ensure_open_files(
    shards: usize,
    connections_max: u32,
    http_connections_max: u32,
) -> Result<(), LimitError> {
    let limit = getrlimit(Resource::Nofile);
    let needed = open_files_needed(shards, connections_max, http_connections_max);
    match judge(limit, needed) {
        Verdict::Enough => Ok(()),
        Verdict::Raise(raised) if setrlimit(Resource::Nofile, raised).is_ok() => Ok(()),
        Verdict::Raise(_) | Verdict::TooSmall => {
            let allowed = limit.maximum.or(limit.current).unwrap_or(0);
            Err(open_files_error(allowed, shards, connections_max, http_connections_max))
        }
    }
}

pub(super) fn open_files_error(
    allowed: u64,
    shards: usize,
    connections_max: u32,
    http_connections_max: u32,
) -> LimitError {
    LimitError::OpenFiles {
        allowed,
        needed: open_files_needed(shards, connections_max, http_connections_max),
        shards,
        connections_max,
        http_connections_max,
        connections_fitting: connections_fitting(allowed, shards, http_connections_max),
    }
}

/// Connections that each shard may hold where so many files may be open; 0 when none may.
pub(crate) fn connections_fitting(allowed: u64, shards: usize, http_connections_max: u32) -> u64 {
    let others = PROCESS_FILES + u64::from(http_connections_max);
    let per_shard = allowed.saturating_sub(others) / count(shards.max(1));
    per_shard.saturating_sub(shard_files())
}

/// Memory that may have to be locked for so many shards.
pub(crate) fn memlock_needed(shards: u64) -> u64 {
    MEMLOCK_BYTES_MIN.saturating_mul(shards.max(1))
}

/// Files that are open when every connection is taken.
pub(crate) fn open_files_needed(shards: usize, connections_max: u32, http_connections_max: u32) -> u64 {
    let of_shards = count(shards) * (u64::from(connections_max) + shard_files());
    of_shards + u64::from(http_connections_max) + PROCESS_FILES
}

fn shard_files() -> u64 {
    SHARD_FILES + count(bounds::HISTORY_FILES_OPEN_MAX)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// What a limit means for a need.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Enough,
    Raise(Rlimit),
    TooSmall,
}

/// Compares a limit, of which none is no limit, with what is needed.
pub(super) fn judge(limit: Rlimit, needed: u64) -> Verdict {
    if limit.current.is_none_or(|current| current >= needed) {
        return Verdict::Enough;
    }
    if limit.maximum.is_none_or(|maximum| maximum >= needed) {
        return Verdict::Raise(Rlimit { current: Some(needed), maximum: limit.maximum });
    }
    Verdict::TooSmall
}
