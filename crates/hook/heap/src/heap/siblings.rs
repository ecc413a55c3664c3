//! The other heaps of a thread, in arenas: a table in its home heap.

use core::cell::Cell;

use super::{ARENA_HEAPS, EMPTY, Heap, HeapPtr};

impl Heap {
    /// Adds one of the thread's other heaps to the table, if this is the home heap.
    pub(crate) fn add_sibling(&self, heap: HeapPtr) {
        heap.sibling.set(self.arena_heaps(heap.membership.id()).replace(heap));
    }

    /// Returns the list of the thread's heaps in which the one of an arena is, if this is the home
    /// heap. Its first heap may be of another arena, or [`EMPTY`].
    #[inline(always)]
    pub(crate) fn arena_heaps(&self, id: u64) -> &Cell<HeapPtr> {
        // SAFETY: `get_unchecked` demands an index in bounds: the rest is below the length.
        unsafe { self.arena_heaps.get_unchecked(id as usize % ARENA_HEAPS) }
    }

    /// Calls a function with all lists of the thread's other heaps, if this is the home heap.
    pub(crate) fn each_list(&self, visit: impl FnMut(&Cell<HeapPtr>)) {
        self.arena_heaps.iter().for_each(visit);
    }

    /// Calls a function with the thread's other heaps, if this is the home heap.
    pub(crate) fn each_sibling(&self, mut visit: impl FnMut(HeapPtr)) {
        for list in &self.arena_heaps {
            let mut heap = list.get();
            while !heap.is_empty() {
                let next = heap.sibling.get();
                visit(heap);
                heap = next;
            }
        }
    }

    /// Empties the table of the thread's other heaps. Calls a function with each.
    pub(crate) fn take_siblings(&self, mut visit: impl FnMut(HeapPtr)) {
        for list in &self.arena_heaps {
            let mut heap = list.replace(EMPTY);
            while !heap.is_empty() {
                let next = heap.sibling.replace(EMPTY);
                visit(heap);
                heap = next;
            }
        }
    }
}
