//! The part of a heap that the [block sampler](crate::sampled) needs.

use heapledger_core::block_sampler;

use super::Heap;
use crate::classes::{DIRECT_MAX, bytes_of};
use crate::run::NO_RUN;

impl Heap {
    /// Counts allocations of a class, of which none is to be sampled, while another class is due.
    /// False if that is not known, and nothing is counted.
    #[inline(never)]
    pub(super) fn skip_while_due(&self, class: usize, allocations: u32) -> bool {
        !self.countdown.is_due(class) && self.countdown.skip(allocations as isize)
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

    /// Returns the length of the free list of a class, by following it unless the run has no other
    /// free blocks.
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

    /// Begins to count for the block sampler, if there is one. For any thread: if the heap's own is
    /// at a refill meanwhile, it may not see it, and begins within sixteen more.
    pub(crate) fn note_sampler(&self) {
        if block_sampler::get().is_some() {
            self.countdown.begin();
        }
    }
}
