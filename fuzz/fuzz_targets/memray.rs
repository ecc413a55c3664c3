//! memray's captures, with each call or with sums. The body is shared with the property test in
//! `crates/format/profiles/src/fuzzing.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_profiles::fuzzing::memray(data));
