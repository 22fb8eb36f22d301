//! Makes batches durable on NVMe in order and finds its tail again after a crash.
//!
//! A log is a directory: a superblock (`super`) and segments of a fixed size (`seg-<id>`), of which each belongs to one
//! epoch and is never written again once a later epoch has begun. [`Recovery`] reads it with plain blocking I/O on any
//! thread; [`Log`] writes it inside the glommio executor of one shard; [`HistoryReader`] reads single entries there, and
//! [`Backfill`] all of them again on any thread. What is held elsewhere is given up: [`Log::release`] while the log is
//! written, [`Recovered::release_all`] when nobody writes it any more.
//!
//! What is decided stands in `core` (when a commit starts, where a frame goes, whether there is room, where the log ends);
//! what is done, in `log` and `recovery` over a [`Device`].

mod backfill;
mod core;
mod device;
mod entry;
mod fatal;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod history;
mod log;
mod metrics;
mod names;
mod options;
mod planted;
mod recovery;
mod ring;
mod room;

pub use self::backfill::{Backfill, BackfillError};
pub use self::device::disk::Disk;
pub use self::device::{Blankness, Device};
pub use self::entry::{EntryPos, ReplayedEntry};
pub use self::fatal::{FatalError, abort};
pub use self::history::{HistoryReader, ReadBytes};
#[cfg(any(test, feature = "simulated"))]
pub use self::log::simulated::{SimulatedDisk, SimulatedLog};
pub use self::log::{Log, OpenError};
pub use self::metrics::{CommitTimes, LogMetrics};
pub use self::options::{LogOptions, OptionsError, SyncMode};
pub use self::recovery::{ChoiceError, Damage, Recovered, Recovery, RecoveryError, Verdict};
pub use self::ring::{coop_taskrun_rings, try_ring};
pub use self::room::{NoRoom, RoomClass, TooManyWaiters};
