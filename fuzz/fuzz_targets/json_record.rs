//! See `client::fuzzing::json_record`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| client::fuzzing::json_record(bytes));
