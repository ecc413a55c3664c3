//! Telling the observers: what whoever stands in the place of the malloc family calls.
//!
//! Each function tells all observers, in their order. All are unsafe for the same reason: `caller` is the calling frame,
//! a live one of this thread, to which the function that was called has yet to return.

use super::list::Slot;
use super::{Caller, Observer, Pointer, registry, serve};
use crate::Api;

/// Defines a function that calls `$told` with each observer. That there is none, or one, is made quick: no more is kept
/// over the call of one than the caller keeps.
macro_rules! tell {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*), by $told:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// See the module.
        #[inline(always)]
        pub unsafe fn $name($($argument: $type),*) {
            #[cold]
            #[inline(never)]
            unsafe fn all(first: &'static Slot<Observer>, $($argument: $type),*) {
                let mut at = Some(first);
                while let Some(slot) = at {
                    // SAFETY: passed on.
                    unsafe { $told(slot.value(), $($argument),*) };
                    at = slot.next();
                }
            }
            let Some(first) = registry::OBSERVERS.first() else { return };
            // SAFETY: passed on.
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
    /// `malloc(size)` returned `block`, which is not null.
    malloc(block: Pointer, size: usize, caller: Caller), by tell_malloc
}

tell! {
    /// `calloc(count, each)` returned `block`, which is not null.
    calloc(block: Pointer, count: usize, each: usize, caller: Caller), by tell_calloc
}

tell! {
    /// A call that aligns returned `block`, which is not null.
    aligned(api: Api, block: Pointer, alignment: usize, size: usize, caller: Caller), by tell_aligned
}

tell! {
    /// `free(block)` is about to happen; not of null.
    free(block: Pointer, caller: Caller), by tell_free
}

tell! {
    /// A free other than `free` is about to happen; not of null.
    free_sized(api: Api, block: Pointer, size: usize, alignment: usize, caller: Caller), by tell_free_sized
}

tell! {
    /// A reallocation of `old`, which is not null, is about to happen.
    realloc_begins(api: Api, old: Pointer, caller: Caller), by tell_realloc_begins
}

tell! {
    /// `realloc(old, size)` has returned `block`; each may be null.
    realloc_ends(old: Pointer, block: Pointer, size: usize, caller: Caller), by tell_realloc_ends
}

tell! {
    /// `reallocarray(old, count, each)` has returned `block`; each may be null. The product does not overflow.
    reallocarray_ends(old: Pointer, block: Pointer, count: usize, each: usize, caller: Caller), by tell_reallocarray_ends
}

tell! {
    /// A call that should have returned a block did not; not a reallocation of a block.
    failed(api: Api, size: usize, alignment: usize, count: usize, caller: Caller), by tell_failed
}

// What one observer is told: with what it gives, or what that derives from. The contract of all is that of `tell`, and
// `Observer` says that its functions may be called with it.

/// # Safety
///
/// See above.
#[inline(always)]
unsafe fn tell_malloc(observer: &Observer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: see above; `Observer::read` refuses a table without `malloc`.
    unsafe { observer.malloc.unwrap_unchecked()(block, size, caller) }
}

/// # Safety
///
/// See above.
#[inline(always)]
unsafe fn tell_free(observer: &Observer, block: Pointer, caller: Caller) {
    // SAFETY: see above; `Observer::read` refuses a table without `free`.
    unsafe { observer.free.unwrap_unchecked()(block, caller) }
}

/// # Safety
///
/// See above.
#[inline(always)]
unsafe fn tell_calloc(observer: &Observer, block: Pointer, count: usize, each: usize, caller: Caller) {
    // SAFETY: see above. The call succeeded, so the product does not overflow.
    unsafe {
        match observer.calloc {
            Some(calloc) => calloc(block, count, each, caller),
            None => tell_malloc(observer, block, count.wrapping_mul(each), caller),
        }
    }
}

/// # Safety
///
/// See above.
#[inline(always)]
unsafe fn tell_aligned(observer: &Observer, api: Api, block: Pointer, alignment: usize, size: usize, caller: Caller) {
    // SAFETY: see above.
    unsafe {
        match observer.aligned {
            Some(aligned) => aligned(api as u32, block, alignment, size, caller),
            None => tell_malloc(observer, block, size, caller),
        }
    }
}

/// # Safety
///
/// See above.
#[inline(always)]
unsafe fn tell_free_sized(
    observer: &Observer,
    api: Api,
    block: Pointer,
    size: usize,
    alignment: usize,
    caller: Caller,
) {
    // SAFETY: see above.
    unsafe {
        match observer.free_sized {
            Some(free_sized) => free_sized(api as u32, block, size, alignment, caller),
            None => tell_free(observer, block, caller),
        }
    }
}

/// # Safety
///
/// See above.
#[inline(always)]
unsafe fn tell_realloc_begins(observer: &Observer, api: Api, old: Pointer, caller: Caller) {
    // SAFETY: see above.
    unsafe {
        match observer.realloc_begins {
            Some(begins) => begins(api as u32, old, caller),
            None => tell_free(observer, old, caller),
        }
    }
}

/// # Safety
///
/// See above.
#[inline(always)]
unsafe fn tell_realloc_ends(observer: &Observer, old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: see above.
    unsafe {
        match observer.realloc_ends {
            Some(ends) => ends(old, block, size, caller),
            None => tell_end(observer, old, block, size, caller),
        }
    }
}

/// # Safety
///
/// See above.
#[inline(always)]
unsafe fn tell_reallocarray_ends(
    observer: &Observer,
    old: Pointer,
    block: Pointer,
    count: usize,
    each: usize,
    caller: Caller,
) {
    // SAFETY: see above.
    unsafe {
        match observer.reallocarray_ends {
            Some(ends) => ends(old, block, count, each, caller),
            None => tell_realloc_ends(observer, old, block, count.wrapping_mul(each), caller),
        }
    }
}

/// The end of a reallocation, to an observer that knows of frees and allocations only.
///
/// # Safety
///
/// See above.
#[cold]
#[inline(never)]
unsafe fn tell_end(observer: &Observer, old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: see above; a reallocation that failed has left the old block as it was.
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
/// See above.
#[inline(always)]
unsafe fn tell_failed(observer: &Observer, api: Api, size: usize, alignment: usize, count: usize, caller: Caller) {
    if let Some(failed) = observer.failed {
        // SAFETY: see above.
        unsafe { failed(api as u32, size, alignment, count, caller) };
    }
}
