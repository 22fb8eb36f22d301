//! See `gateway::fuzzing::http_bodies`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::fuzzing::http_bodies(bytes));
