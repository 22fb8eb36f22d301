//! The background: buckets, kept behind the store.

pub mod store;
