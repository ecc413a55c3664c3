//! What takes the allocator's place: each block is some bytes longer than the program has asked for, for the canary.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::hooks::{Functions, Pointer, Replacement};
use heapledger_ledger::Key;
use heapledger_resident::query;

use crate::observe::{REGISTER, is_padded};
use crate::{canary, thread};

/// Nearest to the program: others below may not know the sizes that it asked for.
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
    ..Replacement::new(BELOW.as_ptr().cast())
};

static BELOW: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());

/// Calls the table below.
macro_rules! below {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: the table is set before the first call, stays, and is complete; the arguments are the program's own,
        // but for sizes that are larger.
        unsafe { (*BELOW.load(Ordering::Acquire)).$name.unwrap_unchecked()($($argument),*) }
    };
}

/// A block of so many bytes from below, with a canary behind `size` of them. What cannot be made longer stays as it is.
fn padded(size: usize, allocate: impl FnOnce(usize) -> Pointer) -> Pointer {
    let Some(longer) = size.checked_add(canary::LENGTH) else { return allocate(size) };
    let block = allocate(longer);
    if !block.is_null() {
        // SAFETY: it has so many bytes, and nobody else knows of it yet; what a reallocation keeps ends before.
        unsafe { canary::write(block.cast(), size) };
        thread::set_padded(block as usize, size);
    }
    block
}

unsafe extern "C" fn malloc(size: usize) -> Pointer {
    padded(size, |longer| below!(malloc(longer)))
}

unsafe extern "C" fn calloc(count: usize, each: usize) -> Pointer {
    match count.checked_mul(each) {
        Some(size) => padded(size, |longer| below!(calloc(1, longer))),
        None => below!(calloc(count, each)),
    }
}

unsafe extern "C" fn realloc(old: Pointer, size: usize) -> Pointer {
    if size == 0 && !old.is_null() {
        return below!(realloc(old, size));
    }
    padded(size, |longer| below!(realloc(old, longer)))
}

unsafe extern "C" fn memalign(alignment: usize, size: usize) -> Pointer {
    padded(size, |longer| below!(memalign(alignment, longer)))
}

unsafe extern "C" fn free(block: Pointer) {
    if !thread::take_swallowed(block as usize) {
        below!(free(block));
    }
}

/// The program may write to all of it: so it is what it asked for, with `pvalloc` in whole pages.
unsafe extern "C" fn usable_size(block: Pointer) -> usize {
    match query(|| REGISTER.get(Key(block as u64))).flatten() {
        Some(known) if is_padded(known.stamp) => known.usable.0 as usize,
        _ => below!(malloc_usable_size(block)),
    }
}
