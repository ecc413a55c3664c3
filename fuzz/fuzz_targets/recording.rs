//! The reader of recordings. The body is shared with the property tests in
//! `crates/format/recording/tests/damage.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_recording::fuzzing::exercise(data));
