//! See `wire::fuzzing::batch`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::batch(bytes));
