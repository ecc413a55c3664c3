//! x86-64: an initial-exec TLS word, declared in assembly since stable Rust has no `#[thread_local]`.
//!
//! Initial-exec means that access is two instructions and never calls `__tls_get_addr`, which may allocate. The price
//! is 8 bytes of the static TLS space of every thread.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".globl heapledger_thread",
    ".hidden heapledger_thread",
    ".type heapledger_thread, @object",
    ".size heapledger_thread, 8",
    ".p2align 3",
    "heapledger_thread:",
    ".zero 8",
    ".popsection",
);

/// This thread's word: 0 at the start of every thread.
#[inline(always)]
pub(crate) fn thread_word() -> usize {
    let word: usize;
    // SAFETY: reads this thread's copy of the variable declared above, by the initial-exec sequence of the x86-64 TLS
    // ABI.
    unsafe {
        asm!(
            "mov {word}, qword ptr [rip + heapledger_thread@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{word}]",
            word = out(reg) word,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Sets this thread's word.
#[inline(always)]
pub(crate) fn set_thread_word(word: usize) {
    // SAFETY: writes this thread's copy of the variable declared above, which only these two functions access.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_thread@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {word}",
            at = out(reg) _,
            word = in(reg) word,
            options(nostack, preserves_flags),
        );
    }
}
