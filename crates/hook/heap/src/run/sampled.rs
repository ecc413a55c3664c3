//! The part of a run that the [block sampler](crate::sampled) needs: it decides when the next
//! refill comes.

use core::ptr;

use super::{FRESH, Run, RunPtr};

/// The most blocks for [`Run::set_out_of_turn`].
pub(crate) const KEPT_MAX: usize = FRESH as usize - 2;

impl RunPtr {
    /// Leaves that many blocks of the free list in it, and makes the others the first of those that
    /// the owner has freed. Returns the number of these.
    #[cold]
    pub(crate) fn hold_back(self, kept: usize) -> u32 {
        let is_only_list = self.local().is_null();
        let (first, key) = (self.free.get(), self.key());
        let (mut last, mut rest) = (ptr::null_mut(), first);
        for _ in 0..kept {
            if rest.is_null() {
                return 0;
            }
            last = rest;
            // SAFETY: `next` demands a block of a free list: see `check_lists`.
            rest = unsafe { key.next(rest) };
        }
        if last.is_null() {
            return self.give_back_free();
        }
        // SAFETY: `set_next` demands a block that the caller owns: it is one of the free list.
        unsafe { key.set_next(last, ptr::null_mut()) };
        self.free.set(rest);
        let held = self.give_back_free();
        self.free.set(first);
        // That function does not follow the only list: it counts all free blocks.
        if is_only_list && held > 0 { held.saturating_sub(kept as u32) } else { held }
    }

    /// Returns the length of the free list, at most the number of the run's blocks.
    pub(crate) fn free_count(self) -> usize {
        if !self.free.get().is_null() && self.local().is_null() {
            // Often so, when the list was filled just now.
            return self.unused() as usize;
        }
        let (mut block, mut count) = (self.free.get(), 0);
        while !block.is_null() && count < usize::from(self.capacity.get()) {
            count += 1;
            // SAFETY: `next` demands a block of a free list: see `check_lists`.
            block = unsafe { self.key().next(block) };
        }
        count
    }
}

impl Run {
    /// Returns the number of blocks that [`Run::pop_latest`] may take out of turn until the next
    /// refill, if it takes those of the class, otherwise 0.
    #[inline(always)]
    pub(crate) fn out_of_turn(&self, class: usize) -> u8 {
        self.countdown(class).saturating_sub(1)
    }

    /// Sets that number, to at most [`KEPT_MAX`]. The blocks of the free list, if there are some,
    /// count as not fresh.
    pub(crate) fn set_out_of_turn(&self, kept: usize) {
        self.pops.set(kept.min(KEPT_MAX) as u8 + 1);
    }
}
