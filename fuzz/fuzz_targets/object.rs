//! See `wire::fuzzing::object`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::object(bytes));
