//! The reader of the symbol cache. The body is shared with the test in
//! `crates/tool/symbols/src/cache.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_symbols::exercise_cache(data));
