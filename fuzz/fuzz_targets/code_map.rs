//! Perf maps and jitdump files. The body is shared with the property tests in
//! `crates/format/code-map/src/tests.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_code_map::fuzzing::code_map(data));
