//! x86-64: initial-exec TLS words, declared in assembly as those of `hook/thread` are.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".globl heapledger_checks",
    ".hidden heapledger_checks",
    ".type heapledger_checks, @object",
    ".size heapledger_checks, 128",
    ".p2align 4",
    "heapledger_checks:",
    ".zero 128",
    ".popsection",
);

/// Returns this thread's word at an offset, a multiple of 8 below 128. The word is 0 at the start
/// of every thread.
#[inline(always)]
pub(crate) fn word<const OFFSET: usize>() -> usize {
    const { assert!(OFFSET < 128 && OFFSET.is_multiple_of(8)) };
    let word: usize;
    // SAFETY: reads this thread's copy of a variable declared above, by the initial-exec sequence
    // of the x86-64 TLS ABI.
    unsafe {
        asm!(
            "mov {word}, qword ptr [rip + heapledger_checks@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{word} + {offset}]",
            word = out(reg) word,
            offset = const OFFSET,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Reads eight bytes that another thread may be writing.
///
/// # Safety
///
/// The bytes at `address` are readable. They need not be aligned.
#[inline(always)]
pub(crate) unsafe fn load(address: *const u8) -> u64 {
    let word: u64;
    // SAFETY: reads eight bytes, which are readable by this function's `# Safety`. A load by the
    // processor makes no data race, whatever it returns.
    unsafe {
        asm!(
            "mov {word}, qword ptr [{address}]",
            word = out(reg) word,
            address = in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Begins to bring a line of memory near, which is to be read soon.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // SAFETY: a hint, which has no effect on memory, whatever the address.
    unsafe {
        asm!("prefetcht0 byte ptr [{address}]", address = in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

/// Sets the word.
#[inline(always)]
pub(crate) fn set_word<const OFFSET: usize>(word: usize) {
    const { assert!(OFFSET < 128 && OFFSET.is_multiple_of(8)) };
    // SAFETY: writes this thread's copy of a variable declared above, which only these functions
    // access.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_checks@GOTTPOFF]",
            "mov qword ptr fs:[{at} + {offset}], {word}",
            at = out(reg) _,
            word = in(reg) word,
            offset = const OFFSET,
            options(nostack, preserves_flags),
        );
    }
}
