//! A bin: the runs of one class in a heap that have free blocks.

use core::cell::Cell;

use crate::relaxed::{RelaxedU8, RelaxedU64};
use crate::run::RunPtr;

/// The runs of a class with free blocks, but for the current one.
#[derive(Debug)]
pub(crate) struct Bin {
    /// The runs with blocks in use. The one that has been here for longest is used first: it has
    /// had the most time to get free blocks.
    pub(crate) partial: RunList,
    /// The runs without blocks in use, which are used last.
    pub(crate) empty: RunList,
    /// True if the current run was not used since the last visit.
    pub(crate) is_idle: Cell<bool>,
    /// The countdown of the current run when the blocks that were taken out of turn were counted
    /// last: see [`Run::pop_latest`](crate::run::Run::pop_latest).
    countdown: RelaxedU8,
    /// The blocks that were handed out, with those in the current run's free list, and without
    /// those that were taken out of turn since.
    allocations: RelaxedU64,
}

impl Bin {
    pub(crate) const fn new() -> Bin {
        Bin {
            partial: RunList::new(),
            empty: RunList::new(),
            is_idle: Cell::new(false),
            countdown: RelaxedU8::new(),
            allocations: RelaxedU64::new(),
        }
    }

    /// Counts the blocks that were taken out of turn since this was called last: the current run
    /// has `countdown` left. Returns their number.
    #[inline(always)]
    pub(crate) fn count_latest(&self, countdown: u8) -> u32 {
        let taken = u32::from(self.countdown.get().wrapping_sub(countdown));
        self.countdown.set(countdown);
        self.count(taken);
        taken
    }

    /// Notes the countdown of the current run, when that was changed.
    #[inline(always)]
    pub(crate) fn restart(&self, countdown: u8) {
        self.countdown.set(countdown);
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

    /// Returns the number of blocks that were handed out, with those in the current run's free
    /// list. That run has `countdown` left. For any thread.
    pub(crate) fn allocations(&self, countdown: u8) -> u64 {
        self.allocations.get() + u64::from(self.countdown.get().saturating_sub(countdown))
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

    pub(crate) fn last(&self) -> Option<RunPtr> {
        self.last.get()
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
