//! See `client::fuzzing::json_answers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| client::fuzzing::json_answers(bytes));
