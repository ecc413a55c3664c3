//! Everything other than x86-64 Linux: no thread has a block or contexts.

#[inline(always)]
pub(crate) fn thread_word() -> usize {
    0
}

#[inline(always)]
pub(crate) fn thread_word_in_call(_: u64) -> usize {
    0
}

#[inline(always)]
pub(crate) fn set_thread_word(_: usize) {}

#[inline(always)]
pub(crate) fn contexts_word() -> usize {
    0
}

#[inline(always)]
pub(crate) fn set_contexts_word(_: usize) {}
