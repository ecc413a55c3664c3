//! The part of a heap that the [block sampler](crate::sampled) needs.

use core::ptr;

use heapledger_core::block_sampler;

use super::{AT_ONCE, Heap};
use crate::block::Block;
use crate::classes::{DIRECT_MAX, bytes_of};
use crate::run::NO_RUN;

impl Heap {
    /// Does as [`Heap::refill_at_once`] while there is a sampler, if the class is not due and the
    /// next allocations, as many as there are blocks, are not to be sampled.
    #[inline(never)]
    pub(super) fn refill_and_count(&self, size: usize) -> *mut Block {
        if self.refills.get().wrapping_add(1) & AT_ONCE == 0 {
            return ptr::null_mut();
        }
        self.refill_if(size, |class, blocks| !self.countdown.is_due(class) && self.countdown.skip(blocks as isize))
    }

    /// Returns the number of allocations of a class that were handed out, with those that need no
    /// refill of it.
    #[inline(always)]
    pub(crate) fn ready(&self, class: usize) -> u64 {
        let run = self.current[class].get();
        self.bins[class].allocations(run.countdown(class)) + u64::from(run.out_of_turn(class))
    }

    /// Returns the number of blocks that may be taken out of turn until the next refill of a class.
    pub(crate) fn out_of_turn(&self, class: usize) -> usize {
        usize::from(self.current[class].get().out_of_turn(class))
    }

    /// Returns the length of the free list of a class, by following it unless the run has no other free blocks.
    #[cold]
    pub(crate) fn free_count(&self, class: usize) -> usize {
        self.current[class].get().free_count()
    }

    /// Has the next refill of a class come after `kept` allocations, or earlier if the class has
    /// not as many blocks, or if more than [`KEPT_MAX`](crate::run::KEPT_MAX) would be taken out of
    /// turn. The other blocks come back at that refill.
    #[cold]
    pub(crate) fn hold_back(&self, class: usize, kept: usize) {
        let run = self.current[class].get();
        if run == NO_RUN {
            return;
        }
        let (bin, is_direct) = (&self.bins[class], bytes_of(class) <= DIRECT_MAX);
        self.count(2 * i64::from(bin.count_latest(run.countdown(class))));
        let held = run.hold_back(if is_direct { kept } else { 0 });
        bin.uncount(held);
        self.count(-2 * i64::from(held));
        if !is_direct {
            run.set_out_of_turn(kept);
            bin.restart(run.countdown(class));
        }
    }

    /// Takes a block out of the counts of operations that was handed out and is free again.
    pub(crate) fn uncount(&self, class: usize) {
        self.bins[class].uncount(1);
        self.count(-2);
    }

    /// Has all refills count for the block sampler, if there is one. For any thread: the heap's own
    /// may not see it at once.
    pub(crate) fn note_sampler(&self) {
        self.at_once.set(if block_sampler::get().is_some() { 0 } else { AT_ONCE });
    }
}
