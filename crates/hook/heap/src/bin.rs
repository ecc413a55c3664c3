//! A bin: the runs of one class in a heap that have free blocks.

use core::cell::Cell;

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
}

impl Bin {
    pub(crate) const fn new() -> Bin {
        Bin { current: Cell::new(NO_RUN), partial: RunList::new(), empty: RunList::new(), is_idle: Cell::new(false) }
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
