//! The words of a thread, in the table of slots: for a library without thread-local storage. They
//! are the fields `outermost` and `site` of the thread's slot.

use core::arch::naked_asm;
use core::sync::atomic::Ordering;

use heapledger_core::hooks::Caller;
use heapledger_core::preserved_call;
use heapledger_core::thread_slots::{current, enter, of_call};

/// Returns this thread's word: the stack pointer of the outermost call, 0 at the start of every
/// thread.
#[inline(always)]
pub(crate) fn outermost() -> u64 {
    current().outermost.load(Ordering::Relaxed)
}

/// Sets this thread's words: the stack pointer of the outermost call, and the address of the site
/// if it is one of a redirected entry; 0 otherwise. A word of a call that a jump has left does not
/// stay.
#[inline(always)]
pub(crate) fn set_outermost(word: u64, site: u64) {
    let slot = current();
    slot.site.store(site, Ordering::Relaxed);
    slot.outermost.store(word, Ordering::Relaxed);
}

/// Returns 0: no frame pointer is kept here.
#[inline(always)]
pub(crate) fn frame_pointer() -> u64 {
    0
}

/// Takes the mark away at the end of a call that is not one of a redirected entry.
#[inline(always)]
pub(crate) fn end_outermost() {
    set_outermost(0, 0);
}

/// Sets this thread's words for a call that is not one of a redirected entry.
#[inline(always)]
pub(crate) fn begin_outermost(word: u64, _frame_pointer: u64) {
    set_outermost(word, 0);
}

/// Returns the address of the site whose entry this thread's outermost call is of; 0 if it is not
/// one of a redirected entry.
#[inline(always)]
pub(crate) fn site() -> u64 {
    let slot = current();
    // Thunks leave it when they take the mark away.
    if slot.outermost.load(Ordering::Relaxed) == 0 { 0 } else { slot.site.load(Ordering::Relaxed) }
}

/// Sets this thread's words again: see [`set_outermost`].
///
/// # Safety
///
/// *In a call* (`thread_slots::of_call`): `caller` is that of a redirected call that this thread is
/// in.
#[inline(always)]
pub(crate) unsafe fn mark_again(caller: Caller, word: u64, site: u64) {
    // SAFETY: `of_call` requires *in a call*; this function's `# Safety` requires the same.
    let slot = unsafe { of_call(caller.sp()) };
    slot.site.store(site, Ordering::Relaxed);
    slot.outermost.store(word, Ordering::Relaxed);
}

/// Does nothing: thunks that use the registers a call may change take the mark away themselves.
#[inline(always)]
pub(crate) fn unmark() {}

/// Returns in r10 the slot of the thread, or null if there is none: see [`enter`]. Changes no other
/// register but rflags.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn find_thread() {
    naked_asm!(preserved_call!("{enter}" to r10), enter = sym enter)
}

/// Passes the operands of the macros below to a macro that defines a thunk.
macro_rules! with_operands {
    ($define:ident) => {
        $define! {
            multiplier = const heapledger_core::thread_slots::MULTIPLIER,
            hash_shift = const 32 - heapledger_core::thread_slots::SLOTS_BITS,
            slot_bits = const heapledger_core::thread_slots::SLOT_LENGTH_BITS,
            table = sym heapledger_core::thread_slots::TABLE,
            thread_id_at = sym heapledger_core::thread_slots::THREAD_ID_AT,
            thread = const offset_of!(heapledger_core::thread_slots::ThreadSlot, thread),
            id = const offset_of!(heapledger_core::thread_slots::ThreadSlot, id),
            outermost = const offset_of!(heapledger_core::thread_slots::ThreadSlot, outermost),
            site = const offset_of!(heapledger_core::thread_slots::ThreadSlot, site),
            inside = const offset_of!(heapledger_core::thread_slots::ThreadSlot, inside),
            find_thread = sym words::find_thread,
        }
    };
}
pub(super) use with_operands;

/// Finds the thread's slot, in r10. One that is not the first of its hash, or is that of another
/// thread, is found at the label 4 ([`slow`]), which goes on at 5. Changes the register that is
/// named, by its whole and its half.
macro_rules! find {
    ($register:literal, $half:literal) => {
        concat!(
            "mov ",
            $register,
            ", qword ptr fs:[0]\n",
            "imul r10d, ",
            $half,
            ", {multiplier}\n",
            "shr r10d, {hash_shift}\n",
            "shl r10d, {slot_bits}\n",
            "add r10, qword ptr [rip + {table}@GOTPCREL]\n",
            "cmp qword ptr [r10 + {thread}], ",
            $register,
            "\n",
            "jne 4f\n",
            "mov ",
            $register,
            ", qword ptr [rip + {thread_id_at}]\n",
            "mov ",
            $half,
            ", dword ptr fs:[",
            $register,
            "]\n",
            "cmp dword ptr [r10 + {id}], ",
            $half,
            "\n",
            "jne 4f\n",
            "5:\n",
        )
    };
}
pub(super) use find;

/// Takes the mark away from the slot in r10.
macro_rules! clear {
    () => {
        concat!("mov qword ptr [r10 + {outermost}], 0\n", "dec qword ptr [r10 + {inside}]",)
    };
}
pub(super) use clear;

/// Begins the preserving thunk when r10 has been pushed: finds the thread's slot, and marks the
/// thread by the stack pointer. A nested call goes on at the label 2. Pushes r9.
macro_rules! begin_preserving {
    () => {
        concat!(
            "push r9\n.cfi_adjust_cfa_offset 8\n",
            words::find!("r9", "r9d"),
            // The stack pointer with which r10 was pushed.
            "lea r9, [rsp + 8]\n",
            // The stack grows down: the stack pointer of a call around this one is larger.
            "cmp qword ptr [r10 + {outermost}], r9\n",
            "ja 2f\n.cfi_remember_state\n",
            "inc qword ptr [r10 + {inside}]\n",
            "mov qword ptr [r10 + {outermost}], r9\n",
            "mov qword ptr [r10 + {site}], r11",
        )
    };
}
pub(super) use begin_preserving;

/// Puts the slot below the return address, where the program's r11 was, and keeps that in the 16
/// bytes at a distance from the stack pointer.
macro_rules! keep {
    () => {
        concat!("mov rax, qword ptr [rbp + 72]\n", "mov qword ptr [rsp + 128], rax\n", "mov qword ptr [rbp + 72], r10",)
    };
}
pub(super) use keep;

/// Takes the mark away, when the call has been made, and puts the program's r11 back. Changes r10.
macro_rules! end_preserving {
    () => {
        concat!(
            "mov r10, qword ptr [rbp + 72]\n",
            words::clear!(),
            "\nmov r10, qword ptr [rsp + 128]\n",
            "mov qword ptr [rbp + 72], r10",
        )
    };
}
pub(super) use end_preserving;

/// Restores r9 and r10 for a nested call, at the label 2.
macro_rules! nested {
    () => {
        ".cfi_restore_state\npop r9\n.cfi_adjust_cfa_offset -8\npop r10\n.cfi_adjust_cfa_offset -8"
    };
}
pub(super) use nested;

/// Stands at the end of every thunk: finds the slot of a new thread. Without one, the call goes on
/// as a nested one does, at a label.
macro_rules! slow {
    ($nested:literal) => {
        concat!("4: call {find_thread}\ntest r10, r10\njnz 5b\njmp ", $nested, "\n.cfi_endproc")
    };
}
pub(super) use slow;

/// Marks the thread with the stack pointer on entry, in a thunk that uses the registers a call may
/// change. A nested call goes on at the label 8. Changes rax and r10.
macro_rules! mark {
    () => {
        concat!(
            words::find!("rax", "eax"),
            "cmp qword ptr [r10 + {outermost}], rsp\n",
            "ja 8f\n",
            "inc qword ptr [r10 + {inside}]\n",
            "mov qword ptr [r10 + {outermost}], rsp\n",
            "mov qword ptr [r10 + {site}], r11",
        )
    };
}
pub(super) use mark;

/// Calls the function of a plain kind, which gets the three arguments of the call, with the slot
/// below the return address. Returns to the caller.
macro_rules! call_plain {
    ($function:literal) => {
        concat!(
            "push r10\n.cfi_adjust_cfa_offset 8\n",
            "lea rcx, [rsp + 8]\nmov r8, rbp\nmov r9, r11\n",
            "call ",
            $function,
            "\npop r10\n.cfi_adjust_cfa_offset -8\n",
            words::clear!(),
            "\nret",
        )
    };
}
pub(super) use call_plain;

/// Calls the function of operators that throw, and returns if there is a block.
macro_rules! call_new {
    ($function:literal) => {
        concat!(
            "push r10\n.cfi_adjust_cfa_offset 8\n",
            "lea rsi, [rsp + 8]\nmov rdx, rbp\nmov rcx, r11\n",
            "push rdi\n.cfi_adjust_cfa_offset 8\n",
            "sub rsp, 8\n.cfi_adjust_cfa_offset 8\n",
            "call ",
            $function,
            "\nadd rsp, 8\n.cfi_adjust_cfa_offset -8\n",
            "pop rdi\n.cfi_adjust_cfa_offset -8\n",
            "pop r10\n.cfi_adjust_cfa_offset -8\n",
            words::clear!(),
        )
    };
}
pub(super) use call_new;

/// Calls the function of reallocations, which gets the four arguments of the call, and the site on
/// the stack.
macro_rules! call_realloc {
    ($function:literal) => {
        concat!(
            "push r10\n.cfi_adjust_cfa_offset 8\n",
            "lea r8, [rsp + 8]\nmov r9, rbp\n",
            "sub rsp, 8\n.cfi_adjust_cfa_offset 8\n",
            "push r11\n.cfi_adjust_cfa_offset 8\n",
            "call ",
            $function,
            "\nadd rsp, 16\n.cfi_adjust_cfa_offset -16\n",
            "pop r10\n.cfi_adjust_cfa_offset -8\n",
            words::clear!(),
            "\nret",
        )
    };
}
pub(super) use call_realloc;

/// Begins the thunk for all other kinds: pushes the slot twice, and marks the thread by the stack
/// pointer. A nested call goes on at the label 8.
macro_rules! begin_other {
    () => {
        concat!(
            words::find!("rax", "eax"),
            "cmp qword ptr [r10 + {outermost}], rsp\n",
            "ja 8f\n.cfi_remember_state\n",
            "push r10\n.cfi_adjust_cfa_offset 8\n",
            "push r10\n.cfi_adjust_cfa_offset 8\n",
            "inc qword ptr [r10 + {inside}]\n",
            "mov qword ptr [r10 + {outermost}], rsp\n",
            "mov qword ptr [r10 + {site}], r11",
        )
    };
}
pub(super) use begin_other;

/// Takes the mark away, when the call has been made, with the saved registers at the stack pointer.
/// Changes r10.
macro_rules! end_other {
    () => {
        concat!("mov r10, qword ptr [rsp + 64]\n", words::clear!())
    };
}
pub(super) use end_other;
