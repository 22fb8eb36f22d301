//! See `express_log::fuzzing::head_log_files`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| express_log::fuzzing::head_log_files(bytes));
