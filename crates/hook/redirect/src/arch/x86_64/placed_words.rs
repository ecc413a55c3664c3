//! The words of a thread, in the table of slots: for a library without thread-local storage. They
//! are the fields `outermost` and `site` of the thread's slot.

use core::sync::atomic::Ordering;

use heapledger_core::thread_slots::current;

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

/// Sets this thread's words for a call that is not one of a redirected entry.
#[inline(always)]
pub(crate) fn begin_outermost(word: u64, _frame_pointer: u64) {
    set_outermost(word, 0);
}

/// Returns the address of the site whose entry this thread's outermost call is of; 0 if it is not
/// one of a redirected entry.
#[inline(always)]
pub(crate) fn site() -> u64 {
    current().site.load(Ordering::Relaxed)
}

/// Finds the thread's slot at the beginning of the thunk, when r10 has been pushed, and marks the
/// thread by the stack pointer. A nested call goes on at the label 2, one whose slot is not the
/// first of its hash, or is that of another thread, by the label 4. Pushes r9.
macro_rules! begin {
    () => {
        concat!(
            "push r9\n.cfi_adjust_cfa_offset 8\n",
            "mov r9, qword ptr fs:[0]\n",
            "movabs r10, {multiplier}\n",
            "imul r10, r9\n",
            "shr r10, {hash_shift}\n",
            "shl r10, {slot_bits}\n",
            "add r10, qword ptr [rip + {table}@GOTPCREL]\n",
            "cmp qword ptr [r10 + {thread}], r9\n",
            "jne 4f\n",
            "mov r9, qword ptr [rip + {thread_id_at}@GOTPCREL]\n",
            "mov r9, qword ptr [r9]\n",
            "mov r9d, dword ptr fs:[r9]\n",
            "cmp dword ptr [r10 + {id}], r9d\n",
            "jne 4f\n",
            // The stack pointer with which r10 was pushed.
            "5: lea r9, [rsp + 8]\n",
            // The stack grows down: the stack pointer of a call around this one is larger.
            "cmp qword ptr [r10 + {outermost}], r9\n",
            "ja 2f\n.cfi_remember_state\n",
            "inc qword ptr [r10 + {inside}]\n",
            "mov qword ptr [r10 + {outermost}], r9\n",
            "mov qword ptr [r10 + {site}], r11",
        )
    };
}
pub(super) use begin;

/// Keeps the slot, in the 16 bytes at a distance from the stack pointer.
macro_rules! keep {
    () => {
        "mov qword ptr [rsp + 128], r10"
    };
}
pub(super) use keep;

/// Takes the mark away, when the call has been made.
macro_rules! end {
    () => {
        concat!(
            "mov r10, qword ptr [rsp + 128]\n",
            "mov qword ptr [r10 + {site}], 0\n",
            "mov qword ptr [r10 + {outermost}], 0\n",
            "dec qword ptr [r10 + {inside}]",
        )
    };
}
pub(super) use end;

/// Restores r9 and r10 for a nested call, at the label 2.
macro_rules! nested {
    () => {
        ".cfi_restore_state\npop r9\n.cfi_adjust_cfa_offset -8\npop r10\n.cfi_adjust_cfa_offset -8"
    };
}
pub(super) use nested;

/// Stands behind the thunk: finds the slot of a new thread. Without one, the call goes on as a
/// nested one does.
macro_rules! slow {
    () => {
        concat!(
            // r11, r10 and r9 have been pushed.
            "4: .cfi_def_cfa_offset 32\n",
            "push rax\npush rcx\npush rdx\npush rsi\npush rdi\npush r8\npush r11\n",
            // Callers leave the stack pointer at any multiple of 8.
            "push rbp\n.cfi_def_cfa_offset 96\n.cfi_offset rbp, -96\n",
            "mov rbp, rsp\n.cfi_def_cfa_register rbp\n",
            "sub rsp, 128\n",
            "and rsp, -16\n",
            "movaps xmmword ptr [rsp], xmm0\n",
            "movaps xmmword ptr [rsp + 16], xmm1\n",
            "movaps xmmword ptr [rsp + 32], xmm2\n",
            "movaps xmmword ptr [rsp + 48], xmm3\n",
            "movaps xmmword ptr [rsp + 64], xmm4\n",
            "movaps xmmword ptr [rsp + 80], xmm5\n",
            "movaps xmmword ptr [rsp + 96], xmm6\n",
            "movaps xmmword ptr [rsp + 112], xmm7\n",
            "mov rdi, qword ptr fs:[0]\n",
            "call {enter}\n",
            "mov r10, rax\n",
            "movaps xmm0, xmmword ptr [rsp]\n",
            "movaps xmm1, xmmword ptr [rsp + 16]\n",
            "movaps xmm2, xmmword ptr [rsp + 32]\n",
            "movaps xmm3, xmmword ptr [rsp + 48]\n",
            "movaps xmm4, xmmword ptr [rsp + 64]\n",
            "movaps xmm5, xmmword ptr [rsp + 80]\n",
            "movaps xmm6, xmmword ptr [rsp + 96]\n",
            "movaps xmm7, xmmword ptr [rsp + 112]\n",
            "mov rsp, rbp\n.cfi_def_cfa_register rsp\n",
            "pop rbp\n.cfi_restore rbp\n",
            "pop r11\npop r8\npop rdi\npop rsi\npop rdx\npop rcx\npop rax\n",
            ".cfi_def_cfa_offset 32\n",
            "test r10, r10\n",
            "jnz 5b\n",
            "jmp 2b\n.cfi_endproc",
        )
    };
}
pub(super) use slow;
