//! The counts of operations: see `arena/operations.rs`.

use super::Heap;
use crate::classes::CLASSES;

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

    /// Adds the blocks that were handed out to the numbers of their classes, with those of the
    /// current runs' free lists. Returns the number of blocks
    /// that were resized in place. For any thread.
    pub(crate) fn add_allocations(&self, to: &mut [u64; CLASSES]) -> u64 {
        for (class, (sum, bin)) in to.iter_mut().zip(&self.bins).enumerate() {
            *sum = sum.wrapping_add(bin.allocations(self.current[class].get().countdown(class)));
        }
        self.resized.get()
    }
}
