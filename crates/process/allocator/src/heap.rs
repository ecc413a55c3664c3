//! The functions of Heapledger's allocator, as the hook table wants them.

use std::ffi::c_int;
use std::ptr;

use heapledger_core::hooks::{Functions, Pointer};
use heapledger_heap as heap;

const EINVAL: c_int = 22;
const ENOMEM: c_int = 12;

/// The C functions of these names. They set no `errno`, which Rust's allocations do not have.
pub(crate) static FUNCTIONS: Functions = Functions {
    malloc: Some(malloc),
    calloc: Some(calloc),
    realloc: Some(realloc),
    free: Some(free),
    posix_memalign: Some(posix_memalign),
    aligned_alloc: Some(memalign),
    memalign: Some(memalign),
    malloc_usable_size: Some(malloc_usable_size),
    ..Functions::EMPTY
};

unsafe extern "C" fn malloc(size: usize) -> Pointer {
    heap::allocate(size).cast()
}

unsafe extern "C" fn calloc(count: usize, each: usize) -> Pointer {
    count.checked_mul(each).map_or(ptr::null_mut(), |size| heap::allocate_zeroed(size).cast())
}

unsafe extern "C" fn realloc(block: Pointer, size: usize) -> Pointer {
    if size == 0 && !block.is_null() {
        // SAFETY: `heap::free` demands null or a block of this allocator that nobody uses any more,
        // as the C function does.
        unsafe { heap::free(block.cast()) };
        return ptr::null_mut();
    }
    // SAFETY: `heap::reallocate` demands null or a block of this allocator that nobody else uses,
    // as the C function does.
    unsafe { heap::reallocate(block.cast(), size).cast() }
}

unsafe extern "C" fn free(block: Pointer) {
    // SAFETY: `heap::free` demands null or a block of this allocator that nobody uses any more, as
    // the C function does.
    unsafe { heap::free(block.cast()) };
}

unsafe extern "C" fn memalign(alignment: usize, size: usize) -> Pointer {
    if alignment.is_power_of_two() { heap::allocate_aligned(size, alignment).cast() } else { ptr::null_mut() }
}

unsafe extern "C" fn posix_memalign(out: *mut Pointer, alignment: usize, size: usize) -> c_int {
    if !alignment.is_power_of_two() {
        return EINVAL;
    }
    let block = heap::allocate_aligned(size, alignment);
    if block.is_null() {
        return ENOMEM;
    }
    // SAFETY: `write` demands a place for a pointer, as the C function demands of its caller.
    unsafe { out.write(block.cast()) };
    0
}

unsafe extern "C" fn malloc_usable_size(block: Pointer) -> usize {
    // SAFETY: `heap::usable_size` demands that the address is not in its memory, as null is not, or
    // is that of a block which nobody frees meanwhile: the contract of the C function.
    unsafe { heap::usable_size(block.cast()) }
}
