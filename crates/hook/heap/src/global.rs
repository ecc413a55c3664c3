//! The allocator as a Rust program's global one.

use core::alloc::{GlobalAlloc, Layout};

use crate::block;
use crate::{ALIGNMENT, allocate, allocate_aligned, allocate_zeroed, free, reallocate};

/// The allocator, for `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapAllocator;

// SAFETY: `GlobalAlloc` demands blocks of the layout's size and alignment that stay valid until
// they are deallocated, and no unwinding. `allocate_aligned` returns such blocks, or null; a size
// is never above `isize::MAX`. Nothing here panics: a corrupt heap aborts.
unsafe impl GlobalAlloc for HeapAllocator {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            allocate(layout.size())
        } else {
            allocate_aligned(layout.size(), layout.align())
        }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: `free` demands a block of this allocator that nobody uses, as `dealloc` does.
        unsafe { free(block) };
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            return allocate_zeroed(layout.size());
        }
        let block = allocate_aligned(layout.size(), layout.align());
        if !block.is_null() {
            // SAFETY: a new block of that size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNMENT {
            // SAFETY: `reallocate` demands a block of this allocator that nobody else uses, as
            // `realloc` does.
            return unsafe { reallocate(block, size) };
        }
        let new = allocate_aligned(size, layout.align());
        if new.is_null() {
            return if size <= layout.size() { block } else { new };
        }
        // SAFETY: `copy` demands that many bytes in both blocks, which are the caller's and ours.
        // `free` demands that nobody uses the old one any more: the contract of `realloc`.
        unsafe {
            block::copy(block, new, layout.size().min(size));
            free(block);
        }
        new
    }
}
