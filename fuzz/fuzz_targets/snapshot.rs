//! See `wire::fuzzing::snapshot`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::snapshot(bytes));
