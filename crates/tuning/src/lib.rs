//! What may an operator choose, what does nova bound by itself, and does this host carry it?
//!
//! * [`settings`]: everything an operator may choose, with its unit, range and trade, and the one
//!   parser for file, environment and command line.
//! * [`bounds`]: the bounds of internal queues and buffers, each with its answer when it is full.
//! * [`host`]: facts about the machine, read without changing it.
//! * [`machine`]: what `/proc` and `/sys` tell, from a root that may be another one.
//! * [`check`]: each item of the host that matters, how it is and how it should be.
//! * [`change`]: making it so, and taking that back.
//! * [`measured`]: which way of committing suits the disk, by what was measured on it.
//! * [`plan`]: which CPU serves which shard, and whether the disk has what head logs begin with.
//! * [`room`]: what of a disk is kept back, and whether records still have room on it.
//! * [`start`]: the checks that `novad` makes before it serves, each with a sentence and a remedy.
//! * [`units`]: sizes and durations as operators write them.

pub mod bounds;
pub mod change;
pub mod check;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod host;
pub mod machine;
pub mod measured;
pub mod plan;
pub mod room;
pub mod settings;
pub mod start;
pub mod units;
