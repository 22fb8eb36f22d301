//! See `wire::fuzzing::config`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::config(bytes));
