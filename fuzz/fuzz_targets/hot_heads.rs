//! See `wire::fuzzing::hot_heads`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::hot_heads(bytes));
