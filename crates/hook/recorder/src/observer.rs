//! The recorder as an observer: its entry in the hook table.

use heapledger_core::Api;
use heapledger_core::hooks::{Arena, Caller, Observer, Pointer};
use heapledger_wire::event::ReallocOutcome;

use crate::hook::arenas::{arena_created, arena_disposed, purged};
use crate::hook::{self, arenas, with_usable};
use crate::table::{api_from_number, observer};

/// The recorder. To be installed once [`process::start`](crate::process::start) has been called.
pub static OBSERVER: Observer = observer!();

/// The recorder of a session that records usable sizes, to be installed instead of [`OBSERVER`].
pub static OBSERVER_WITH_USABLE: Observer = Observer {
    malloc: Some(malloc_with_usable),
    calloc: Some(calloc_with_usable),
    realloc_ends: Some(realloc_ends_with_usable),
    ..observer!()
};

// These are called under the contract of `Observer`. It gives *live caller* (`hook::malloc`): the
// call is in this thread, and the caller's frame is live until they return.

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn malloc(block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `hook::malloc` requires *live caller*, which the contract of `Observer` gives: the
    // caller's frame is live until we return.
    unsafe { hook::malloc(block as u64, size as u64, caller) };
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn calloc(block: Pointer, count: usize, each: usize, caller: Caller) {
    // SAFETY: `hook::calloc` requires *live caller*, which the contract of `Observer` gives: the
    // caller's frame is live until we return.
    unsafe { hook::calloc(block as u64, count as u64, each as u64, caller) };
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn malloc_with_usable(block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `with_usable::malloc` requires *live caller* and a *live block*. The contract of
    // `Observer` gives both: the caller's frame is live until we return, and so is the block, which
    // the program has not got yet.
    unsafe { with_usable::malloc(block as u64, size as u64, caller) };
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn calloc_with_usable(block: Pointer, count: usize, each: usize, caller: Caller) {
    // SAFETY: `with_usable::calloc` requires *live caller* and a *live block*. The contract of
    // `Observer` gives both: the caller's frame is live until we return, and so is the block, which
    // the program has not got yet.
    unsafe { with_usable::calloc(block as u64, count as u64, each as u64, caller) };
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn realloc_ends_with_usable(old: Pointer, block: Pointer, size: usize, caller: Caller) {
    let (address, size) = (block as u64, size as u64);
    // SAFETY: `with_usable::reallocation_ends`, `failure` and `allocation` require *live caller*,
    // and a *live block* if there is one. The contract of `Observer` gives both: the caller's frame
    // is live until we return, and so is the block, which the program has not got yet.
    unsafe {
        match (old.is_null(), block.is_null()) {
            (false, _) => with_usable::reallocation_ends(outcome(block, size), address, size, caller),
            (true, true) => hook::failure(Api::Realloc, size, 0, 0, caller),
            (true, false) => hook::allocation(Api::Realloc, address, size, 0, 0, caller, None),
        }
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn aligned(api: u32, block: Pointer, alignment: usize, size: usize, caller: Caller) {
    if let Some(api) = api_from_number(api) {
        // SAFETY: `hook::allocation` requires *live caller*, which the contract of `Observer`
        // gives: the caller's frame is live until we return.
        unsafe { hook::allocation(api, block as u64, size as u64, alignment as u64, 0, caller, None) };
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn free(block: Pointer, caller: Caller) {
    hook::free(block as u64, caller.sp());
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn free_sized(api: u32, block: Pointer, size: usize, alignment: usize, caller: Caller) {
    if let Some(api) = api_from_number(api) {
        hook::free_with(api, block as u64, size as u64, alignment as u64, caller.sp());
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn realloc_begins(api: u32, old: Pointer, caller: Caller) {
    if let Some(api) = api_from_number(api) {
        hook::reallocation_begins(api, old as u64, caller.sp());
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn realloc_ends(old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `end` requires *live caller*, which the contract of `Observer` gives: the caller's
    // frame is live until we return.
    unsafe { end(Api::Realloc, old, block, size, 0, caller) };
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn reallocarray_ends(old: Pointer, block: Pointer, count: usize, each: usize, caller: Caller) {
    // SAFETY: `end` requires *live caller*, which the contract of `Observer` gives: the caller's
    // frame is live until we return.
    unsafe { end(Api::Reallocarray, old, block, count.saturating_mul(each), count, caller) };
}

/// Returns the outcome of the reallocation of a block.
#[inline(always)]
fn outcome(block: Pointer, size: u64) -> ReallocOutcome {
    match (block.is_null(), size) {
        (false, _) => ReallocOutcome::Returned,
        // glibc frees; so do jemalloc and tcmalloc if they return null here.
        (true, 0) => ReallocOutcome::Freed,
        (true, _) => ReallocOutcome::Failed,
    }
}

/// # Safety
///
/// See [`hook::malloc`].
#[inline(always)]
unsafe fn end(api: Api, old: Pointer, block: Pointer, size: usize, count: usize, caller: Caller) {
    let (address, size, count) = (block as u64, size as u64, count as u64);
    // SAFETY: `reallocation_ends`, `failure` and `allocation` of `hook` require *live caller*; this
    // function's `# Safety` requires the same of `caller`.
    unsafe {
        if !old.is_null() {
            hook::reallocation_ends(api, outcome(block, size), address, size, count, caller);
        } else if block.is_null() {
            hook::failure(api, size, 0, count, caller);
        } else {
            hook::allocation(api, address, size, 0, count, caller, None);
        }
    }
}

/// # Safety
///
/// The contract of [`Observer`].
#[cold]
unsafe extern "C" fn failed(api: u32, size: usize, alignment: usize, count: usize, caller: Caller) {
    if let Some(api) = api_from_number(api) {
        // SAFETY: `hook::failure` requires *live caller*, which the contract of `Observer` gives:
        // the caller's frame is live until we return.
        unsafe { hook::failure(api, size as u64, alignment as u64, count as u64, caller) };
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn arena_allocated(
    arena: *const Arena,
    api: u32,
    block: Pointer,
    size: usize,
    alignment: usize,
    count: usize,
    caller: Caller,
) {
    if let Some(api) = api_from_number(api) {
        let (size, alignment, count) = (size as u64, alignment as u64, count as u64);
        // SAFETY: `heap` requires an arena that observers are told of, which the contract of
        // `Observer` gives. `hook::allocation` requires *live caller*, which it gives too.
        unsafe { hook::allocation(api, block as u64, size, alignment, count, caller, arenas::heap(arena)) };
    }
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn arena_realloc_ends(
    arena: *const Arena,
    old: Pointer,
    block: Pointer,
    size: usize,
    caller: Caller,
) {
    // SAFETY: `arena_end` requires *live caller* and an arena that observers are told of: the
    // contract of `Observer` gives both.
    unsafe { arena_end(arena, Api::Realloc, old, block, [size, 0], caller) };
}

/// # Safety
///
/// The contract of [`Observer`].
unsafe extern "C" fn arena_reallocarray_ends(
    arena: *const Arena,
    old: Pointer,
    block: Pointer,
    count: usize,
    each: usize,
    caller: Caller,
) {
    // SAFETY: `arena_end` requires *live caller* and an arena that observers are told of: the
    // contract of `Observer` gives both.
    unsafe { arena_end(arena, Api::Reallocarray, old, block, [count.saturating_mul(each), count], caller) };
}

/// Records the end of a reallocation in an arena: the size in bytes, and the number of elements.
///
/// # Safety
///
/// See [`hook::malloc`]. `arena` is one that observers are told of.
unsafe fn arena_end(
    arena: *const Arena,
    api: Api,
    old: Pointer,
    block: Pointer,
    [size, count]: [usize; 2],
    caller: Caller,
) {
    let (address, size, count) = (block as u64, size as u64, count as u64);
    let outcome = outcome(block, size);
    // SAFETY: `heap` requires an arena that observers are told of, and the functions of `hook`
    // *live caller*: this function's `# Safety` requires both.
    unsafe {
        match (old.is_null(), block.is_null()) {
            (false, _) => {
                hook::arena_reallocation_ends(api, outcome, address, size, count, caller, arenas::heap(arena))
            }
            (true, true) => hook::failure(api, size, 0, count, caller),
            (true, false) => hook::allocation(api, address, size, 0, count, caller, arenas::heap(arena)),
        }
    }
}
