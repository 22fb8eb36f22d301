//! See `wire::fuzzing::superblock`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::superblock(bytes));
