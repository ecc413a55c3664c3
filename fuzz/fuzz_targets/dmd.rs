//! Logs of the dark matter detector. The body is shared with the property test in
//! `crates/format/dmd/src/fuzzing.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_dmd::fuzzing::log(data));
