//! The Rust SDK.
