//! Abandoned runs: those with blocks in use that threads left when they ended.
//!
//! An arena has one heap for them that no thread ever has. A heap that would otherwise take new
//! slices takes a run of the class from it. So the free blocks of ended threads are used again by
//! any thread, and not only by the one that adopts the heap of their thread.
//!
//! Full runs are not here, because heaps do not know where those are. They belong to the heap that
//! their thread left until a block of them is freed. The thread that frees it moves them here.
//!
//! Nobody allocates from abandoned runs, so nobody notices that all blocks of one were freed. For
//! that, the threads that free such blocks *sweep* some abandoned runs now and then.

use core::ptr;
use core::sync::atomic::Ordering;

use super::{Heaps, SharedArena, heaps, registry};
use crate::heap::HeapPtr;
use crate::run::RunPtr;

/// The bytes of ended threads' blocks that are freed between two sweeps, with [`EACH`].
const SWEPT_AFTER: usize = 256 << 10;
/// The bytes that are added for each block: a run that is mostly empty becomes empty by few frees.
const EACH: usize = 2 << 10;
/// The runs that a sweep looks at, at most: one for each free before it, so that sweeps keep up
/// with the frees, however few of them empty a run.
const SWEPT: usize = SWEPT_AFTER / EACH;

/// Runs without blocks in use that were taken from a heap: the first of a list.
type Emptied = Option<RunPtr>;

impl SharedArena {
    /// Takes an abandoned run of a class, which has free blocks, for a heap of the arena.
    #[inline]
    pub(crate) fn take_abandoned(&self, class: usize, to: HeapPtr) -> Option<RunPtr> {
        // Usually there are none, and a load takes no lock.
        if self.abandoned.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.heaps.with(|heaps| {
            let run = heaps.abandoned()?.take_listed(class, to)?;
            self.abandoned.fetch_sub(1, Ordering::Relaxed);
            Some(run)
        })
    }

    /// Moves the listed runs of a heap that no thread has to the abandoned ones. The lock of the
    /// heaps is held.
    #[inline(never)]
    pub(super) fn abandon_runs(&'static self, heaps: &mut Heaps, from: HeapPtr) {
        if !from.has_listed() {
            return;
        }
        let Some(to) = self.heap_for_abandoned(heaps) else { return };
        self.abandoned.fetch_add(from.move_listed(to), Ordering::Relaxed);
    }

    /// Returns the heap for abandoned runs. `None` if there is no memory for it: then runs stay in
    /// the heap that has them, which is adopted or visited later.
    fn heap_for_abandoned(&'static self, heaps: &mut Heaps) -> Option<HeapPtr> {
        heaps.abandoned().or_else(|| {
            let heap = heaps::memory()?;
            // SAFETY: `begin` demands memory that nobody uses as a heap: it is new, or spare.
            unsafe { heap.begin(self, if self.is_main() { registry::main_id() } else { self.id() }) };
            heaps.set_abandoned(heap);
            Some(heap)
        })
    }

    /// Handles the notices of a heap that this thread does not have, if no thread has it: its full
    /// runs are given up or become abandoned ones. For the thread that has brought a notice.
    #[cold]
    #[inline(never)]
    pub(crate) fn receive(&'static self, heap: HeapPtr) {
        self.give_up(|heaps| {
            if !heap.is_unowned.get() || !ptr::eq(heap.arena(), self) {
                return None;
            }
            let emptied = heap.take_emptied();
            self.abandon_runs(heaps, heap);
            emptied
        });
    }

    /// Counts a block that was freed in a run of a heap without a thread. Now and then looks for
    /// abandoned runs of which all blocks were freed.
    #[inline]
    pub(crate) fn count_abandoned(&'static self, bytes: usize) {
        let bytes = bytes + EACH;
        let before = self.freed_abandoned.fetch_add(bytes, Ordering::Relaxed);
        if before / SWEPT_AFTER != before.wrapping_add(bytes) / SWEPT_AFTER {
            self.sweep(SWEPT);
        }
    }

    /// Looks at abandoned runs, at most so many, and gives those back that have no block in use.
    #[cold]
    #[inline(never)]
    pub(crate) fn sweep(&'static self, count: usize) {
        if self.abandoned.load(Ordering::Relaxed) != 0 {
            self.give_up(|heaps| self.take_emptied_abandoned(heaps, count));
        }
    }

    /// Takes those out of `count` abandoned runs that have no block in use.
    #[inline(never)]
    pub(super) fn take_emptied_abandoned(&self, heaps: &Heaps, count: usize) -> Emptied {
        let (emptied, taken) = heaps.abandoned()?.sweep(count);
        self.abandoned.fetch_sub(taken, Ordering::Relaxed);
        emptied
    }

    /// Calls a function under the lock of the heaps, and gives the runs back that it returns. For
    /// the main arena that is done without the lock, because it may take system calls; another
    /// arena might be disposed of meanwhile.
    fn give_up(&'static self, take: impl FnOnce(&mut Heaps) -> Emptied) {
        if self.is_main() {
            let emptied = self.heaps.with(take);
            self.give_back_emptied(emptied);
        } else {
            self.heaps.with(|heaps| {
                let emptied = take(heaps);
                self.give_back_emptied(emptied);
            });
        }
    }

    /// Gives runs back that no heap has in a list any more.
    #[inline(never)]
    pub(super) fn give_back_emptied(&'static self, emptied: Emptied) {
        let mut next = emptied;
        while let Some(run) = next {
            next = run.next();
            run.check_unused();
            self.give_back_run(run);
        }
    }
}

impl Heaps {
    /// Returns the heap for abandoned runs, if there have been some.
    pub(super) fn abandoned(&self) -> Option<HeapPtr> {
        // SAFETY: `from_owner` demands null or an address from `as_owner`, as `set_abandoned`
        // stores it.
        unsafe { HeapPtr::from_owner(self.abandoned) }
    }

    fn set_abandoned(&mut self, heap: HeapPtr) {
        debug_assert_eq!(self.abandoned, ptr::null_mut());
        self.abandoned = heap.as_owner();
        self.add(heap);
    }
}
