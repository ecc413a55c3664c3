//! Annotations about arenas and purges. The body is shared with the property test in
//! `crates/tool/analysis/src/allocator_events/tests.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_analysis::fuzzing::annotation(data));
