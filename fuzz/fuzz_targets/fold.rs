//! See `control::fuzzing::fold`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| control::fuzzing::fold(bytes));
