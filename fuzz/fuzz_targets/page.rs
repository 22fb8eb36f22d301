//! See `client::fuzzing::page`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| client::fuzzing::page(bytes));
