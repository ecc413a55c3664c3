//! x86-64: the thunks to which stubs lead.
//!
//! A thunk marks the thread: what it calls until it returns are nested calls. A nested call goes on
//! in the original at once.

use core::arch::naked_asm;
use core::mem::offset_of;

use heapledger_wire::redirection::{Site, Thunk};

use super::preserving::{pop, preserving, push};
use crate::calls;

/// Returns the address of the first thunk; those of the others are [`Thunk::address`].
pub fn thunk_address() -> u64 {
    let before = (thunks as *const ()).expose_provenance() as u64;
    before.next_multiple_of(Thunk::LENGTH)
}

/// Marks the thread with the stack pointer on entry. Jumps to 8 if the call is nested: the stack
/// grows down, so the stack pointer of a call around this one is larger. Changes r10 and flags.
macro_rules! mark {
    () => {
        "mov r10, qword ptr [rip + heapledger_outermost@GOTTPOFF]
        cmp qword ptr fs:[r10], rsp
        ja 8f
        mov qword ptr fs:[r10], rsp
        mov qword ptr fs:[r10 + 8], r11"
    };
}

/// The thunks, in the order of [`Thunk`]: from the next multiple of [`Thunk::LENGTH`] on, and that
/// far from each other. All but the first use the registers that a call may change.
#[unsafe(naked)]
unsafe extern "C" fn thunks() {
    naked_asm!(
        ".p2align 6, 0xcc",
        "jmp {preserving}",
        // Malloc: the function takes the three arguments of the call, and returns to its caller.
        ".p2align 6, 0xcc\n.cfi_startproc",
        mark!(),
        "mov rcx, rsp",
        "mov r8, rbp",
        "mov r9, r11",
        "jmp {malloc}",
        "8: jmp qword ptr [r11 + {pass}]\n.cfi_endproc",
        // Free: in the same way.
        ".p2align 6, 0xcc\n.cfi_startproc",
        mark!(),
        "mov rcx, rsp",
        "mov r8, rbp",
        "mov r9, r11",
        "jmp {free}",
        "8: jmp qword ptr [r11 + {pass}]\n.cfi_endproc",
        // New: without a block it goes on in the original, with the argument of the call.
        ".p2align 6, 0xcc\n.cfi_startproc",
        mark!(),
        "mov rsi, rsp",
        "mov rdx, rbp",
        "mov rcx, r11",
        push!("rdi"),
        "call {new}",
        pop!("rdi"),
        "test rax, rax",
        "jz 9f",
        "ret",
        "8: jmp qword ptr [r11 + {pass}]",
        "9: jmp rdx\n.cfi_endproc",
        // Calloc: as Malloc.
        ".p2align 6, 0xcc\n.cfi_startproc",
        mark!(),
        "mov rcx, rsp",
        "mov r8, rbp",
        "mov r9, r11",
        "jmp {calloc}",
        "8: jmp qword ptr [r11 + {pass}]\n.cfi_endproc",
        // Realloc: of four arguments. The site is on the stack.
        ".p2align 6, 0xcc\n.cfi_startproc",
        mark!(),
        "mov r8, rsp",
        "mov r9, rbp",
        push!("r11"),
        "call {realloc}",
        "add rsp, 8\n.cfi_adjust_cfa_offset -8",
        "ret",
        "8: jmp qword ptr [r11 + {pass}]\n.cfi_endproc",
        // Aligned: as Malloc.
        ".p2align 6, 0xcc\n.cfi_startproc",
        mark!(),
        "mov rcx, rsp",
        "mov r8, rbp",
        "mov r9, r11",
        "jmp {aligned}",
        "8: jmp qword ptr [r11 + {pass}]\n.cfi_endproc",
        ".p2align 6, 0xcc",
        "jmp {other}",
        preserving = sym preserving,
        malloc = sym calls::malloc,
        free = sym calls::free,
        new = sym calls::new,
        calloc = sym calls::calloc,
        realloc = sym calls::realloc,
        aligned = sym calls::aligned,
        other = sym other,
        pass = const offset_of!(Site, pass),
    )
}

/// [`Thunk::Other`]: saves the arguments, and uses the other registers that a call may change.
#[unsafe(naked)]
unsafe extern "C" fn other() {
    naked_asm!(
        ".cfi_startproc",
        "mov r10, qword ptr [rip + heapledger_outermost@GOTTPOFF]",
        "cmp qword ptr fs:[r10], rsp",
        "ja 8f\n.cfi_remember_state",
        // In the layout of `Registers`.
        push!("r11"),
        push!("r10"),
        "mov qword ptr fs:[r10], rsp",
        "mov qword ptr fs:[r10 + 8], r11",
        push!("r9"),
        push!("r8"),
        push!("rcx"),
        push!("rdx"),
        push!("rsi"),
        push!("rdi"),
        push!("rax"),
        // rsp was 8 below a multiple of 16 at the entry, and nine words have been pushed.
        "mov rdi, rsp",
        "mov rsi, r11",
        "mov rdx, rbp",
        "call {call}",
        "mov r10, qword ptr [rip + heapledger_outermost@GOTTPOFF]",
        "mov qword ptr fs:[r10 + 8], 0",
        "mov qword ptr fs:[r10], 0",
        "mov r11, rdx",
        "mov rcx, rax",
        pop!("rax"),
        "test rcx, rcx",
        "jnz 9f\n.cfi_remember_state",
        "add rsp, 64\n.cfi_adjust_cfa_offset -64",
        "ret",
        // On in the original.
        "9: .cfi_restore_state",
        pop!("rdi"),
        pop!("rsi"),
        pop!("rdx"),
        pop!("rcx"),
        pop!("r8"),
        pop!("r9"),
        "add rsp, 16\n.cfi_adjust_cfa_offset -16",
        "jmp r11",
        // Nested.
        "8: .cfi_restore_state",
        "jmp qword ptr [r11 + {pass}]\n.cfi_endproc",
        call = sym calls::call,
        pass = const offset_of!(Site, pass),
    )
}

#[cfg(test)]
mod tests;
