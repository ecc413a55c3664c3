//! The malloc functions of C, POSIX and glibc.
//!
//! Where the standards leave a choice, they answer as glibc does: `realloc(p, 0)` frees and returns
//! null, and `memalign` rounds its alignment up to a power of two. `aligned_alloc` accepts sizes
//! that are not a multiple of the alignment; it refuses an alignment that is not a power of two, as
//! glibc does since 2.38. `free` keeps `errno`.

use core::ffi::{c_int, c_void};
use core::ptr;

use heapledger_heap as heap;

pub(crate) const ENOMEM: c_int = 12;
pub(crate) const EINVAL: c_int = 22;

// The sections of the two functions begin at a cache line: elsewhere, a pair of them takes a tenth
// more, depending on what the linker has put before them.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
core::arch::global_asm!(
    ".pushsection .text.heapledger.malloc,\"ax\",@progbits",
    ".p2align 6",
    ".popsection",
    ".pushsection .text.heapledger.free,\"ax\",@progbits",
    ".p2align 6",
    ".popsection",
);

unsafe extern "C" {
    safe fn __errno_location() -> *mut c_int;
}

/// Returns null, and sets `errno`.
#[cold]
pub(crate) fn fail(error: c_int) -> *mut c_void {
    // SAFETY: the C library returns the address of this thread's `errno`.
    unsafe { *__errno_location() = error };
    ptr::null_mut()
}

/// Returns the block, or null with `errno` if there is none.
#[inline(always)]
pub(crate) fn or_fail(block: *mut u8) -> *mut c_void {
    if block.is_null() { fail(ENOMEM) } else { block.cast() }
}

/// C's `malloc`. A block of 0 bytes is a block of its own.
#[unsafe(no_mangle)]
#[cfg_attr(all(target_arch = "x86_64", target_os = "linux"), unsafe(link_section = ".text.heapledger.malloc"))]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    // The other function is the last that is called: then this one needs no stack frame.
    let block = heap::allocate_any_at_once(size);
    if block.is_null() { malloc_otherwise(size) } else { block.cast() }
}

#[inline(never)]
extern "C" fn malloc_otherwise(size: usize) -> *mut c_void {
    or_fail(heap::allocate_otherwise(size))
}

/// C's `free`.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
#[cfg_attr(all(target_arch = "x86_64", target_os = "linux"), unsafe(link_section = ".text.heapledger.free"))]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: `heap::free` demands null or a block of this allocator, as C does.
    unsafe { heap::free(block.cast()) };
}

/// C's `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(size) => or_fail(heap::allocate_zeroed(size)),
        None => fail(ENOMEM),
    }
}

/// C's `realloc`.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    if size == 0 && !block.is_null() {
        // SAFETY: the caller's block, by the contract of the C function.
        unsafe { heap::free(block.cast()) };
        return ptr::null_mut();
    }
    // SAFETY: `reallocate` demands null or a block of this allocator that nobody else uses, as C
    // does.
    or_fail(unsafe { heap::reallocate(block.cast(), size) })
}

/// BSD's `reallocarray`.
///
/// # Safety
///
/// The contract of `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's block, by the contract of this function.
        Some(size) => unsafe { realloc(block, size) },
        None => fail(ENOMEM),
    }
}

/// The old name of `free`.
///
/// # Safety
///
/// The contract of `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: `heap::free` demands null or a block of this allocator that nobody uses any more, as
    // the C function does.
    unsafe { heap::free(block.cast()) };
}

/// C23's `free_sized`. The size is not needed.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, _: usize) {
    // SAFETY: `heap::free` demands null or a block of this allocator that nobody uses any more, as
    // the C function does.
    unsafe { heap::free(block.cast()) };
}

/// C23's `free_aligned_sized`. Neither alignment nor size are needed.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _: usize, _: usize) {
    // SAFETY: `heap::free` demands null or a block of this allocator that nobody uses any more, as
    // the C function does.
    unsafe { heap::free(block.cast()) };
}

/// Returns the alignment as a power of two. `None` if there is none that is as large.
pub(crate) fn power_of_two(alignment: usize) -> Option<usize> {
    alignment.max(1).checked_next_power_of_two()
}

/// `memalign` of SunOS and glibc.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    match power_of_two(alignment) {
        Some(alignment) => or_fail(heap::allocate_aligned(size, alignment)),
        None => fail(EINVAL),
    }
}

/// C's `aligned_alloc`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    if alignment.is_power_of_two() { or_fail(heap::allocate_aligned(size, alignment)) } else { fail(EINVAL) }
}

/// POSIX's `posix_memalign`.
///
/// # Safety
///
/// The contract of the POSIX function: `to` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    if !alignment.is_power_of_two() || !alignment.is_multiple_of(size_of::<*mut c_void>()) {
        return EINVAL;
    }
    let block = heap::allocate_aligned(size, alignment);
    if block.is_null() {
        return ENOMEM;
    }
    // SAFETY: writable, by the contract of this function.
    unsafe { *to = block.cast() };
    0
}

/// BSD's `valloc`.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    or_fail(heap::allocate_aligned(size, heap::page_size()))
}

/// glibc's `pvalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    let page = heap::page_size();
    match size.checked_next_multiple_of(page) {
        Some(size) => or_fail(heap::allocate_aligned(size.max(page), page)),
        None => fail(ENOMEM),
    }
}

/// glibc's `malloc_usable_size`.
///
/// # Safety
///
/// The contract of the C function: null, or a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    // SAFETY: `heap::usable_size` demands that the address is not in its memory, as null is not, or
    // is that of a block which nobody frees meanwhile: the contract of this function.
    unsafe { heap::usable_size(block.cast()) }
}

/// glibc's `malloc_trim`. Nothing is kept, whatever `keep` is.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_keep: usize) -> c_int {
    c_int::from(heap::trim() > 0)
}
