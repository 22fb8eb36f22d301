//! What may an operator choose, what does nova bound by itself, and does this host carry it?
//!
//! * [`settings`]: everything an operator may choose, with its unit, range and trade, and the one
//!   parser for file, environment and command line.
//! * [`bounds`]: the bounds of internal queues and buffers, each with its answer when it is full.
//! * [`host`]: facts about the machine, read without changing it.
//! * [`plan`]: which CPU serves which shard, and how much disk each head log may take.
//! * [`start`]: the checks that `novad` makes before it serves, each with a sentence and a remedy.
//! * [`units`]: sizes and durations as operators write them.

pub mod bounds;
pub mod host;
pub mod plan;
pub mod settings;
pub mod start;
pub mod units;
