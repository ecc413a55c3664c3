//! The table of the malloc family as the program calls it.

use heapledger_core::hooks::Functions;

use crate::arenas::{
    heapledger_arena_of, heapledger_enable_deferred_purge, heapledger_purge_all, heapledger_purge_excess,
    heapledger_purge_now, heapledger_set_dirty_modifier, heapledger_thread_local_arena, pointer_info,
    reset_randomisation, statistics, statistics_bins, statistics_light,
};
use crate::calls::{malloc_good_size, malloc_usable_size, own_usable_size};
use crate::entry_points::{calloc, free, malloc, own_calloc, own_free, own_malloc, own_realloc, realloc};
use crate::thunks::{
    aligned_alloc, heapledger_arena_calloc, heapledger_arena_create, heapledger_arena_dispose, heapledger_arena_free,
    heapledger_arena_malloc, heapledger_arena_memalign, heapledger_arena_realloc, memalign, own, posix_memalign,
    pvalloc, valloc,
};

/// The malloc family as the program calls it, with the functions for arenas and purges.
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
    create_arena: Some(heapledger_arena_create),
    dispose_arena: Some(heapledger_arena_dispose),
    arena_malloc: Some(heapledger_arena_malloc),
    arena_calloc: Some(heapledger_arena_calloc),
    arena_realloc: Some(heapledger_arena_realloc),
    arena_free: Some(heapledger_arena_free),
    arena_memalign: Some(heapledger_arena_memalign),
    arena_of: Some(heapledger_arena_of),
    statistics: Some(statistics),
    statistics_bins: Some(statistics_bins),
    statistics_light: Some(statistics_light),
    pointer_info: Some(pointer_info),
    purge_all: Some(heapledger_purge_all),
    purge_excess: Some(heapledger_purge_excess),
    set_dirty_modifier: Some(heapledger_set_dirty_modifier),
    enable_deferred_purge: Some(heapledger_enable_deferred_purge),
    purge_now: Some(heapledger_purge_now),
    thread_local_arena: Some(heapledger_thread_local_arena),
    reset_randomisation: Some(reset_randomisation),
    ..Functions::EMPTY
};

/// The functions for a program whose own `malloc` comes first, and that asks for others: an
/// exported name such as `malloc` leads to the program's own function there.
pub static GIVEN: Functions = Functions {
    malloc: Some(own_malloc),
    calloc: Some(own_calloc),
    realloc: Some(own_realloc),
    free: Some(own_free),
    memalign: Some(own::memalign),
    posix_memalign: Some(own::posix_memalign),
    aligned_alloc: Some(own::aligned_alloc),
    valloc: Some(own::valloc),
    malloc_usable_size: Some(own_usable_size),
    malloc_good_size: Some(malloc_good_size),
    arena_malloc: Some(own::arena_malloc),
    arena_calloc: Some(own::arena_calloc),
    arena_realloc: Some(own::arena_realloc),
    arena_free: Some(own::arena_free),
    arena_memalign: Some(own::arena_memalign),
    ..Functions::EMPTY
};
