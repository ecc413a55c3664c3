//! Files of memory reports. The body is shared with the property test in
//! `crates/format/report-format/src/fuzzing.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_report_format::fuzzing::reports(data));
