//! See `wire::fuzzing::stream_row`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::stream_row(bytes));
