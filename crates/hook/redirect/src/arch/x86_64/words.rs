//! The words of a thread: initial-exec thread-local storage.

use core::arch::asm;

use heapledger_core::define_thread_words;
use heapledger_core::hooks::Caller;

// The second one has the address of the site while the outermost call is one of a redirected entry.
// The third one has the frame pointer of the caller while it is not, and is 0 otherwise: a signal
// handler may come between the writes of a thunk to the first two.
define_thread_words!("heapledger_outermost", 24, word);

/// Returns this thread's word: the stack pointer of the outermost call, 0 at the start of every
/// thread.
#[inline(always)]
pub(crate) fn outermost() -> u64 {
    word::<0>() as u64
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

/// Returns the frame pointer with which the outermost call was made; 0 if that is one of a
/// redirected entry.
#[inline(always)]
pub(crate) fn frame_pointer() -> u64 {
    word::<16>() as u64
}

/// Takes the mark away at the end of a call that is not one of a redirected entry.
#[inline(always)]
pub(crate) fn end_outermost() {
    begin_outermost(0, 0);
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
    word::<8>() as u64
}

/// Sets this thread's words again: see [`set_outermost`].
///
/// # Safety
///
/// None here: see `placed_words`.
#[inline(always)]
pub(crate) unsafe fn mark_again(_: Caller, word: u64, site: u64) {
    set_outermost(word, site);
}

/// Takes the mark away at the end of a call by a thunk that uses the registers a call may change.
#[inline(always)]
pub(crate) fn unmark() {
    set_outermost(0, 0);
}

/// Passes the operands of the macros below to a macro that defines a thunk: there are none.
macro_rules! with_operands {
    ($define:ident) => {
        $define! {}
    };
}
pub(super) use with_operands;

/// Begins the preserving thunk when r10 has been pushed: marks the thread by the stack pointer. A
/// nested call goes on at the label 2. Pushes r9.
macro_rules! begin_preserving {
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
pub(super) use begin_preserving;

/// Keeps what [`end_preserving`] needs, in the 16 bytes at a distance from the stack pointer.
macro_rules! keep {
    () => {
        ""
    };
}
pub(super) use keep;

/// Takes the mark away, when the call has been made. Changes r10.
macro_rules! end_preserving {
    () => {
        concat!(
            "mov r10, qword ptr [rip + heapledger_outermost@GOTTPOFF]\n",
            "mov qword ptr fs:[r10 + 8], 0\n",
            "mov qword ptr fs:[r10], 0",
        )
    };
}
pub(super) use end_preserving;

/// Restores r10 for a nested call, at the label 2.
macro_rules! nested {
    () => {
        ".cfi_restore_state\npop r10\n.cfi_adjust_cfa_offset -8"
    };
}
pub(super) use nested;

/// Stands at the end of every thunk: there are no slow cases. The label of nested calls is given.
macro_rules! slow {
    ($nested:literal) => {
        ".cfi_endproc"
    };
}
pub(super) use slow;

/// Marks the thread with the stack pointer on entry, in a thunk that uses the registers a call may
/// change. A nested call goes on at the label 8. Changes r10.
macro_rules! mark {
    () => {
        "mov r10, qword ptr [rip + heapledger_outermost@GOTTPOFF]
        cmp qword ptr fs:[r10], rsp
        ja 8f
        mov qword ptr fs:[r10], rsp
        mov qword ptr fs:[r10 + 8], r11"
    };
}
pub(super) use mark;

/// Calls the function of a plain kind, which gets the three arguments of the call, and returns to
/// its caller.
macro_rules! call_plain {
    ($function:literal) => {
        concat!("mov rcx, rsp\nmov r8, rbp\nmov r9, r11\njmp ", $function)
    };
}
pub(super) use call_plain;

/// Calls the function of operators that throw, and returns if there is a block.
macro_rules! call_new {
    ($function:literal) => {
        concat!(
            "mov rsi, rsp\nmov rdx, rbp\nmov rcx, r11\n",
            "push rdi\n.cfi_adjust_cfa_offset 8\n",
            "call ",
            $function,
            "\npop rdi\n.cfi_adjust_cfa_offset -8",
        )
    };
}
pub(super) use call_new;

/// Calls the function of reallocations, which gets the four arguments of the call, and the site on
/// the stack.
macro_rules! call_realloc {
    ($function:literal) => {
        concat!(
            "mov r8, rsp\nmov r9, rbp\n",
            "push r11\n.cfi_adjust_cfa_offset 8\n",
            "call ",
            $function,
            "\nadd rsp, 8\n.cfi_adjust_cfa_offset -8\nret",
        )
    };
}
pub(super) use call_realloc;

/// Begins the thunk for all other kinds: pushes r11 and r10, and marks the thread by the stack
/// pointer. A nested call goes on at the label 8.
macro_rules! begin_other {
    () => {
        "mov r10, qword ptr [rip + heapledger_outermost@GOTTPOFF]
        cmp qword ptr fs:[r10], rsp
        ja 8f
        .cfi_remember_state
        push r11
        .cfi_adjust_cfa_offset 8
        push r10
        .cfi_adjust_cfa_offset 8
        mov qword ptr fs:[r10], rsp
        mov qword ptr fs:[r10 + 8], r11"
    };
}
pub(super) use begin_other;

/// Takes the mark away, when the call has been made, with the saved registers at the stack pointer.
/// Changes r10.
macro_rules! end_other {
    () => {
        words::end_preserving!()
    };
}
pub(super) use end_other;
