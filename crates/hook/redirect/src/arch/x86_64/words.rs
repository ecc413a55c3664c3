//! The words of a thread: initial-exec thread-local storage.

use core::arch::{asm, global_asm};

// The words are initial-exec, as those of `hook/thread` are: an access never allocates. The second
// has the address of the site while the outermost call is one of a redirected entry. The third has
// the frame pointer of the caller while it is not.
global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".globl heapledger_outermost",
    ".hidden heapledger_outermost",
    ".type heapledger_outermost, @object",
    ".size heapledger_outermost, 24",
    ".p2align 3",
    "heapledger_outermost:",
    ".zero 24",
    ".popsection",
);

/// Returns this thread's word: the stack pointer of the outermost call, 0 at the start of every
/// thread.
#[inline(always)]
pub(crate) fn outermost() -> u64 {
    read::<0>()
}

/// Returns the thread's word at a distance from the first one in bytes: 0, 8 or 16.
#[inline(always)]
fn read<const DISTANCE: u64>() -> u64 {
    let word;
    // SAFETY: reads one of the thread's own three words at its constant distance from the thread
    // pointer; no other memory, no stack, no flags.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_outermost@GOTTPOFF]",
            "mov {word}, qword ptr fs:[{at} + {distance}]",
            at = out(reg) _,
            word = lateout(reg) word,
            distance = const DISTANCE,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// Sets this thread's words: the stack pointer of the outermost call, and the address of the site
/// if it is one of a redirected entry; 0 otherwise. A word of a call that a jump has left does not
/// stay.
#[inline(always)]
pub(crate) fn set_outermost(word: u64, site: u64) {
    // SAFETY: writes the thread's own words at their constant distance from the thread pointer, to
    // which no reference exists; no stack, no flags.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_outermost@GOTTPOFF]",
            "mov qword ptr fs:[{at} + 8], {site}",
            "mov qword ptr fs:[{at}], {word}",
            at = out(reg) _,
            word = in(reg) word,
            site = in(reg) site,
            options(nostack, preserves_flags),
        );
    }
}

/// Returns the frame pointer with which the outermost call was made; meaningless if that is one of a
/// redirected entry.
#[inline(always)]
pub(crate) fn frame_pointer() -> u64 {
    read::<16>()
}

/// Sets this thread's words for a call that is not one of a redirected entry.
#[inline(always)]
pub(crate) fn begin_outermost(word: u64, frame_pointer: u64) {
    // SAFETY: as in `set_outermost`.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + heapledger_outermost@GOTTPOFF]",
            "mov qword ptr fs:[{at} + 16], {frame_pointer}",
            "mov qword ptr fs:[{at} + 8], 0",
            "mov qword ptr fs:[{at}], {word}",
            at = out(reg) _,
            word = in(reg) word,
            frame_pointer = in(reg) frame_pointer,
            options(nostack, preserves_flags),
        );
    }
}

/// Returns the address of the site whose entry this thread's outermost call is of; 0 if it is not
/// one of a redirected entry.
#[inline(always)]
pub(crate) fn site() -> u64 {
    read::<8>()
}

/// Finds the words at the beginning of the thunk, when r10 has been pushed, and marks the thread by
/// the stack pointer. A nested call goes on at the label 2. Pushes r9.
macro_rules! begin {
    () => {
        concat!(
            "mov r10, qword ptr [rip + heapledger_outermost@GOTTPOFF]\n",
            // The stack grows down: the stack pointer of a call around this one is larger.
            "cmp qword ptr fs:[r10], rsp\n",
            "ja 2f\n.cfi_remember_state\n",
            "mov qword ptr fs:[r10], rsp\n",
            "mov qword ptr fs:[r10 + 8], r11\n",
            "push r9\n.cfi_adjust_cfa_offset 8",
        )
    };
}
pub(super) use begin;

/// Keeps what [`end`] needs, in the 16 bytes at a distance from the stack pointer.
macro_rules! keep {
    () => {
        ""
    };
}
pub(super) use keep;

/// Takes the mark away, when the call has been made.
macro_rules! end {
    () => {
        concat!(
            "mov r10, qword ptr [rip + heapledger_outermost@GOTTPOFF]\n",
            "mov qword ptr fs:[r10 + 8], 0\n",
            "mov qword ptr fs:[r10], 0",
        )
    };
}
pub(super) use end;

/// Restores r10 for a nested call, at the label 2.
macro_rules! nested {
    () => {
        ".cfi_restore_state\npop r10\n.cfi_adjust_cfa_offset -8"
    };
}
pub(super) use nested;

/// Stands behind the thunk: there are no slow cases.
macro_rules! slow {
    () => {
        ".cfi_endproc"
    };
}
pub(super) use slow;
