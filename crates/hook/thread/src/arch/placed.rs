//! The word of a thread in the table of slots, for a library without thread-local storage.

use core::sync::atomic::Ordering;

use heapledger_core::thread_slots::current;

/// Returns this thread's word for its block: 0 at the start of every thread.
#[inline(always)]
pub(crate) fn thread_word() -> usize {
    current().block.load(Ordering::Relaxed)
}

/// Sets this thread's word for its block.
#[inline(always)]
pub(crate) fn set_thread_word(word: usize) {
    current().block.store(word, Ordering::Relaxed);
}

/// Returns this thread's word for its contexts: nobody declares any to such a library.
#[inline(always)]
pub(crate) fn contexts_word() -> usize {
    0
}

/// Does nothing: see [`contexts_word`].
#[inline(always)]
pub(crate) fn set_contexts_word(_: usize) {}
