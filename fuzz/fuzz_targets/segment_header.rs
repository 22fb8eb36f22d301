//! See `wire::fuzzing::segment_header`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::segment_header(bytes));
