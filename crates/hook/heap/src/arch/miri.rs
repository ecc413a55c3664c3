//! Miri, which interprets no assembly: the word is a thread-local variable of the standard library.

use core::cell::Cell;

use crate::heap::{EMPTY, HeapPtr};

std::thread_local! {
    /// Without a destructor, so that it can be used at any time of a thread.
    static HEAP: Cell<HeapPtr> = const { Cell::new(EMPTY) };
}

/// Returns this thread's heap; at the start of a thread, the empty one.
pub(crate) fn heap() -> HeapPtr {
    HEAP.get()
}

/// Sets this thread's heap.
pub(crate) fn set_heap(heap: HeapPtr) {
    HEAP.set(heap);
}
