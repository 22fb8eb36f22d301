//! See `tuning::fuzzing::host_texts`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tuning::fuzzing::host_texts(bytes));
