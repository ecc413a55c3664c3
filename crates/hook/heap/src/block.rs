//! A free block.

/// A free block: its first word is the address of the next one in its list.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Block {
    next: *mut Block,
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
        unsafe { (*block).next }
    }

    /// Makes `next` follow the block.
    ///
    /// # Safety
    ///
    /// The caller owns the block, which is of at least 16 bytes and aligned to 16.
    #[inline(always)]
    pub(crate) unsafe fn set_next(block: *mut Block, next: *mut Block) {
        // SAFETY: the block is memory of the caller's, large enough and aligned.
        unsafe { (*block).next = next };
    }
}
