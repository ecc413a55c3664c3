//! Recordings of logs of allocator calls, and logs of these. The body is shared with the property
//! tests in `crates/tool/analysis/src/log_lines/tests.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_analysis::fuzzing::log(data));
