//! The numbers of operations: allocations, frees and reallocations in place.
//!
//! No function counts on the common path. A free list that was filled with so many blocks has
//! handed out as many when it is empty, and what it has handed out until then is known from what is
//! left of it. (Blocks above 512 bytes are taken from a second list, too, which has a countdown
//! until the next refill anyway.) What was handed out and is not in use was freed.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Heaps, SharedArena, registry};
use crate::classes::CLASSES;

/// The operations in arenas, without those of runs that the statistics look at.
#[derive(Debug)]
pub(crate) struct Operations {
    /// The blocks that were handed out, by their class, with those that are left in free lists.
    pub(crate) allocations: [u64; CLASSES],
    /// The blocks that were resized in place. Each was counted in its old class as a free and in
    /// the new one as an allocation, and is one operation.
    pub(crate) resized: u64,
    /// The operations with huge blocks.
    pub(crate) huge: u64,
}

impl Operations {
    pub(crate) const NONE: Operations = Operations { allocations: [0; CLASSES], resized: 0, huge: 0 };
}

/// The operations in arenas that were disposed of.
static ENDED_ALLOCATIONS: [AtomicU64; CLASSES] = [const { AtomicU64::new(0) }; CLASSES];
static ENDED_RESIZED: AtomicU64 = AtomicU64::new(0);
static ENDED_HUGE: AtomicU64 = AtomicU64::new(0);
/// The sum as [`known`] has it, with huge blocks.
static ENDED_KNOWN: AtomicU64 = AtomicU64::new(0);

impl SharedArena {
    /// Adds the operations of the arena, which is not disposed of meanwhile.
    pub(crate) fn add_operations(&self, to: &mut Operations) {
        self.heaps.with(|heaps| {
            heaps.each_with_lost(|heap| {
                to.resized += heap.each_allocations(|class, allocations| {
                    if let Some(sum) = to.allocations.get_mut(class) {
                        *sum = sum.wrapping_add(allocations);
                    }
                });
            });
        });
        to.huge += self.huge_operations.load(Ordering::Relaxed);
    }

    /// Returns the operations without a look at the runs, wrapped.
    fn known(&self) -> u64 {
        let mut known = self.huge_operations.load(Ordering::Relaxed);
        self.heaps.with(|heaps| heaps.each_with_lost(|heap| known = known.wrapping_add(heap.operations())));
        known
    }

    /// Leaves the operations to the sums of the process: the arena, with these heaps, ends.
    pub(super) fn end_operations(&self, heaps: &Heaps) {
        let huge = self.huge_operations.swap(0, Ordering::Relaxed);
        ENDED_HUGE.fetch_add(huge, Ordering::Relaxed);
        ENDED_KNOWN.fetch_add(huge, Ordering::Relaxed);
        heaps.each_with_lost(|heap| {
            let resized = heap.each_allocations(|class, allocations| {
                if let Some(sum) = ENDED_ALLOCATIONS.get(class) {
                    sum.fetch_add(allocations, Ordering::Relaxed);
                }
            });
            ENDED_RESIZED.fetch_add(resized, Ordering::Relaxed);
            ENDED_KNOWN.fetch_add(heap.operations(), Ordering::Relaxed);
        });
    }
}

/// Adds the operations of arenas that were disposed of.
pub(crate) fn add_ended(to: &mut Operations) {
    for (sum, allocations) in to.allocations.iter_mut().zip(&ENDED_ALLOCATIONS) {
        *sum = sum.wrapping_add(allocations.load(Ordering::Relaxed));
    }
    to.resized += ENDED_RESIZED.load(Ordering::Relaxed);
    to.huge += ENDED_HUGE.load(Ordering::Relaxed);
}

/// Returns the operations of the process without a look at the runs: see `Heap::operations`.
pub(crate) fn known() -> u64 {
    let mut known = ENDED_KNOWN.load(Ordering::Relaxed);
    registry::for_each(|arena| known = known.wrapping_add(arena.known()));
    // Blocks of a run may be counted as carved before they are handed out.
    if known > u64::MAX / 2 { 0 } else { known }
}
