//! The allocations of a heap until the next one that is to be sampled: see `sampled.rs`.

use core::cell::Cell;

use heapledger_core::block_sampler::BlockSampler;

use crate::classes::CLASSES;

const _: () = assert!(CLASSES <= u128::BITS as usize, "each class has a bit");

/// The allocations of a heap until the next one that is to be sampled.
#[derive(Debug)]
pub(crate) struct Countdown {
    /// The allocations that the sampler has counted, and that were not handed out yet.
    left: Cell<usize>,
    /// True if the one after these is to be sampled.
    ends_with_sample: Cell<bool>,
    /// The classes of which the next refill's block is to be sampled, as bits, unless blocks that
    /// may be taken [out of turn](crate::heap::Heap::out_of_turn) come before it.
    due: Cell<u128>,
}

impl Countdown {
    pub(crate) const fn new() -> Countdown {
        Countdown { left: Cell::new(0), ends_with_sample: Cell::new(false), due: Cell::new(0) }
    }

    /// True if no class is due.
    #[inline(always)]
    pub(crate) fn is_nothing_due(&self) -> bool {
        self.due.get() == 0
    }

    /// True if a class is due.
    pub(crate) fn is_due(&self, class: usize) -> bool {
        self.due.get() & 1 << class != 0
    }

    /// Makes a class due.
    pub(crate) fn set_due(&self, class: usize) {
        self.due.set(self.due.get() | 1 << class);
    }

    /// Ends that a class is due.
    pub(crate) fn end_due(&self, class: usize) {
        self.due.set(self.due.get() & !(1 << class));
    }

    /// Counts some allocations, of which none is to be sampled. Below 0: some that were counted are
    /// not made. False if that is not known, and nothing is counted.
    #[inline(always)]
    pub(crate) fn skip(&self, allocations: isize) -> bool {
        let left = self.left.get();
        let is_known = allocations <= left as isize;
        if is_known {
            self.left.set(left.wrapping_add_signed(-allocations));
        }
        is_known
    }

    /// Counts up to `wanted` allocations. Returns how many come before the one that is to be
    /// sampled, which is counted, too; `wanted` if none of them is to be.
    pub(crate) fn take(&self, sampler: &BlockSampler, wanted: usize) -> usize {
        while self.left.get() < wanted && !self.ends_with_sample.get() {
            // SAFETY: `count` may be called at any time.
            let counted = unsafe { (sampler.count)() };
            self.left.set(self.left.get() + counted.allocations as usize);
            self.ends_with_sample.set(counted.ends_with_sample != 0);
        }
        if self.left.get() >= wanted {
            self.left.set(self.left.get() - wanted);
            return wanted;
        }
        self.ends_with_sample.set(false);
        self.left.replace(0)
    }
}
