//! Miri, which interprets no assembly: the words are thread-local variables of the standard
//! library.

use core::cell::Cell;

use crate::heap::{EMPTY, HeapPtr};

std::thread_local! {
    /// Without a destructor, so that it can be used at any time of a thread.
    static HEAP: Cell<HeapPtr> = const { Cell::new(EMPTY) };
    static OWN: Cell<HeapPtr> = const { Cell::new(EMPTY) };
}

/// Returns this thread's heap; at the start of a thread, the empty one.
pub(crate) fn heap() -> HeapPtr {
    HEAP.get()
}

/// Sets the heap in which this thread's calls look for blocks at first.
pub(crate) fn set_heap(heap: HeapPtr) {
    HEAP.set(heap);
}

/// Returns this thread's heap, or the empty one.
pub(crate) fn own() -> HeapPtr {
    OWN.get()
}

/// Sets this thread's heap.
pub(crate) fn set_own(heap: HeapPtr) {
    OWN.set(heap);
}

/// Returns a number that no other thread has that lives now.
pub(crate) fn thread_pointer() -> usize {
    HEAP.with(|heap| (&raw const *heap).addr())
}

/// Returns the time stamp counter, which Miri does not have. Seeds may be the same here.
pub(crate) fn ticks() -> u64 {
    0
}
