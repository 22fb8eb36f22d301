//! One shard a core: sequences, fences, commits and serves the wire.
