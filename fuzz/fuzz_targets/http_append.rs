//! See `gateway::fuzzing::http_append`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::fuzzing::http_append(bytes));
