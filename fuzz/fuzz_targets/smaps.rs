//! The kernel's description of mappings, as `heapledger rss` reads it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_resident::fuzzing::smaps(data));
