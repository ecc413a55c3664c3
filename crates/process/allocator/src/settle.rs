//! What has to be found out at the first call.

use std::alloc::GlobalAlloc;
use std::ffi::{c_int, c_void};

use heapledger_core::hooks::{self, Functions, Pointer, serve};
use heapledger_core::lock::Lock;

use crate::Allocator;

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn calloc(count: usize, each: usize) -> *mut c_void;
    fn realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn free(block: *mut c_void);
    fn posix_memalign(out: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    fn memalign(alignment: usize, size: usize) -> *mut c_void;
    fn malloc_usable_size(block: Pointer) -> usize;
}

/// The C library's allocator, or whoever stands in its place in the whole program.
const SYSTEM: Functions = Functions {
    malloc: Some(malloc),
    calloc: Some(calloc),
    realloc: Some(realloc),
    free: Some(free),
    posix_memalign: Some(posix_memalign),
    aligned_alloc: Some(aligned_alloc),
    memalign: Some(memalign),
    malloc_usable_size: Some(malloc_usable_size),
    ..Functions::EMPTY
};

static LOCK: Lock = Lock::new();

/// Tells the hook table what the program's allocator is. Idempotent; a thread that comes while another is at it goes on
/// without: it is one of the first calls, and nothing can have been installed yet.
#[cold]
#[inline(never)]
pub(crate) fn settle<A: GlobalAlloc>(allocator: &Allocator<A>) {
    let Some(_guard) = LOCK.try_lock() else { return };
    if hooks::is_settled() {
        return;
    }
    if allocator.is_system {
        // SAFETY: once, under the lock and since it is not settled; without a bottom no replacement can be installed. The
        // functions are those of the C library.
        unsafe { serve::set_bottom(SYSTEM) };
    }
    hooks::settle();
}
