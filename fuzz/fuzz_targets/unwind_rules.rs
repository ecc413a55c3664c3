//! Executables, as unwind rules are made from their code, and tables of modules. The body is shared
//! with tests in `crates/tool/unwind-rules/src/fuzzing.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    heapledger_unwind_rules::fuzzing::module(data);
    heapledger_unwind_rules::fuzzing::module(&heapledger_unwind_rules::fuzzing::with_code(data));
});
