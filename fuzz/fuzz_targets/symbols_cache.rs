//! The reader of the symbol cache. The bodies are shared with the tests in
//! `crates/tool/symbols/src/cache` and `crates/tool/block-types/src/cache`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    heapledger_symbols::exercise_cache(data);
    heapledger_block_types::exercise_cache(data);
});
