//! A heap of glibc's malloc in the memory of a process, as `heapledger rss` reads it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_resident::fuzzing::glibc(data));
