//! Telling the observers: what whoever stands in the place of the malloc family calls.
//!
//! Each function tells all observers, in their order. All are unsafe for the same reason: `caller` is the calling frame,
//! a live one of this thread, to which the function that was called has yet to return.

use super::{Caller, Observer, Pointer, registry, serve};
use crate::Api;

/// Calls something with each observer. Most often there is none, or one.
#[inline(always)]
fn each(tell: impl Fn(&Observer)) {
    let mut at = registry::OBSERVERS.first();
    while let Some(slot) = at {
        tell(slot.value());
        at = slot.next();
    }
}

/// A function that every observer has.
///
/// # Safety
///
/// It is `malloc` or `free` of an observer that is installed: `Observer::read` refuses a table without them.
#[inline(always)]
unsafe fn given<Function>(function: Option<Function>) -> Function {
    // SAFETY: the caller's contract.
    unsafe { function.unwrap_unchecked() }
}

/// `malloc(size)` returned `block`, which is not null.
///
/// # Safety
///
/// See the module.
#[inline(always)]
pub unsafe fn malloc(block: Pointer, size: usize, caller: Caller) {
    // SAFETY: by the contract of `Observer`, whose functions may be called with what our caller vouches for; here and below.
    each(|observer| unsafe { given(observer.malloc)(block, size, caller) });
}

/// `free(block)` is about to happen; not of null.
///
/// # Safety
///
/// See the module.
#[inline(always)]
pub unsafe fn free(block: Pointer, caller: Caller) {
    // SAFETY: as in `malloc`.
    each(|observer| unsafe { given(observer.free)(block, caller) });
}

/// `calloc(count, each)` returned `block`, which is not null.
///
/// # Safety
///
/// See the module.
#[inline(always)]
pub unsafe fn calloc(block: Pointer, count: usize, size: usize, caller: Caller) {
    // SAFETY: as in `malloc`. The call succeeded, so the product does not overflow.
    each(|observer| unsafe {
        match observer.calloc {
            Some(calloc) => calloc(block, count, size, caller),
            None => given(observer.malloc)(block, count.wrapping_mul(size), caller),
        }
    });
}

/// A call that aligns returned `block`, which is not null.
///
/// # Safety
///
/// See the module.
#[inline(always)]
pub unsafe fn aligned(api: Api, block: Pointer, alignment: usize, size: usize, caller: Caller) {
    // SAFETY: as in `malloc`.
    each(|observer| unsafe {
        match observer.aligned {
            Some(aligned) => aligned(api as u32, block, alignment, size, caller),
            None => given(observer.malloc)(block, size, caller),
        }
    });
}

/// A free other than `free` is about to happen; not of null.
///
/// # Safety
///
/// See the module.
#[inline(always)]
pub unsafe fn free_sized(api: Api, block: Pointer, size: usize, alignment: usize, caller: Caller) {
    // SAFETY: as in `malloc`.
    each(|observer| unsafe {
        match observer.free_sized {
            Some(free_sized) => free_sized(api as u32, block, size, alignment, caller),
            None => given(observer.free)(block, caller),
        }
    });
}

/// A reallocation of `old`, which is not null, is about to happen.
///
/// # Safety
///
/// See the module.
#[inline(always)]
pub unsafe fn realloc_begins(api: Api, old: Pointer, caller: Caller) {
    // SAFETY: as in `malloc`.
    each(|observer| unsafe {
        match observer.realloc_begins {
            Some(begins) => begins(api as u32, old, caller),
            None => given(observer.free)(old, caller),
        }
    });
}

/// `realloc(old, size)` has returned `block`; each may be null.
///
/// # Safety
///
/// See the module.
#[inline(always)]
pub unsafe fn realloc_ends(old: Pointer, block: Pointer, size: usize, caller: Caller) {
    // SAFETY: as in `malloc`.
    each(|observer| unsafe {
        match observer.realloc_ends {
            Some(ends) => ends(old, block, size, caller),
            None => end_derived(observer, Api::Realloc, old, block, size, 0, caller),
        }
    });
}

/// `reallocarray(old, count, each)` has returned `block`; each may be null.
///
/// # Safety
///
/// See the module.
#[inline(always)]
pub unsafe fn reallocarray_ends(old: Pointer, block: Pointer, count: usize, size: usize, caller: Caller) {
    let product = count.saturating_mul(size);
    // SAFETY: as in `malloc`.
    each(|observer| unsafe {
        match (observer.reallocarray_ends, observer.realloc_ends) {
            (Some(ends), _) => ends(old, block, count, size, caller),
            (None, Some(ends)) => ends(old, block, product, caller),
            (None, None) => end_derived(observer, Api::Reallocarray, old, block, product, count, caller),
        }
    });
}

/// What an observer is told at the end of a reallocation that knows frees and allocations only.
///
/// # Safety
///
/// See the module.
#[cold]
unsafe fn end_derived(
    observer: &Observer,
    api: Api,
    old: Pointer,
    block: Pointer,
    size: usize,
    count: usize,
    caller: Caller,
) {
    // SAFETY: as in `malloc`; a reallocation that failed has left the old block as it was.
    unsafe {
        if !block.is_null() {
            given(observer.malloc)(block, size, caller);
        } else if old.is_null() {
            if let Some(failed) = observer.failed {
                failed(api as u32, size, 0, count, caller);
            }
        } else if size != 0 {
            given(observer.malloc)(old, serve::usable_size(old), caller);
        }
    }
}

/// A call that should have returned a block did not; not a reallocation of a block.
///
/// # Safety
///
/// See the module.
#[cold]
#[inline(never)]
pub unsafe fn failed(api: Api, size: usize, alignment: usize, count: usize, caller: Caller) {
    // SAFETY: as in `malloc`.
    each(|observer| unsafe {
        if let Some(failed) = observer.failed {
            failed(api as u32, size, alignment, count, caller);
        }
    });
}
