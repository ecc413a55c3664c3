//! The reader of the tables in the file of a cube. The body is shared with the tests in
//! `crates/tool/analysis/src/cube`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_analysis::fuzzing::cube(data));
