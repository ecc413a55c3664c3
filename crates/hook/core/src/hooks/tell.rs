//! Notifies the observers. Code that takes the place of the malloc family calls these functions.
//!
//! Each function notifies all observers, in their order. All are unsafe for the same reason, and
//! have the same **contract of telling**:
//!
//! - `caller` is the calling frame, which is live, of this thread, and to which the called function
//!   has yet to return.
//! - The call has been made, or is about to be, as it is told. So the block that it returned, that
//!   it is about to free, or that it could not reallocate, is live.
//!
//! This is all that [`Observer`] asks of those who call its functions.

use super::list::Slot;
use super::{Caller, Observer, Pointer, registry, serve};
use crate::Api;

/// Defines a function that calls `$told` for each observer. Fast if there is none or one: nothing
/// more is saved across the call of a single observer than the caller saves.
macro_rules! tell {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*), by $told:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// The [contract of telling](self).
        #[inline(always)]
        pub unsafe fn $name($($argument: $type),*) {
            /// # Safety
            ///
            /// The contract of telling.
            #[cold]
            #[inline(never)]
            unsafe fn all(first: &'static Slot<Observer>, $($argument: $type),*) {
                let mut at = Some(first);
                while let Some(slot) = at {
                    // SAFETY: `$told` asks for the contract of telling, and so does `all`.
                    unsafe { $told(slot.value(), $($argument),*) };
                    at = slot.next();
                }
            }
            let Some(first) = registry::OBSERVERS.first() else { return };
            // SAFETY: `$told` and `all` ask for the contract of telling, and so does this function.
            unsafe {
                match first.next() {
                    None => $told(first.value(), $($argument),*),
                    Some(_) => all(first, $($argument),*),
                }
            }
        }
    };
}

tell! {
    /// Notifies that `malloc(size)` returned `block`, which is not null.
    malloc(block: Pointer, size: usize, caller: Caller), by tell_malloc
}

tell! {
    /// Notifies that `calloc(count, each)` returned `block`, which is not null.
    calloc(block: Pointer, count: usize, each: usize, caller: Caller), by tell_calloc
}

tell! {
    /// Notifies that an aligned allocation returned `block`, which is not null.
    aligned(api: Api, block: Pointer, alignment: usize, size: usize, caller: Caller), by tell_aligned
}

tell! {
    /// Notifies that `free(block)` is about to happen; `block` is not null.
    free(block: Pointer, caller: Caller), by tell_free
}

tell! {
    /// Notifies that a free other than `free` is about to happen; `block` is not null.
    free_sized(api: Api, block: Pointer, size: usize, alignment: usize, caller: Caller), by tell_free_sized
}

tell! {
    /// Notifies that a reallocation of `old`, which is not null, is about to happen.
    realloc_begins(api: Api, old: Pointer, caller: Caller), by tell_realloc_begins
}

tell! {
    /// Notifies that `realloc(old, size)` has returned `block`; each may be null.
    realloc_ends(old: Pointer, block: Pointer, size: usize, caller: Caller), by tell_realloc_ends
}

tell! {
    /// Notifies that `reallocarray(old, count, each)` has returned `block`; each may be null. The
    /// product does not overflow.
    reallocarray_ends(old: Pointer, block: Pointer, count: usize, each: usize, caller: Caller), by tell_reallocarray_ends
}

tell! {
    /// Notifies that a call failed to return a block; not for the reallocation of a block.
    failed(api: Api, size: usize, alignment: usize, count: usize, caller: Caller), by tell_failed
}

// The functions that notify one observer: by the function of its table, or by one that is derived
// from others. All have the contract of telling, under which `Observer` allows its functions to be
// called.

/// # Safety
///
/// The [contract of telling](self).
#[inline(always)]
unsafe fn tell_malloc(observer: &Observer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `Observer::read` refuses a table without `malloc`. The observer's function may be
    // called under the contract of telling, which this function asks for.
    unsafe { observer.malloc.unwrap_unchecked()(block, size, caller) }
}

/// # Safety
///
/// The [contract of telling](self).
#[inline(always)]
unsafe fn tell_free(observer: &Observer, block: Pointer, caller: Caller) {
    // SAFETY: `Observer::read` refuses a table without `free`. The observer's function may be
    // called under the contract of telling, which this function asks for.
    unsafe { observer.free.unwrap_unchecked()(block, caller) }
}

/// # Safety
///
/// The [contract of telling](self).
#[inline(always)]
unsafe fn tell_calloc(observer: &Observer, block: Pointer, count: usize, each: usize, caller: Caller) {
    // SAFETY: the observer's function and `tell_malloc` ask for the contract of telling, and so
    // does this function. The call succeeded, so the product does not overflow.
    unsafe {
        match observer.calloc {
            Some(calloc) => calloc(block, count, each, caller),
            None => tell_malloc(observer, block, count.wrapping_mul(each), caller),
        }
    }
}

/// # Safety
///
/// The [contract of telling](self).
#[inline(always)]
unsafe fn tell_aligned(observer: &Observer, api: Api, block: Pointer, alignment: usize, size: usize, caller: Caller) {
    // SAFETY: the observer's function and `tell_malloc` ask for the contract of telling, and so
    // does this function: `block` was returned, and is live.
    unsafe {
        match observer.aligned {
            Some(aligned) => aligned(api as u32, block, alignment, size, caller),
            None => tell_malloc(observer, block, size, caller),
        }
    }
}

/// # Safety
///
/// The [contract of telling](self).
#[inline(always)]
unsafe fn tell_free_sized(
    observer: &Observer,
    api: Api,
    block: Pointer,
    size: usize,
    alignment: usize,
    caller: Caller,
) {
    // SAFETY: the observer's function and `tell_free` ask for the contract of telling, and so does
    // this function: `block` is about to be freed, and is live.
    unsafe {
        match observer.free_sized {
            Some(free_sized) => free_sized(api as u32, block, size, alignment, caller),
            None => tell_free(observer, block, caller),
        }
    }
}

/// # Safety
///
/// The [contract of telling](self).
#[inline(always)]
unsafe fn tell_realloc_begins(observer: &Observer, api: Api, old: Pointer, caller: Caller) {
    // SAFETY: the observer's function and `tell_free` ask for the contract of telling, and so does
    // this function: `old` has not been reallocated yet, and is live.
    unsafe {
        match observer.realloc_begins {
            Some(begins) => begins(api as u32, old, caller),
            None => tell_free(observer, old, caller),
        }
    }
}

/// # Safety
///
/// The [contract of telling](self).
#[inline(always)]
unsafe fn tell_realloc_ends(observer: &Observer, old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: the observer's function and `tell_end` ask for the contract of telling, and so does
    // this function.
    unsafe {
        match observer.realloc_ends {
            Some(ends) => ends(old, block, size, caller),
            None => tell_end(observer, old, block, size, caller),
        }
    }
}

/// # Safety
///
/// The [contract of telling](self).
#[inline(always)]
unsafe fn tell_reallocarray_ends(
    observer: &Observer,
    old: Pointer,
    block: Pointer,
    count: usize,
    each: usize,
    caller: Caller,
) {
    // SAFETY: the observer's function and `tell_realloc_ends` ask for the contract of telling, and
    // so does this function. The product did not overflow.
    unsafe {
        match observer.reallocarray_ends {
            Some(ends) => ends(old, block, count, each, caller),
            None => tell_realloc_ends(observer, old, block, count.wrapping_mul(each), caller),
        }
    }
}

/// Notifies an observer that has only `malloc` and `free` of the end of a reallocation.
///
/// # Safety
///
/// The [contract of telling](self).
#[cold]
#[inline(never)]
unsafe fn tell_end(observer: &Observer, old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: `tell_malloc` and `tell_failed` ask for the contract of telling, and so does this
    // function. `usable_size` asks for a live block of the malloc family. A reallocation that
    // failed has left `old` live. It is of the malloc family if the call was; whoever tells through
    // `Hooks::tell` may have another allocator, which nothing excludes here.
    unsafe {
        if !block.is_null() {
            tell_malloc(observer, block, size, caller);
        } else if old.is_null() {
            tell_failed(observer, Api::Realloc, size, 0, 0, caller);
        } else if size != 0 {
            tell_malloc(observer, old, serve::usable_size(old), caller);
        }
    }
}

/// # Safety
///
/// The [contract of telling](self).
#[inline(always)]
unsafe fn tell_failed(observer: &Observer, api: Api, size: usize, alignment: usize, count: usize, caller: Caller) {
    if let Some(failed) = observer.failed {
        // SAFETY: the observer's function may be called under the contract of telling, which this
        // function asks for.
        unsafe { failed(api as u32, size, alignment, count, caller) };
    }
}
