//! Executables, as allocators are looked for in them. The body is shared with tests in
//! `crates/tool/entries/src/fuzzing.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_entries::fuzzing::module(data));
