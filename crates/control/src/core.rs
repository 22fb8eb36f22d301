//! What does control decide? Values in, values out: no clock, no I/O, no lock.

pub(crate) mod block_cache;
pub(crate) mod buckets;
pub(crate) mod extent_walk;
pub(crate) mod get_times;
pub(crate) mod read_plan;
pub(crate) mod settle_clock;
pub(crate) mod settle_pack;
mod tables;
pub(crate) mod uploader;
