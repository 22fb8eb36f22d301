//! See `control::fuzzing::object_names`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| control::fuzzing::object_names(bytes));
