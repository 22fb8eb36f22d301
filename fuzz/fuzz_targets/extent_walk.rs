//! See `control::fuzzing::extent_walk`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| control::fuzzing::extent_walk(bytes));
