//! The functions that are called: those of the allocator, or those that do nothing.

use core::ffi::{c_int, c_void};
use core::ptr;

type Block = *mut c_void;

/// The malloc functions. `unsafe extern "C"` ones, through pointers in both cases, so that both
/// cost the same besides what they do.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub(crate) malloc: unsafe extern "C" fn(usize) -> Block,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize) -> Block,
    pub(crate) realloc: unsafe extern "C" fn(Block, usize) -> Block,
    pub(crate) free: unsafe extern "C" fn(Block),
    pub(crate) memalign: unsafe extern "C" fn(usize, usize) -> Block,
    pub(crate) posix_memalign: unsafe extern "C" fn(*mut Block, usize, usize) -> c_int,
    pub(crate) aligned_alloc: unsafe extern "C" fn(usize, usize) -> Block,
    pub(crate) valloc: unsafe extern "C" fn(usize) -> Block,
    pub(crate) usable_size: unsafe extern "C" fn(Block) -> usize,
}

mod allocator {
    use super::{Block, c_int};

    unsafe extern "C" {
        pub(super) fn malloc(size: usize) -> Block;
        pub(super) fn calloc(count: usize, each: usize) -> Block;
        pub(super) fn realloc(old: Block, size: usize) -> Block;
        pub(super) fn free(block: Block);
        pub(super) fn memalign(alignment: usize, size: usize) -> Block;
        pub(super) fn posix_memalign(out: *mut Block, alignment: usize, size: usize) -> c_int;
        pub(super) fn aligned_alloc(alignment: usize, size: usize) -> Block;
        pub(super) fn valloc(size: usize) -> Block;
        pub(super) fn malloc_usable_size(block: Block) -> usize;
    }
}

/// The allocator of the process.
pub(crate) const ALLOCATOR: Functions = Functions {
    malloc: allocator::malloc,
    calloc: allocator::calloc,
    realloc: allocator::realloc,
    free: allocator::free,
    memalign: allocator::memalign,
    posix_memalign: allocator::posix_memalign,
    aligned_alloc: allocator::aligned_alloc,
    valloc: allocator::valloc,
    usable_size: allocator::malloc_usable_size,
};

/// Functions that do nothing, and return the same address each time.
pub(crate) const NOTHING: Functions = Functions {
    malloc: nothing::malloc,
    calloc: nothing::calloc,
    realloc: nothing::realloc,
    free: nothing::free,
    memalign: nothing::calloc,
    posix_memalign: nothing::posix_memalign,
    aligned_alloc: nothing::calloc,
    valloc: nothing::malloc,
    usable_size: nothing::usable_size,
};

mod nothing {
    use super::{Block, c_int, ptr};

    /// An address that is not null, and that nobody follows.
    const SOMEWHERE: Block = ptr::without_provenance_mut(16);

    pub(super) extern "C" fn malloc(_: usize) -> Block {
        SOMEWHERE
    }

    pub(super) extern "C" fn calloc(_: usize, _: usize) -> Block {
        SOMEWHERE
    }

    pub(super) extern "C" fn realloc(_: Block, _: usize) -> Block {
        SOMEWHERE
    }

    pub(super) extern "C" fn free(_: Block) {}

    pub(super) unsafe extern "C" fn posix_memalign(out: *mut Block, _: usize, _: usize) -> c_int {
        // SAFETY: `out` is a variable of the caller, as for posix_memalign(3).
        unsafe { *out = SOMEWHERE };
        0
    }

    pub(super) extern "C" fn usable_size(_: Block) -> usize {
        0
    }
}
