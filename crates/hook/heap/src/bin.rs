//! A bin: the runs of one class in a heap that have free blocks.

use core::cell::Cell;

use crate::relaxed::{RelaxedU32, RelaxedU64};
use crate::run::{NO_RUN, RunPtr};

/// The current run of a class, and the others with free blocks.
#[derive(Debug)]
pub(crate) struct Bin {
    pub(crate) current: Cell<RunPtr>,
    /// The runs with blocks in use. The one that has been here for longest is used first: it has
    /// had the most time to get free blocks.
    pub(crate) partial: RunList,
    /// The runs without blocks in use, which are used last.
    pub(crate) empty: RunList,
    /// True if the current run was not used since the last visit.
    pub(crate) is_idle: Cell<bool>,
    /// The blocks that [`Heap::pop`](crate::heap::Heap::pop) may return until the next refill.
    pub(crate) pops: RelaxedU32,
    /// The pops that there were after the last refill.
    batch: RelaxedU32,
    /// The blocks that were handed out: if they are popped, until the last refill; otherwise until
    /// the current run's free list is empty, which the last refill has filled.
    allocations: RelaxedU64,
}

impl Bin {
    pub(crate) const fn new() -> Bin {
        Bin {
            current: Cell::new(NO_RUN),
            partial: RunList::new(),
            empty: RunList::new(),
            is_idle: Cell::new(false),
            pops: RelaxedU32::new(),
            batch: RelaxedU32::new(),
            allocations: RelaxedU64::new(),
        }
    }

    /// Counts the block that a refill returns, and those that were popped since the last one.
    /// `pops` may be popped until the next. Returns their number.
    #[inline(always)]
    pub(crate) fn begin_pops(&self, pops: u32) -> i64 {
        let handed_out = i64::from(self.batch.get() - self.pops.get()) + 1;
        self.allocations.set(self.allocations.get() + handed_out as u64);
        self.batch.set(pops);
        self.pops.set(pops);
        handed_out
    }

    /// Counts blocks that are handed out from now on, or came from another bin.
    #[inline(always)]
    pub(crate) fn count(&self, blocks: u32) {
        self.allocations.set(self.allocations.get() + u64::from(blocks));
    }

    /// Uncounts blocks that were not handed out.
    pub(crate) fn uncount(&self, blocks: u32) {
        self.allocations.set(self.allocations.get().saturating_sub(u64::from(blocks)));
    }

    /// Returns the number of blocks that were handed out, and of those in the current run's free
    /// list if blocks are not popped. For any thread.
    pub(crate) fn allocations(&self) -> u64 {
        self.allocations.get() + u64::from(self.batch.get().saturating_sub(self.pops.get()))
    }
}

/// A doubly linked list of runs.
#[derive(Debug)]
pub(crate) struct RunList {
    first: Cell<Option<RunPtr>>,
    last: Cell<Option<RunPtr>>,
}

impl RunList {
    const fn new() -> RunList {
        RunList { first: Cell::new(None), last: Cell::new(None) }
    }

    pub(crate) fn first(&self) -> Option<RunPtr> {
        self.first.get()
    }

    /// Adds a run that is in no list.
    pub(crate) fn push_back(&self, run: RunPtr) {
        let last = self.last.replace(Some(run));
        run.set_previous(last);
        run.set_next(None);
        match last {
            Some(last) => last.set_next(Some(run)),
            None => self.first.set(Some(run)),
        }
    }

    /// Removes a run of the list.
    pub(crate) fn unlink(&self, run: RunPtr) {
        match run.previous() {
            Some(before) => before.set_next(run.next()),
            None => self.first.set(run.next()),
        }
        match run.next() {
            Some(behind) => behind.set_previous(run.previous()),
            None => self.last.set(run.previous()),
        }
    }

    pub(crate) fn pop_front(&self) -> Option<RunPtr> {
        self.first.get().inspect(|&run| self.unlink(run))
    }

    pub(crate) fn pop_back(&self) -> Option<RunPtr> {
        self.last.get().inspect(|&run| self.unlink(run))
    }
}
