//! What does control decide? Values in, values out: no clock, no I/O, no lock.

pub(crate) mod buckets;
mod tables;
pub(crate) mod uploader;
