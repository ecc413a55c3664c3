//! Logs of allocator calls. The body is shared with the property tests in
//! `crates/format/alloc-log/src/tests.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_alloc_log::fuzzing::log(data));
