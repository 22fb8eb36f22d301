//! Every byte that leaves a core, and the plain values that shards and control exchange.
//!
//! This is the floor of nova: no I/O, no clock, no async. Byte layouts ([`frame`], [`batch`], [`entry`],
//! [`log_frame`], [`segment`], [`superblock`], [`chunk`], [`snapshot`], [`star_detail`], [`stream_row`]) are one file each with a golden test; values
//! that cross a boundary inside a star stand in [`handoff`]; what may go wrong stands in [`reason`]. Only the tests and the targets of
//! `fuzz` are built with the feature `fuzzing`.

pub mod batch;
pub mod bucket;
pub mod chunk;
pub mod config;
pub mod crc;
pub mod dedupe;
pub mod entry;
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod handoff;
pub mod hot;
pub mod ids;
pub mod limits;
pub mod log_frame;
pub mod message;
pub mod names;
pub mod reason;
pub mod refusal;
pub mod segment;
pub mod slot;
pub mod snapshot;
pub mod star_detail;
pub mod stream_row;
pub mod superblock;
pub mod terms;

mod archive;
mod bytes;
