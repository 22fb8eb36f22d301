//! See `express_log::fuzzing::head_log`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| express_log::fuzzing::head_log(bytes));
