//! See `wire::fuzzing::frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::frames(bytes));
