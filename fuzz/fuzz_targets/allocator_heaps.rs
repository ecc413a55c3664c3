//! The heaps of jemalloc, mimalloc, tcmalloc and musl in the memory of a process, as
//! `heapledger rss` reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| heapledger_resident::fuzzing::allocators(data));
