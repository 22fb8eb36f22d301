//! See `gateway::fuzzing::s2_frames`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway::fuzzing::s2_frames(bytes));
