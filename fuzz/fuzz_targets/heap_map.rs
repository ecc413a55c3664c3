//! The memory of a process, as `heapledger heap-map` reads it. The body is shared with a test in
//! `crates/tool/resident/src/heap/tests.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_resident::fuzzing::heap(data));
