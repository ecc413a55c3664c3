//! Heap snapshots of Firefox, unpacked. The body is shared with the property test in
//! `crates/format/census/src/fxsnapshot/tests.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_census::fuzzing::fxsnapshot(data));
