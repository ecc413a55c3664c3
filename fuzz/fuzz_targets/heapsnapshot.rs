//! Heap snapshots of V8. The body is shared with the property tests in
//! `crates/format/census/src/heapsnapshot/tests.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_census::fuzzing::heapsnapshot(data));
