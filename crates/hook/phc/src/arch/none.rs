//! Other systems and processors, where the checker does not start.

use core::ffi::{c_int, c_void};

use heapledger_core::hooks::Pointer;

use crate::replace;

pub(crate) fn word<const OFFSET: usize>() -> usize {
    0
}

pub(crate) fn set_word<const OFFSET: usize>(_: usize) {}

pub(crate) fn word_distance() -> isize {
    0
}

pub(crate) unsafe extern "C" fn malloc(size: usize) -> Pointer {
    replace::malloc_at_end(size, 0, 0)
}

pub(crate) unsafe extern "C" fn calloc(count: usize, each: usize) -> Pointer {
    replace::calloc_at_end(count, each, 0, 0)
}

pub(crate) unsafe extern "C" fn memalign(alignment: usize, size: usize) -> Pointer {
    replace::memalign_at_end(alignment, size, 0, 0)
}

pub(crate) unsafe extern "C" fn allocate(size: usize, alignment: usize) -> Pointer {
    replace::allocate_sampled(size, alignment, 0, 0)
}

pub(crate) unsafe extern "C" fn free(block: Pointer) {
    replace::free_owned(block, 0, 0);
}

pub(crate) unsafe extern "C" fn realloc(old: Pointer, size: usize) -> Pointer {
    replace::realloc_owned(old, size, 0, 0)
}

pub(crate) unsafe extern "C" fn usable_size(block: Pointer) -> usize {
    replace::usable_size_owned(block, 0, 0)
}

pub(crate) unsafe extern "C" fn handler(_: c_int, _: *const c_void, _: *mut c_void) {}

pub(crate) unsafe extern "C" fn call_on_stack(function: extern "C" fn(*mut c_void), argument: *mut c_void, _: usize) {
    function(argument);
}

pub(crate) unsafe extern "C" fn restore() {}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupted {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) rbp: u64,
    pub(crate) error: u64,
}

impl Interrupted {
    pub(crate) unsafe fn read(_: *const c_void) -> Interrupted {
        Interrupted { pc: 0, sp: 0, rbp: 0, error: 0 }
    }
}
