//! Blocks whose threads have ended.

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};

use heapledger_core::lock::Lock;

use crate::Block;

/// The blocks that the next new threads take. Zeroed memory is a valid, empty list: so it may lie
/// in memory that a forked child finds zeroed, and it must, because the blocks do.
#[derive(Debug)]
#[repr(C)]
pub struct FreeList<B> {
    lock: Lock,
    first: UnsafeCell<*mut B>,
}

// SAFETY: the list is used under the lock only, and the blocks on it belong to nobody.
unsafe impl<B> Sync for FreeList<B> {}

impl<B: Block> FreeList<B> {
    /// Returns an empty list.
    pub const fn new() -> FreeList<B> {
        FreeList { lock: Lock::new(), first: UnsafeCell::new(ptr::null_mut()) }
    }

    /// Takes a block of a thread that has ended, with all that it holds.
    pub(crate) fn pop(&self) -> Option<NonNull<B>> {
        let _lock = self.lock.lock();
        // SAFETY: no other reference to the list exists: all accesses are in this module, and each
        // holds the lock, as `_lock` shows. A block on the list is valid, and belongs to nobody.
        unsafe {
            let block = NonNull::new(*self.first.get())?;
            *self.first.get() = (*block.as_ptr()).head().next;
            Some(block)
        }
    }

    /// Gives a block up for the next thread.
    pub(crate) fn push(&self, block: NonNull<B>) {
        let _lock = self.lock.lock();
        // SAFETY: no other reference to the list exists: all accesses are in this module, and each
        // holds the lock, as `_lock` shows. `block` is valid, and the caller gives it up.
        unsafe {
            (*block.as_ptr()).head().next = *self.first.get();
            *self.first.get() = block.as_ptr();
        }
    }
}

impl<B: Block> Default for FreeList<B> {
    fn default() -> Self {
        FreeList::new()
    }
}
