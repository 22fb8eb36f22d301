//! See `tuning::fuzzing::settings`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tuning::fuzzing::settings(bytes));
