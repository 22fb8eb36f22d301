//! See `wire::fuzzing::log_frame`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::log_frame(bytes));
