//! The `nova` binary.

fn main() {}
