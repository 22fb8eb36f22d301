//! See `control::fuzzing::store_meta`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| control::fuzzing::store_meta(bytes));
