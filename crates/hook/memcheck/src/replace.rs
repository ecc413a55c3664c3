//! The replacement of the allocator: makes each block some bytes longer than the program asked for,
//! for the canary.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::hooks::{Functions, Pointer, Replacement};
use heapledger_inprocess::query;
use heapledger_ledger::Key;

use crate::observe::{REGISTER, is_padded};
use crate::{canary, thread};

/// The replacement nearest to the program: those after it may not know the sizes that it asked for.
pub(crate) static REPLACEMENT: Replacement = Replacement {
    name: c"checks".as_ptr(),
    order: -100,
    functions: Functions {
        malloc: Some(malloc),
        calloc: Some(calloc),
        realloc: Some(realloc),
        free: Some(free),
        memalign: Some(memalign),
        malloc_usable_size: Some(usable_size),
        ..Functions::EMPTY
    },
    ..Replacement::new(NEXT.as_ptr().cast())
};

static NEXT: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());

/// Calls a function of the next table.
macro_rules! next {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: the table is set before the first call, stays, and is complete; the arguments are
        // the program's own, but for sizes that are larger.
        unsafe { (*NEXT.load(Ordering::Acquire)).$name.unwrap_unchecked()($($argument),*) }
    };
}

/// Returns a block from the next table, with a canary behind its first `size` bytes. A block that
/// cannot be made longer is returned as it is.
fn padded(size: usize, allocate: impl FnOnce(usize) -> Pointer) -> Pointer {
    let Some(longer) = size.checked_add(canary::LENGTH) else { return allocate(size) };
    let block = allocate(longer);
    if !block.is_null() {
        // SAFETY: the block has `longer` bytes, and nobody else knows of it yet; what a
        // reallocation keeps ends before the canary.
        unsafe { canary::write(block.cast(), size) };
        thread::set_padded(block as usize, size);
    }
    block
}

unsafe extern "C" fn malloc(size: usize) -> Pointer {
    padded(size, |longer| next!(malloc(longer)))
}

unsafe extern "C" fn calloc(count: usize, each: usize) -> Pointer {
    match count.checked_mul(each) {
        Some(size) => padded(size, |longer| next!(calloc(1, longer))),
        None => next!(calloc(count, each)),
    }
}

unsafe extern "C" fn realloc(old: Pointer, size: usize) -> Pointer {
    if size == 0 && !old.is_null() {
        return next!(realloc(old, size));
    }
    padded(size, |longer| next!(realloc(old, longer)))
}

unsafe extern "C" fn memalign(alignment: usize, size: usize) -> Pointer {
    padded(size, |longer| next!(memalign(alignment, longer)))
}

unsafe extern "C" fn free(block: Pointer) {
    if !thread::take_swallowed(block as usize) {
        next!(free(block));
    }
}

/// Returns the bytes that the program may write: those that it asked for, with `pvalloc` in whole
/// pages.
unsafe extern "C" fn usable_size(block: Pointer) -> usize {
    match query(|| REGISTER.get(Key(block as u64))).flatten() {
        Some(known) if is_padded(known.stamp) => known.usable.0 as usize,
        _ => next!(malloc_usable_size(block)),
    }
}
