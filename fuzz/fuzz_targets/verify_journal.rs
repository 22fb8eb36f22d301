//! See `bench::fuzzing::verify_journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bench::fuzzing::verify_journal(bytes));
