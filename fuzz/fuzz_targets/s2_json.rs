//! See `gateway::fuzzing::s2_json`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::fuzzing::s2_json(bytes));
