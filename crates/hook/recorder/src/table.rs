//! The table of an observer. The recorder has two: one records all blocks, the other a sample.

use heapledger_core::Api;

/// Makes the table of the functions of these names.
macro_rules! observer {
    () => {
        heapledger_core::hooks::Observer {
            name: c"recorder".as_ptr(),
            calloc: Some(calloc),
            aligned: Some(aligned),
            free_sized: Some(free_sized),
            realloc_begins: Some(realloc_begins),
            realloc_ends: Some(realloc_ends),
            reallocarray_ends: Some(reallocarray_ends),
            failed: Some(failed),
            arena_allocated: Some(arena_allocated),
            arena_realloc_ends: Some(arena_realloc_ends),
            arena_reallocarray_ends: Some(arena_reallocarray_ends),
            arena_created: Some(arena_created),
            arena_disposed: Some(arena_disposed),
            purged: Some(purged),
            ..heapledger_core::hooks::Observer::new(malloc, free)
        }
    };
}
pub(crate) use observer;

/// Returns the entry point with this number: all that observers are given are known here.
pub(crate) fn api_from_number(api: u32) -> Option<Api> {
    u8::try_from(api).ok().and_then(Api::from_number)
}
