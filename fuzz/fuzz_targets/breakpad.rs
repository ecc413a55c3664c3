//! The reader of symbol files of Breakpad. The body is shared with the tests in
//! `crates/tool/symbols/src/breakpad`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_symbols::exercise_breakpad(data));
