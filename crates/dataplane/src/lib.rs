//! One shard a core: sequences, fences, commits, serves the wire.
//!
//! The decisions are in `core`, which knows neither clock nor socket. Around it stands a shell on glommio: `recover` reads
//! the head logs, `doors` listens, `star` starts a pinned thread a shard, and there `incoming` makes frames of bytes, `dispatch` finds who
//! serves them, `outgoing` sends what the core answers, and `hops` carries what belongs to another shard. The tasks of a
//! shard share one `shell::State`, which each borrows for a turn. `feeding` hands what is durable over to be settled. `put_off` has work wait
//! that had its share of the time.

mod bell;
mod conns;
mod core;
mod cpu;
mod dispatch;
mod doors;
mod drain;
mod feeding;
mod gather;
mod hop;
mod hops;
mod incoming;
mod listing;
mod mailbox;
mod os;
mod outgoing;
mod planted;
mod porter;
mod put_off;
mod recover;
mod remote_subscriptions;
mod remotes;
mod shard_thread;
mod shell;
mod star;
mod start_error;
mod surroundings;
mod tasks;
mod watchdog;

pub use doors::Doors;
pub use porter::Porter;
pub use recover::{HeadLogs, LogFacts, LogReach, NothingSettled, Progress, RecoveredStar, Settled, has_logs};
pub use star::{LogLeft, Options, ShardEnded, Star, TellShard, abort_on_panic, start};
pub use start_error::StartError;
