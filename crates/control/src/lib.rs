//! The background: buckets, kept behind the store.
