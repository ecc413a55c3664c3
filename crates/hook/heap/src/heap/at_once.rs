//! The most frequent refill, apart from the others: it takes few instructions.

use core::ptr;

use super::Heap;
use crate::block::Block;

/// The block size in bytes above which half as many blocks are compared: the lists of these blocks
/// are short, so that it is done often. A pair of 256 bytes takes 2.68 ns with this, not 2.81.
const COMPARED_LESS: usize = 128;

impl Heap {
    /// Does the most frequent refill for a request of up to
    /// [`DIRECT_MAX`](crate::classes::DIRECT_MAX) bytes: makes the blocks that the thread has freed
    /// in the current run the free list, and returns the first. Null if there are none, or if more
    /// has to be done: then [`HeapPtr::tick`](super::HeapPtr::tick) and
    /// [`HeapPtr::refill`](super::HeapPtr::refill) do it all.
    #[inline]
    pub(crate) fn refill_at_once(&self, size: usize) -> *mut Block {
        let bits = self.at_once.get();
        if self.refills.get().wrapping_add(1) & bits == 0 {
            return if bits == 0 { self.refill_and_count(size) } else { ptr::null_mut() };
        }
        self.refill_if(size, |_, _| true)
    }

    /// Does the work of [`Heap::refill_at_once`] if a function agrees to so many blocks of
    /// the class.
    #[inline(always)]
    pub(super) fn refill_if(&self, size: usize, agrees: impl FnOnce(usize, u32) -> bool) -> *mut Block {
        let run = self.direct(size);
        // The heap without runs, which nobody writes to, has no blocks of this kind.
        if !run.has_local() || !agrees(run.class(), run.unused()) {
            return ptr::null_mut();
        }
        run.take_local(self.compared(size));
        self.refills.set(self.refills.get().wrapping_add(1));
        let blocks = run.unused();
        self.bins[run.class()].count(blocks);
        self.count(2 * i64::from(blocks));
        run.pop()
    }

    /// Returns the number of blocks that are compared when the list of a class is taken, whose
    /// blocks or a request for one have this size.
    #[inline(always)]
    pub(super) fn compared(&self, size: usize) -> usize {
        let (compared, _) = self.checks();
        if size > COMPARED_LESS { compared / 2 } else { compared }
    }
}
