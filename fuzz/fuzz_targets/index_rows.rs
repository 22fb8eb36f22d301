//! See `control::fuzzing::index_rows`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| control::fuzzing::index_rows(bytes));
