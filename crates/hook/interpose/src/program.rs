//! The table of the malloc family as the program calls it.

use heapledger_core::hooks::Functions;

use crate::calls::{create_arena, dispose_arena, malloc_good_size, malloc_usable_size};
use crate::entry_points::{calloc, free, malloc, realloc};
use crate::thunks::{
    aligned_alloc, arena_calloc, arena_free, arena_malloc, arena_memalign, arena_realloc, memalign, posix_memalign,
    pvalloc, valloc,
};

/// The malloc family as the program calls it, with the arena functions, which are not exported by
/// name.
pub static PROGRAM: Functions = Functions {
    malloc: Some(malloc),
    calloc: Some(calloc),
    realloc: Some(realloc),
    free: Some(free),
    memalign: Some(memalign),
    posix_memalign: Some(posix_memalign),
    aligned_alloc: Some(aligned_alloc),
    valloc: Some(valloc),
    pvalloc: Some(pvalloc),
    malloc_usable_size: Some(malloc_usable_size),
    malloc_good_size: Some(malloc_good_size),
    create_arena: Some(create_arena),
    dispose_arena: Some(dispose_arena),
    arena_malloc: Some(arena_malloc),
    arena_calloc: Some(arena_calloc),
    arena_realloc: Some(arena_realloc),
    arena_free: Some(arena_free),
    arena_memalign: Some(arena_memalign),
    ..Functions::EMPTY
};
