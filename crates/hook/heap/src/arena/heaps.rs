//! The heaps of an arena: threads adopt them, and leave them when they end.

use core::{mem, ptr};

use super::{Heaps, SharedArena, registry};
use crate::arch::thread_pointer;
use crate::base;
use crate::heap::{Heap, HeapPtr};
use crate::locked::Locked;
use crate::run::Owner;

/// The abandoned runs that a visit of an unowned heap looks at, too.
const VISITED: usize = 64;

impl SharedArena {
    /// Gives a thread a heap of the arena: one that another thread has left, or `unused`, or a new
    /// one. `home` is the thread's home heap; `None` if this is to be it. `None` if there is no
    /// memory.
    pub(crate) fn adopt(&'static self, home: Option<HeapPtr>, unused: Option<HeapPtr>) -> Option<HeapPtr> {
        let id = if self.is_main() { registry::main_id() } else { self.id() };
        self.heaps.with(|heaps| {
            let heap = match heaps.take_unowned() {
                Some(heap) => {
                    unused.into_iter().for_each(spare);
                    heap
                }
                None => {
                    let heap = unused.or_else(memory)?;
                    // SAFETY: `begin` demands memory that nobody uses as a heap: it is new, or
                    // spare, or the caller's own heap of an arena that was disposed of.
                    unsafe { heap.begin(self, id) };
                    heaps.add(heap);
                    heap
                }
            };
            heap.set_home(home.unwrap_or(heap));
            Some(heap)
        })
    }

    /// Takes a heap of this arena from this thread, which ends, and leaves it to others.
    pub(crate) fn leave(&'static self, heap: HeapPtr) {
        if self.is_main() {
            // It is not disposed of, so the lock can be left to others meanwhile.
            let pages_left = self.heaps.with(|heaps| heaps.pages_left);
            heap.leave(pages_left);
        }
        self.heaps.with(|heaps| {
            if heap.is_retired() {
                return spare(heap);
            }
            if !self.is_main() {
                heap.leave(heaps.pages_left);
            }
            heap.clear_home();
            self.abandon_runs(heaps, heap);
            heaps.push_unowned(heap);
            self.unclaim(thread_pointer());
        });
    }

    /// Releases what is free in a heap of this thread's, which is of this arena or was so until the
    /// arena was disposed of.
    pub(crate) fn trim_own(&self, heap: HeapPtr) {
        if self.is_main() {
            return heap.trim();
        }
        // Under the lock, so that no other thread disposes of the arena meanwhile.
        self.heaps.with(|_| {
            if !heap.is_retired() {
                heap.trim();
            }
        });
    }

    /// Releases what is free in the next heap that no thread has: blocks of it may have been freed
    /// by others since its thread ended.
    pub(crate) fn visit_unowned(&'static self) {
        if !self.is_main() {
            return self.heaps.with(|heaps| {
                if let Some(heap) = heaps.take_unowned() {
                    heap.trim();
                    self.abandon_runs(heaps, heap);
                    heaps.append(heap);
                }
                let emptied = self.take_emptied_abandoned(heaps, VISITED);
                self.give_back_emptied(emptied);
            });
        }
        if let Some(heap) = self.heaps.with(Heaps::take_unowned) {
            heap.trim();
            // The last one next time: the list is a queue.
            self.heaps.with(|heaps| {
                self.abandon_runs(heaps, heap);
                heaps.append(heap);
            });
        }
        self.sweep(VISITED);
    }

    /// Releases what is free in all heaps that no thread has.
    pub(crate) fn trim_unowned(&'static self) {
        if !self.is_main() {
            return self.heaps.with(|heaps| {
                let mut next = heaps.unowned();
                while let Some(heap) = next {
                    heap.trim();
                    self.abandon_runs(heaps, heap);
                    next = heap.next.get();
                }
                heaps.pages_left = 0;
                let emptied = self.take_emptied_abandoned(heaps, usize::MAX);
                self.give_back_emptied(emptied);
            });
        }
        let mut next = self.heaps.with(Heaps::take_all_unowned);
        while let Some(heap) = next {
            next = heap.next.take();
            heap.trim();
            self.heaps.with(|heaps| {
                self.abandon_runs(heaps, heap);
                heaps.push_unowned(heap);
            });
        }
        self.sweep(usize::MAX);
    }

    /// Tells the heaps if fresh memory becomes blocks in random order.
    pub(crate) fn note_randomisation(&self) {
        self.heaps.with(|heaps| heaps.each(HeapPtr::note_randomisation));
    }

    /// Has the refills of all heaps count for the block sampler.
    pub(crate) fn note_sampler(&self) {
        self.heaps.with(|heaps| heaps.each(|heap| heap.note_sampler()));
    }

    /// Locks the list of heaps for a fork.
    pub(crate) fn lock_heaps_for_fork(&self) {
        self.heaps.lock_for_fork();
    }

    /// Unlocks it.
    ///
    /// # Safety
    ///
    /// This thread, or the one that it was copied from, has called
    /// [`SharedArena::lock_heaps_for_fork`].
    pub(crate) unsafe fn unlock_heaps_after_fork(&self) {
        // SAFETY: `unlock_after_fork` demands that the lock was taken for the fork: this function's
        // `# Safety`.
        unsafe { self.heaps.unlock_after_fork() };
    }

    /// Forgets, in the child of a fork, the heaps of threads that only the parent has. They may
    /// have been in the middle of a change. Their blocks stay as they are. `home` is this thread's.
    pub(crate) fn keep(&self, home: HeapPtr) {
        self.heaps.with(|heaps| {
            let mut next = heaps.take_all();
            while let Some(heap) = next {
                next = heap.all_next.take();
                if heap.has_no_home() || heap.is_at_home(home) {
                    heaps.add(heap);
                } else {
                    heaps.has_lost = true;
                    heap.all_next.set(heap_at(heaps.lost));
                    heaps.lost = heap.as_owner();
                }
            }
        });
    }
}

fn heap_at(owner: *mut Owner) -> Option<HeapPtr> {
    // SAFETY: `from_owner` demands null or an address from `as_owner`: `Heaps` is made without any,
    // and the functions below store those only.
    unsafe { HeapPtr::from_owner(owner) }
}

impl Heaps {
    /// Adds a heap to all.
    pub(super) fn add(&mut self, heap: HeapPtr) {
        heap.all_next.set(heap_at(self.all));
        self.all = heap.as_owner();
    }

    /// Empties the list of all heaps. Returns the first.
    fn take_all(&mut self) -> Option<HeapPtr> {
        heap_at(mem::replace(&mut self.all, ptr::null_mut()))
    }

    fn unowned(&self) -> Option<HeapPtr> {
        heap_at(self.unowned)
    }

    fn set_unowned(&mut self, heap: Option<HeapPtr>) {
        self.unowned = heap.map_or(ptr::null_mut(), HeapPtr::as_owner);
    }

    fn push_unowned(&mut self, heap: HeapPtr) {
        self.note_unowned(heap);
        heap.next.set(self.unowned());
        self.set_unowned(Some(heap));
    }

    fn take_unowned(&mut self) -> Option<HeapPtr> {
        let heap = self.unowned()?;
        self.set_unowned(heap.next.take());
        self.pages_left -= heap.pages_empty();
        heap.is_unowned.set(false);
        Some(heap)
    }

    fn note_unowned(&mut self, heap: HeapPtr) {
        self.pages_left += heap.pages_empty();
        heap.is_unowned.set(true);
    }

    /// Empties the list of the heaps that no thread has. Returns the first.
    fn take_all_unowned(&mut self) -> Option<HeapPtr> {
        let first = self.unowned();
        let mut next = first;
        while let Some(heap) = next {
            heap.is_unowned.set(false);
            next = heap.next.get();
        }
        self.pages_left = 0;
        self.set_unowned(None);
        first
    }

    /// Puts a heap at the end of those that no thread has.
    fn append(&mut self, heap: HeapPtr) {
        self.note_unowned(heap);
        heap.next.set(None);
        let Some(mut last) = self.unowned() else { return self.set_unowned(Some(heap)) };
        while let Some(next) = last.next.get() {
            last = next;
        }
        last.next.set(Some(heap));
    }

    /// Calls a function with all heaps.
    pub(crate) fn each(&self, visit: impl FnMut(HeapPtr)) {
        Heaps::each_of(self.all, visit);
    }

    /// Calls a function with the heaps of threads that this process does not have, too.
    pub(crate) fn each_with_lost(&self, mut visit: impl FnMut(HeapPtr)) {
        Heaps::each_of(self.all, &mut visit);
        Heaps::each_of(self.lost, visit);
    }

    fn each_of(first: *mut Owner, mut visit: impl FnMut(HeapPtr)) {
        let mut next = heap_at(first);
        while let Some(heap) = next {
            next = heap.all_next.get();
            visit(heap);
        }
    }
}

/// The memory of heaps that no arena has, linked by `Heap::next`.
static SPARE: Locked<Option<HeapPtr>> = Locked::new(None);

/// Makes the memory of a heap without runs available to all arenas.
pub(crate) fn spare(heap: HeapPtr) {
    heap.retire();
    // A thread that has brought a notice may still ask, under the lock of the arena that ended.
    heap.is_unowned.set(false);
    SPARE.with(|first| heap.next.set(first.replace(heap)));
}

/// Returns memory for a heap, which nobody uses. `None` if there is none.
pub(super) fn memory() -> Option<HeapPtr> {
    take_spare().or_else(|| {
        let memory = ptr::NonNull::new(base::allocate(size_of::<Heap>()))?.cast();
        // SAFETY: `HeapPtr::new` demands a heap that is never freed: memory of the base allocator,
        // which is of that size and aligned to 64.
        Some(unsafe { HeapPtr::new(memory) })
    })
}

fn take_spare() -> Option<HeapPtr> {
    SPARE.with(|first| {
        let heap = (*first)?;
        *first = heap.next.take();
        Some(heap)
    })
}

/// Locks the spare heaps for a fork.
pub(crate) fn lock_spare_for_fork() {
    SPARE.lock_for_fork();
}

/// Unlocks the spare heaps.
///
/// # Safety
///
/// This thread, or the one that it was copied from, has called [`lock_spare_for_fork`].
pub(crate) unsafe fn unlock_spare_after_fork() {
    // SAFETY: `unlock_after_fork` demands the same as this function's `# Safety`.
    unsafe { SPARE.unlock_after_fork() };
}
