//! See `wire::fuzzing::names`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::names(bytes));
