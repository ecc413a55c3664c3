//! Core files of programs with the heap checker. The body is shared with the property test in
//! `crates/format/phc-report/src/core_file/tests.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_phc_report::fuzzing::core(data));
