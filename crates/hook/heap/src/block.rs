//! A free block.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

/// Copies the first bytes of a block to another one.
///
/// This calls `memmove`. The preload library names functions of the C library without a version.
/// For `memcpy` that is the oldest one, which takes twice as long for blocks above 2 KiB (glibc
/// 2.36, a processor with AVX).
///
/// # Safety
///
/// `from` and `to` have as many bytes, and the caller owns both.
#[cfg_attr(all(test, loom), allow(dead_code, reason = "only the allocator's functions copy"))]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: `copy` demands that `from` can be read and `to` be written for that many bytes, which
    // are aligned to 1: this function's `# Safety`.
    unsafe { ptr::copy(from, to, bytes) };
}

/// A free block: its first word is the address of the next one in its list. The word is atomic, for
/// threads that look at the lists of others; relaxed accesses take the instructions of plain ones.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Block {
    next: AtomicPtr<Block>,
}

impl Block {
    /// Returns the next block of the list.
    ///
    /// # Safety
    ///
    /// The block is in a free list, and nobody writes to it meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn next(block: *mut Block) -> *mut Block {
        // SAFETY: a block in a free list begins with the next one's address, written by `set_next`;
        // the caller excludes writes meanwhile.
        unsafe { &*block }.next.load(Ordering::Relaxed)
    }

    /// Returns the first word of a block that may be in use, or be freed or allocated just now: any
    /// address.
    ///
    /// The language does not define a read that another thread's plain write races with, and the
    /// program may write to the block. The load is atomic, so that the compiler makes one machine
    /// load of it, which gives some value on every processor. `.ci/sanitizers` tells
    /// ThreadSanitizer so.
    ///
    /// # Safety
    ///
    /// The block lies in a run, whose chunk stays mapped meanwhile.
    #[cfg_attr(all(test, loom), allow(dead_code, reason = "only observers of runs call it"))]
    #[inline(never)]
    pub(crate) unsafe fn peek_next(block: *const Block) -> *mut Block {
        // SAFETY: `next` demands a mapped, aligned word: by this function's `# Safety`. Any content
        // is a valid address.
        unsafe { &*block }.next.load(Ordering::Relaxed)
    }

    /// Makes `next` follow the block.
    ///
    /// # Safety
    ///
    /// The caller owns the block, which is of at least 16 bytes and aligned to 16.
    #[inline(always)]
    pub(crate) unsafe fn set_next(block: *mut Block, next: *mut Block) {
        // SAFETY: the block is memory of the caller's, large enough and aligned.
        unsafe { &*block }.next.store(next, Ordering::Relaxed);
    }
}

/// Returns a block with the provenance of the allocator's memory: its user's extends to the block
/// alone, and until it is freed; the allocator reaches the header of the chunk, and keeps free
/// blocks in lists.
#[cfg_attr(all(test, loom), allow(dead_code, reason = "only the allocator's functions call it"))]
#[inline(always)]
pub(crate) fn as_own(block: *mut u8) -> *mut u8 {
    ptr::with_exposed_provenance_mut(block.addr())
}
