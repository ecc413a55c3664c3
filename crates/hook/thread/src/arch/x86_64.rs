//! x86-64: two initial-exec TLS words, declared in assembly because stable Rust has no
//! `#[thread_local]`.
//!
//! Initial-exec means that an access takes two instructions and never calls `__tls_get_addr`, which
//! may allocate. The price is 16 bytes of the static TLS space of every thread.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".globl heapledger_thread",
    ".hidden heapledger_thread",
    ".type heapledger_thread, @object",
    ".size heapledger_thread, 16",
    ".p2align 4",
    "heapledger_thread:",
    ".zero 16",
    ".popsection",
);

/// The offset of the word for the thread's block.
const BLOCK: usize = 0;
/// The offset of the word for its contexts.
const CONTEXTS: usize = 8;

/// Returns this thread's word for its block: 0 at the start of every thread.
#[inline(always)]
pub(crate) fn thread_word() -> usize {
    word::<BLOCK>()
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

#[inline(always)]
fn word<const OFFSET: usize>() -> usize {
    let word: usize;
    // SAFETY: reads this thread's copy of a variable declared above, by the initial-exec sequence
    // of the x86-64 TLS ABI.
    unsafe {
        asm!(
            "mov {word}, qword ptr [rip + heapledger_thread@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{word} + {offset}]",
            word = out(reg) word,
            offset = const OFFSET,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

#[inline(always)]
fn set_word<const OFFSET: usize>(word: usize) {
    // SAFETY: writes this thread's copy of a variable declared above, which only these functions
    // access.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_thread@GOTTPOFF]",
            "mov qword ptr fs:[{at} + {offset}], {word}",
            at = out(reg) _,
            word = in(reg) word,
            offset = const OFFSET,
            options(nostack, preserves_flags),
        );
    }
}
