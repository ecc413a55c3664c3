//! The numbers of operations of a heap: see [`operations`](crate::arena::operations).

use super::Heap;

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
            let allocations = bin.allocations(self.current[class].get().countdown(class));
            if allocations > 0 {
                visit(class, allocations);
            }
        }
        self.resized.get()
    }
}
