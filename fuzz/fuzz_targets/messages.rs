//! See `wire::fuzzing::messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::messages(bytes));
