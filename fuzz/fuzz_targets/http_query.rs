//! See `gateway::fuzzing::http_query`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::fuzzing::http_query(bytes));
