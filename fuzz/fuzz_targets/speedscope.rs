//! Speedscope's JSON. The body is shared with the property test in
//! `crates/format/profile-formats/src/fuzzing.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_profile_formats::fuzzing::speedscope(data));
