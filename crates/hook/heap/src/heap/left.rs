//! Heaps that no thread has: those that ended threads left, and that of the abandoned runs.

use super::HeapPtr;
use crate::classes::CLASSES;
use crate::geometry::PAGE;
use crate::run::{NO_RUN, RunPtr};

/// The pages in empty runs that ended threads leave to the next ones in the main arena: 256 KiB in
/// all of their heaps. Other arenas have the part that [`HeapPtr::part_of`] returns.
const EMPTY_LEFT: usize = (256 << 10) / PAGE;

impl HeapPtr {
    /// Prepares the heap for being left by its thread: all runs are listed, full, or released.
    /// Other heaps that were left have `pages_left` pages in empty runs.
    pub(crate) fn leave(self, pages_left: usize) {
        self.release_unused(self.part_of(EMPTY_LEFT).saturating_sub(pages_left));
        for class in 0..CLASSES {
            let current = self.current[class].get();
            if current == NO_RUN {
                continue;
            }
            // A full run may just have got a block back.
            if !current.has_free() && current.fill() {
                self.set_current(class, NO_RUN);
            } else {
                self.give_up_current(class);
            }
        }
    }

    /// True if the heap has runs with blocks in use that are not full.
    pub(crate) fn has_listed(self) -> bool {
        self.bins.iter().any(|bin| bin.partial.first().is_some())
    }

    /// Moves all runs with blocks in use that are not full to another heap of the arena. Returns
    /// their number. No thread has either of the heaps.
    pub(crate) fn move_listed(self, to: HeapPtr) -> usize {
        let mut count = 0;
        for class in 0..CLASSES {
            while self.take_listed(class, to).is_some_and(|run| {
                to.bins[class].partial.push_back(run);
                true
            }) {
                count += 1;
            }
        }
        count
    }

    /// Takes a run of a class with blocks in use that is not full, for another heap of the arena.
    /// No thread has this heap.
    pub(crate) fn take_listed(self, class: usize, to: HeapPtr) -> Option<RunPtr> {
        let run = self.bins[class].partial.pop_front()?;
        self.slices.set(self.slices.get() - run.slices());
        to.slices.set(to.slices.get() + run.slices());
        run.set_owner(to.as_owner());
        Some(run)
    }

    /// Takes the notices of a heap that no thread has. Returns the runs without blocks in use, as a
    /// list: the heap does not have them any more.
    pub(crate) fn take_emptied(self) -> Option<RunPtr> {
        let (mut next, mut emptied) = (RunPtr::from(self.shared.notices.take()), None);
        while let Some(run) = next {
            next = run.next();
            run.end_notice();
            if run.used() == 0 {
                self.take_out(run, &mut emptied);
            } else {
                self.bins[run.class()].partial.push_back(run);
            }
        }
        emptied
    }

    /// Adds a run that is in no list to those that are given back.
    fn take_out(self, run: RunPtr, emptied: &mut Option<RunPtr>) {
        self.count(run.carved() as i64);
        self.slices.set(self.slices.get() - run.slices());
        run.set_next(emptied.replace(run));
    }

    /// Looks at `count` runs with blocks in use of a heap that no thread has, class by class.
    /// Returns those of which all blocks were freed, as a list, and their number.
    pub(crate) fn sweep(self, count: usize) -> (Option<RunPtr>, usize) {
        let (mut emptied, mut taken, mut rest) = (None, 0, count);
        for _ in 0..CLASSES {
            if rest == 0 {
                break;
            }
            // A bin with more runs goes on where it has stopped when its turn comes again: runs
            // that were looked at are its last ones.
            let bin = &self.bins[self.visited.get()];
            let last = bin.partial.last();
            while rest > 0
                && let Some(run) = bin.partial.first()
            {
                rest -= 1;
                bin.partial.unlink(run);
                run.take_remote();
                if run.used() == 0 {
                    self.take_out(run, &mut emptied);
                    taken += 1;
                } else {
                    bin.partial.push_back(run);
                }
                if last == Some(run) {
                    break;
                }
            }
            self.visited.set((self.visited.get() + 1) % CLASSES);
        }
        (emptied, taken)
    }
}
