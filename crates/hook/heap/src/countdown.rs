//! The allocations of a heap until the next one that is to be sampled: see `sampled.rs`.

use core::cell::Cell;

use heapledger_core::block_sampler::BlockSampler;

use crate::classes::CLASSES;
use crate::relaxed::RelaxedI64;

const _: () = assert!(CLASSES <= u128::BITS as usize, "each class has a bit");

/// The allocations that are left without a sampler: more than a program makes in a century.
const NEVER: i64 = 1 << 62;
/// The least number that means that the heap does not count for a sampler.
const UNCOUNTED: i64 = NEVER / 2;
/// The bit of [`Countdown::left`] that is set while a class is due.
const DUE: i64 = i64::MIN;
/// The refills for reallocations that find their class due until another class may be.
const PASSED_MAX: u8 = 8;

/// The allocations of a heap until the next one that is to be sampled.
#[derive(Debug)]
pub(crate) struct Countdown {
    /// The allocations that the sampler has counted, and that were not handed out yet; at least
    /// [`UNCOUNTED`] if the heap does not count. [`DUE`] makes it less than any number, so that
    /// refills compare it once.
    left: RelaxedI64,
    /// True if the one after these is to be sampled.
    ends_with_sample: Cell<bool>,
    /// The refills for reallocations that have found their class due since one became so.
    passed: Cell<u8>,
    /// The classes of which the next refill's block is to be sampled, as bits, unless blocks that
    /// may be taken [out of turn](crate::heap::Heap::out_of_turn) come before it.
    due: Cell<u128>,
}

impl Countdown {
    pub(crate) const fn new() -> Countdown {
        Countdown {
            left: RelaxedI64::with(NEVER),
            ends_with_sample: Cell::new(false),
            passed: Cell::new(0),
            due: Cell::new(0),
        }
    }

    /// Begins to count for a sampler, unless the heap does so already. For any thread: if the
    /// heap's own counts meanwhile, nothing changes, and the next attempt succeeds.
    pub(crate) fn begin(&self) {
        let left = self.left.get();
        if left >= UNCOUNTED {
            self.left.exchange(left, 0);
        }
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
        self.left.set(self.left.get() | DUE);
        self.passed.set(0);
    }

    /// Ends that a class is due.
    pub(crate) fn end_due(&self, class: usize) {
        self.due.set(self.due.get() & !(1 << class));
        if self.due.get() == 0 {
            self.left.set(self.left());
        }
    }

    /// Notes a refill for a reallocation, whose block is never sampled, of a class that is due.
    /// False if there were many: then the class is due no more, and an allocation of any class is
    /// sampled instead when the present stretch ends. A program may only reallocate blocks of this
    /// class from now on.
    pub(crate) fn pass(&self, sampler: &BlockSampler, class: usize) -> bool {
        self.passed.set(self.passed.get() + 1);
        if self.passed.get() < PASSED_MAX {
            return true;
        }
        self.passed.set(0);
        self.end_due(class);
        if self.left() == 0 && !self.ends_with_sample.get() {
            self.count(sampler);
        }
        self.ends_with_sample.set(true);
        false
    }

    /// Returns the allocations that are left.
    #[inline(always)]
    fn left(&self) -> i64 {
        self.left.get() & !DUE
    }

    /// Sets the allocations that are left.
    #[inline(always)]
    fn set_left(&self, left: i64) {
        self.left.set(left | self.left.get() & DUE);
    }

    /// Counts some allocations, of which none is to be sampled, if no class is due. False if the
    /// next sample comes before that, or if a class is due: then nothing is counted.
    #[inline(always)]
    pub(crate) fn skip_at_once(&self, allocations: u32) -> bool {
        let left = self.left.get();
        let is_known = left >= i64::from(allocations);
        if is_known {
            self.left.set(left - i64::from(allocations));
        }
        is_known
    }

    /// Counts some allocations, of which none is to be sampled. Below 0: some that were counted are
    /// not made. False if that is not known, and nothing is counted.
    #[inline(always)]
    pub(crate) fn skip(&self, allocations: isize) -> bool {
        let left = self.left();
        let is_known = allocations as i64 <= left;
        if is_known {
            self.set_left(left - allocations as i64);
        }
        is_known
    }

    /// Counts up to `wanted` allocations. Returns how many come before the one that is to be
    /// sampled, which is counted, too; `wanted` if none of them is to be.
    pub(crate) fn take(&self, sampler: &BlockSampler, wanted: usize) -> usize {
        while self.left() < wanted as i64 && !self.ends_with_sample.get() {
            self.count(sampler);
        }
        let left = self.left();
        if left >= wanted as i64 {
            self.set_left(left - wanted as i64);
            return wanted;
        }
        self.ends_with_sample.set(false);
        self.set_left(0);
        left as usize
    }

    /// Has the sampler count the allocations that come after those that are left, of which none is
    /// to be sampled.
    fn count(&self, sampler: &BlockSampler) {
        // SAFETY: `count` may be called at any time.
        let counted = unsafe { (sampler.count)() };
        self.set_left(self.left() + i64::from(counted.allocations));
        self.ends_with_sample.set(counted.ends_with_sample != 0);
    }
}
