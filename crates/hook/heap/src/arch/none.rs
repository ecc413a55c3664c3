//! Systems on which there is no memory to be had: every thread has the empty heap for ever.

pub(crate) use heapledger_core::arch::{thread_pointer, ticks};

use crate::heap::{EMPTY, HeapPtr};

pub(crate) fn heap() -> HeapPtr {
    EMPTY
}

pub(crate) fn set_heap(_: HeapPtr) {}

pub(crate) fn own() -> HeapPtr {
    EMPTY
}

pub(crate) fn set_own(_: HeapPtr) {}
