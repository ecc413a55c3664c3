//! The most frequent refill, apart from the others: it takes few instructions.

use core::ptr;

use super::{AT_ONCE, Heap};
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
        let refills = self.refills.get().wrapping_add(1);
        let run = self.direct(size);
        let first = run.local();
        // The heap without runs, which nobody writes to, has no blocks of this kind.
        if refills & AT_ONCE == 0 || first.is_null() {
            return ptr::null_mut();
        }
        let blocks = run.unused();
        if !self.countdown.skip_at_once(blocks) && !self.skip_while_due(run.class(), blocks) {
            return ptr::null_mut();
        }
        run.take(first, self.compared(size));
        self.refills.set(refills);
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
