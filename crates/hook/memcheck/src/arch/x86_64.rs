//! x86-64: initial-exec TLS words, and accesses to memory.

use core::arch::asm;

use heapledger_core::define_thread_words;

define_thread_words!("heapledger_checks", 128, pub(crate) word, pub(crate) set_word);

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
