//! x86-64: two initial-exec TLS words.

use heapledger_core::define_thread_words;

define_thread_words!("heapledger_thread", 16, word, set_word);

/// The offset of the word for the thread's block.
const BLOCK: usize = 0;
/// The offset of the word for its contexts.
const CONTEXTS: usize = 8;

/// Returns this thread's word for its block: 0 at the start of every thread.
#[inline(always)]
pub(crate) fn thread_word() -> usize {
    word::<BLOCK>()
}

/// Returns this thread's word for its block, during a call whose caller has this stack pointer.
#[inline(always)]
pub(crate) fn thread_word_in_call(_: u64) -> usize {
    thread_word()
}

/// Sets this thread's word for its block.
#[inline(always)]
pub(crate) fn set_thread_word(word: usize) {
    set_word::<BLOCK>(word);
}

/// Returns this thread's word for its contexts: 0 at the start of every thread.
#[inline(always)]
pub(crate) fn contexts_word() -> usize {
    word::<CONTEXTS>()
}

/// Sets this thread's word for its contexts.
#[inline(always)]
pub(crate) fn set_contexts_word(word: usize) {
    set_word::<CONTEXTS>(word);
}
