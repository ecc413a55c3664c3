//! The word of a thread in the table of slots, for a library without thread-local storage.

use core::sync::atomic::Ordering;

use heapledger_core::thread_slots::{current, of_call};

/// Returns this thread's word for its block: 0 at the start of every thread.
#[inline(always)]
pub(crate) fn thread_word() -> usize {
    current().block.load(Ordering::Relaxed)
}

/// Returns this thread's word for its block, during a redirected call: `sp` is that of its caller.
#[inline(always)]
pub(crate) fn thread_word_in_call(sp: u64) -> usize {
    // SAFETY: `of_call` requires *in a call*: see `open_in_call`.
    unsafe { of_call(sp) }.block.load(Ordering::Relaxed)
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
