//! The `novad` binary.

fn main() {}
