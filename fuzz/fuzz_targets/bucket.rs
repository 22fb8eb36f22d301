//! See `wire::fuzzing::bucket`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::bucket(bytes));
