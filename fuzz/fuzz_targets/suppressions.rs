//! Files of known leaks. The body is shared with the property test in
//! `crates/tool/analysis/src/suppressions.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_analysis::fuzzing::suppressions(data));
