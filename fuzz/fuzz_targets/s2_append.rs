//! See `gateway::fuzzing::s2_append`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::fuzzing::s2_append(bytes));
