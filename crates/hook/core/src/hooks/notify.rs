//! Notifies the observers. Code that takes the place of the malloc family calls these functions.
//!
//! Each function notifies all observers, in their order. All are unsafe for the same reason, and
//! have the same **contract of notification**:
//!
//! - `caller` is the calling frame, which is live, of this thread, and to which the called function
//!   has yet to return.
//! - The call has been made, or is about to be, as it is told. So the block that it returned, that
//!   it is about to free, or that it could not reallocate, is live.
//!
//! This is all that [`Observer`] asks of those who call its functions.

use super::caller::Caller;
use super::installed::OBSERVERS;
use super::list::Slot;
use super::observer::Observer;
use super::{Arena, Pointer, Purge, dispatch};
use crate::Api;

/// Defines a function that calls `$notify_one` for each observer. Fast if there is none or one:
/// nothing more is saved across the call of a single observer than the caller saves.
macro_rules! notify {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*), by $notify_one:ident $(,)?) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// The [contract of notification](self).
        #[inline(always)]
        pub unsafe fn $name($($argument: $type),*) {
            /// # Safety
            ///
            /// The contract of notification.
            #[cold]
            #[inline(never)]
            unsafe fn all(first: &'static Slot<Observer>, $($argument: $type),*) {
                let mut at = Some(first);
                while let Some(slot) = at {
                    // SAFETY: `$notify_one` asks for the contract of notification, and so does
                    // `all`.
                    unsafe { $notify_one(slot.value(), $($argument),*) };
                    at = slot.next();
                }
            }
            let Some(first) = OBSERVERS.first() else { return };
            // SAFETY: `$notify_one` and `all` ask for the contract of notification, and so does
            // this function.
            unsafe {
                match first.next() {
                    None => $notify_one(first.value(), $($argument),*),
                    Some(_) => all(first, $($argument),*),
                }
            }
        }
    };
}

notify! {
    /// Notifies that `malloc(size)` returned `block`, which is not null.
    malloc(block: Pointer, size: usize, caller: Caller), by notify_malloc
}

notify! {
    /// Notifies that `calloc(count, each)` returned `block`, which is not null.
    calloc(block: Pointer, count: usize, each: usize, caller: Caller), by notify_calloc
}

notify! {
    /// Notifies that an aligned allocation returned `block`, which is not null.
    aligned(api: Api, block: Pointer, alignment: usize, size: usize, caller: Caller), by notify_aligned
}

notify! {
    /// Notifies that `free(block)` is about to happen; `block` is not null.
    free(block: Pointer, caller: Caller), by notify_free
}

notify! {
    /// Notifies that a free other than `free` is about to happen; `block` is not null.
    free_sized(api: Api, block: Pointer, size: usize, alignment: usize, caller: Caller), by notify_free_sized
}

notify! {
    /// Notifies that a reallocation of `old`, which is not null, is about to happen.
    realloc_begins(api: Api, old: Pointer, caller: Caller), by notify_realloc_begins
}

notify! {
    /// Notifies that `realloc(old, size)` has returned `block`; each may be null.
    realloc_ends(old: Pointer, block: Pointer, size: usize, caller: Caller), by notify_realloc_ends
}

notify! {
    /// Notifies that `reallocarray(old, count, each)` has returned `block`; each may be null. The
    /// product does not overflow.
    reallocarray_ends(old: Pointer, block: Pointer, count: usize, each: usize, caller: Caller), by notify_reallocarray_ends
}

notify! {
    /// Notifies that a call failed to return a block; not for the reallocation of a block.
    failed(api: Api, size: usize, alignment: usize, count: usize, caller: Caller), by notify_failed
}

notify! {
    /// Notifies that a function for arenas returned `block`, which is not null and in `arena`.
    arena_allocated(arena: &Arena, call: ArenaCall, block: Pointer, caller: Caller), by notify_arena_allocated
}

notify! {
    /// Notifies that a reallocation of a block in `arena` has returned `block`; each may be null.
    arena_realloc_ends(arena: &Arena, old: Pointer, block: Pointer, size: usize, caller: Caller),
    by notify_arena_realloc_ends
}

notify! {
    /// Notifies that a `reallocarray` of a block in `arena` has returned `block`; each may be null.
    /// The product does not overflow.
    arena_reallocarray_ends(arena: &Arena, old: Pointer, block: Pointer, count: usize, each: usize, caller: Caller),
    by notify_arena_reallocarray_ends
}

notify! {
    /// Notifies that an arena has been created.
    arena_created(arena: &Arena, caller: Caller), by notify_arena_created
}

notify! {
    /// Notifies that an arena is about to be disposed of.
    arena_disposed(arena: &Arena, caller: Caller), by notify_arena_disposed
}

notify! {
    /// Notifies of a purge, which is complete until this returns.
    purged(purge: &Purge), by notify_purged
}

/// A call of a function for arenas: the plain function, and its arguments, 0 for those that it does
/// not have.
#[derive(Clone, Copy, Debug)]
pub struct ArenaCall {
    /// The plain function.
    pub api: Api,
    /// Requested bytes.
    pub size: usize,
    /// The alignment.
    pub alignment: usize,
    /// The number of elements.
    pub count: usize,
}

// The functions that notify one observer: by the function of its table, or by one that is derived
// from others. All have the contract of notification, under which `Observer` allows its functions
// to be called.

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_malloc(observer: &Observer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `Observer::read` refuses a table without `malloc`. The observer's function may be
    // called under the contract of notification, which this function asks for.
    unsafe { observer.malloc.unwrap_unchecked()(block, size, caller) }
}

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_free(observer: &Observer, block: Pointer, caller: Caller) {
    // SAFETY: `Observer::read` refuses a table without `free`. The observer's function may be
    // called under the contract of notification, which this function asks for.
    unsafe { observer.free.unwrap_unchecked()(block, caller) }
}

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_calloc(observer: &Observer, block: Pointer, count: usize, each: usize, caller: Caller) {
    // SAFETY: the observer's function and `notify_malloc` ask for the contract of notification, and
    // so does this function. The call succeeded, so the product does not overflow.
    unsafe {
        match observer.calloc {
            Some(calloc) => calloc(block, count, each, caller),
            None => notify_malloc(observer, block, count.wrapping_mul(each), caller),
        }
    }
}

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_aligned(observer: &Observer, api: Api, block: Pointer, alignment: usize, size: usize, caller: Caller) {
    // SAFETY: the observer's function and `notify_malloc` ask for the contract of notification, and
    // so does this function: `block` was returned, and is live.
    unsafe {
        match observer.aligned {
            Some(aligned) => aligned(api as u32, block, alignment, size, caller),
            None => notify_malloc(observer, block, size, caller),
        }
    }
}

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_free_sized(
    observer: &Observer,
    api: Api,
    block: Pointer,
    size: usize,
    alignment: usize,
    caller: Caller,
) {
    // SAFETY: the observer's function and `notify_free` ask for the contract of notification, and
    // so does this function: `block` is about to be freed, and is live.
    unsafe {
        match observer.free_sized {
            Some(free_sized) => free_sized(api as u32, block, size, alignment, caller),
            None => notify_free(observer, block, caller),
        }
    }
}

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_realloc_begins(observer: &Observer, api: Api, old: Pointer, caller: Caller) {
    // SAFETY: the observer's function and `notify_free` ask for the contract of notification, and
    // so does this function: `old` has not been reallocated yet, and is live.
    unsafe {
        match observer.realloc_begins {
            Some(begins) => begins(api as u32, old, caller),
            None => notify_free(observer, old, caller),
        }
    }
}

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_realloc_ends(observer: &Observer, old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: the observer's function and `notify_end` ask for the contract of notification, and so
    // does this function.
    unsafe {
        match observer.realloc_ends {
            Some(ends) => ends(old, block, size, caller),
            None => notify_end(observer, old, block, size, caller),
        }
    }
}

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_reallocarray_ends(
    observer: &Observer,
    old: Pointer,
    block: Pointer,
    count: usize,
    each: usize,
    caller: Caller,
) {
    // SAFETY: the observer's function and `notify_realloc_ends` ask for the contract of
    // notification, and so does this function. The product did not overflow.
    unsafe {
        match observer.reallocarray_ends {
            Some(ends) => ends(old, block, count, each, caller),
            None => notify_realloc_ends(observer, old, block, count.wrapping_mul(each), caller),
        }
    }
}

/// Notifies an observer that has only `malloc` and `free` of the end of a reallocation.
///
/// # Safety
///
/// The [contract of notification](self).
#[cold]
#[inline(never)]
unsafe fn notify_end(observer: &Observer, old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `notify_malloc` and `notify_failed` ask for the contract of notification, and so does
    // this function. `usable_size` asks for a live block of the malloc family. A reallocation that
    // failed has left `old` live. It is of the malloc family if the call was; whoever notifies
    // through `Hooks::tell` may have another allocator, which nothing excludes here.
    unsafe {
        if !block.is_null() {
            notify_malloc(observer, block, size, caller);
        } else if old.is_null() {
            notify_failed(observer, Api::Realloc, size, 0, 0, caller);
        } else if size != 0 {
            notify_malloc(observer, old, dispatch::usable_size(old), caller);
        }
    }
}

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_failed(observer: &Observer, api: Api, size: usize, alignment: usize, count: usize, caller: Caller) {
    if let Some(failed) = observer.failed {
        // SAFETY: the observer's function may be called under the contract of notification, which
        // this function asks for.
        unsafe { failed(api as u32, size, alignment, count, caller) };
    }
}

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_arena_allocated(observer: &Observer, arena: &Arena, call: ArenaCall, block: Pointer, caller: Caller) {
    let ArenaCall { api, size, alignment, count } = call;
    // SAFETY: the observer's function, `notify_calloc`, `notify_aligned` and `notify_malloc` ask
    // for the contract of notification, and so does this function.
    unsafe {
        match (observer.arena_allocated, api) {
            (Some(allocated), _) => allocated(arena, api as u32, block, size, alignment, count, caller),
            (None, Api::Calloc) => {
                notify_calloc(observer, block, count, size.checked_div(count).unwrap_or(0), caller);
            }
            (None, Api::Malloc | Api::Realloc) => notify_malloc(observer, block, size, caller),
            (None, api) => notify_aligned(observer, api, block, alignment, size, caller),
        }
    }
}

/// # Safety
///
/// The [contract of notification](self).
#[inline(always)]
unsafe fn notify_arena_realloc_ends(
    observer: &Observer,
    arena: &Arena,
    old: Pointer,
    block: Pointer,
    size: usize,
    caller: Caller,
) {
    // SAFETY: the observer's function and `notify_realloc_ends` ask for the contract of
    // notification, and so does this function.
    unsafe {
        match observer.arena_realloc_ends {
            Some(ends) => ends(arena, old, block, size, caller),
            None => notify_realloc_ends(observer, old, block, size, caller),
        }
    }
}

/// # Safety
///
/// The [contract of notification](self).
unsafe fn notify_arena_reallocarray_ends(
    observer: &Observer,
    arena: &Arena,
    old: Pointer,
    block: Pointer,
    count: usize,
    each: usize,
    caller: Caller,
) {
    // SAFETY: the observer's functions and `notify_reallocarray_ends` ask for the contract of
    // notification, and so does this function. The product did not overflow.
    unsafe {
        match (observer.arena_reallocarray_ends, observer.arena_realloc_ends) {
            (Some(ends), _) => ends(arena, old, block, count, each, caller),
            (None, Some(ends)) => ends(arena, old, block, count.wrapping_mul(each), caller),
            (None, None) => notify_reallocarray_ends(observer, old, block, count, each, caller),
        }
    }
}

/// # Safety
///
/// The [contract of notification](self).
unsafe fn notify_arena_created(observer: &Observer, arena: &Arena, caller: Caller) {
    if let Some(created) = observer.arena_created {
        // SAFETY: the observer's function may be called under the contract of notification, which
        // this function asks for.
        unsafe { created(arena, caller) };
    }
}

/// # Safety
///
/// The [contract of notification](self).
unsafe fn notify_arena_disposed(observer: &Observer, arena: &Arena, caller: Caller) {
    if let Some(disposed) = observer.arena_disposed {
        // SAFETY: the observer's function may be called under the contract of notification, which
        // this function asks for.
        unsafe { disposed(arena, caller) };
    }
}

/// # Safety
///
/// The [contract of notification](self).
unsafe fn notify_purged(observer: &Observer, purge: &Purge) {
    if let Some(purged) = observer.purged {
        // SAFETY: the observer's function may be called under the contract of notification, which
        // this function asks for; `purge` lives until it returns.
        unsafe { purged(purge) };
    }
}
