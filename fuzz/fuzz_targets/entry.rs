//! See `wire::fuzzing::entry`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::entry(bytes));
