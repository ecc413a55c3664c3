//! Blocks whose threads have ended.

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::lock::Lock;

use crate::{Block, Head};

/// The blocks that the next new threads take. Zeroed memory is a valid, empty list: so it may lie
/// in memory that a forked child finds zeroed, and it must, because the blocks do.
#[derive(Debug)]
#[repr(C)]
pub struct FreeList<B> {
    lock: Lock,
    first: UnsafeCell<*mut B>,
    /// The block that was listed last, of all blocks of the process.
    listed: AtomicPtr<B>,
}

// SAFETY: the list is used under the lock only, and the blocks on it belong to nobody.
unsafe impl<B> Sync for FreeList<B> {}

impl<B: Block> FreeList<B> {
    /// Returns an empty list.
    pub const fn new() -> FreeList<B> {
        FreeList { lock: Lock::new(), first: UnsafeCell::new(ptr::null_mut()), listed: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Lists a block among all blocks of the process, once.
    pub(crate) fn list(&self, block: &mut B) {
        if block.head().is_listed {
            return;
        }
        block.head().is_listed = true;
        let mut before = self.listed.load(Ordering::Relaxed);
        loop {
            block.head().listed_before = before;
            match self.listed.compare_exchange_weak(before, block, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// Calls `visit` with each block that a thread of this process has or had, whether it is free
    /// or not. Blocks are never unmapped.
    pub fn for_each(&self, mut visit: impl FnMut(NonNull<B>)) {
        let mut at = self.listed.load(Ordering::SeqCst);
        while let Some(block) = NonNull::new(at) {
            visit(block);
            // SAFETY: a listed block stays mapped, and begins with its head (`Block`). The field is
            // not written once the block is listed; no reference to anything else is made.
            at = unsafe { (&raw const (*block.as_ptr().cast::<Head<B>>()).listed_before).read() };
        }
    }

    /// Takes a block of a thread that has ended, with all that it holds. `None` if there is none,
    /// or if the list stays locked: by the thread itself, if a signal handler has interrupted it
    /// here.
    pub(crate) fn pop(&self) -> Option<NonNull<B>> {
        let _lock = self.lock.lock_within(20)?;
        // SAFETY: no other reference to the list exists: all accesses are in this module, and each
        // holds the lock, as `_lock` shows. A block on the list is valid, and belongs to nobody.
        unsafe {
            let block = NonNull::new(*self.first.get())?;
            *self.first.get() = (*block.as_ptr()).head().next;
            Some(block)
        }
    }

    /// Returns the number of blocks on the list.
    pub(crate) fn count(&self) -> usize {
        let _lock = self.lock.lock();
        let mut count = 0;
        // SAFETY: no other reference to the list exists: all accesses are in this module, and each
        // holds the lock, as `_lock` shows. A block on the list is valid, and belongs to nobody.
        let mut at = unsafe { *self.first.get() };
        while let Some(block) = NonNull::new(at) {
            count += 1;
            // SAFETY: as for the first one: a block on the list.
            at = unsafe { (*block.as_ptr()).head().next };
        }
        count
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
