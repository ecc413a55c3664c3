//! The numbers of operations of a heap: see [`operations`](crate::arena::operations).

use super::Heap;
use crate::readers;

impl Heap {
    /// Counts operations.
    #[inline(always)]
    pub(super) fn count(&self, operations: i64) {
        self.operations.set(self.operations.get().wrapping_add_signed(operations));
    }

    /// Returns the operations without a look at the lists, wrapped. For any thread.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.get()
    }

    /// Calls a function with each class of which blocks were handed out, and their number, with
    /// those of the current run's free list. Returns the number of blocks that were resized in
    /// place. For any thread.
    pub(crate) fn each_allocations(&self, mut visit: impl FnMut(usize, u64)) -> u64 {
        for (class, bin) in self.bins.iter().enumerate() {
            let run = self.current[class].get();
            // As a reader: the heap's thread may release the run, and its chunk be unmapped. All
            // that is left then counts nothing more.
            let countdown = readers::read(run.as_ptr().addr(), |_| run.countdown(class)).unwrap_or(u8::MAX);
            let allocations = bin.allocations(countdown);
            if allocations > 0 {
                visit(class, allocations);
            }
        }
        self.resized.get()
    }
}
