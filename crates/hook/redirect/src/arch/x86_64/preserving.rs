//! x86-64: the thunk that preserves registers.

use core::arch::naked_asm;
use core::mem::offset_of;

use heapledger_core::{restore_vectors, save_vectors};
use heapledger_wire::redirection::Site;

use super::words;
use crate::calls;

/// The bytes that the thunk takes for the vector registers, and for what it keeps.
const AREA: usize = if cfg!(placed) { 144 } else { 128 };

/// Pushes a register, and says so to unwinders.
macro_rules! push {
    ($register:literal) => {
        concat!("push ", $register, "\n.cfi_adjust_cfa_offset 8")
    };
}
pub(super) use push;

/// Pops a register, and says so to unwinders.
macro_rules! pop {
    ($register:literal) => {
        concat!("pop ", $register, "\n.cfi_adjust_cfa_offset -8")
    };
}
pub(super) use pop;

/// Defines the thunk, with these further operands of its assembly.
macro_rules! define_preserving {
    ($($operands:tt)*) => {
        /// [`Thunk::Preserving`](heapledger_wire::redirection::Thunk::Preserving): restores every
        /// register but rax, and rax as well if the function has no result. gcc lets callers in
        /// the same file keep values in registers that the original leaves alone (`-fipa-ra`), and
        /// leave the stack pointer at any multiple of 8. Of the vector registers, this loaded
        /// object uses the first eight only, which the test `laws` checks; the original may use
        /// what it likes. Hook libraries of the program and glibc's `backtrace`, which verifies
        /// stacks, may use the others: with these, a caller that keeps a number in one of them
        /// across the call loses it.
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn preserving() {
            naked_asm!(
                // The stub has pushed r11. So unwinders find the program's caller, where they start
                // inside of the allocator.
                ".cfi_startproc\n.cfi_def_cfa_offset 16",
                push!("r10"),
                words::begin_preserving!(),
                push!("r8"),
                push!("rcx"),
                push!("rdx"),
                push!("rsi"),
                push!("rdi"),
                push!("rax"),
                "mov rdi, rsp",
                "mov rsi, r11",
                "mov rdx, rbp",
                // A caller in the same file may know that the original needs no aligned stack
                // (`-fipa-stack-alignment`).
                push!("rbp"),
                ".cfi_rel_offset rbp, 0",
                "mov rbp, rsp\n.cfi_def_cfa_register rbp",
                "sub rsp, {area}",
                "and rsp, -16",
                words::keep!(),
                save_vectors!(),
                "call {call}",
                words::end_preserving!(),
                restore_vectors!(),
                "mov rsp, rbp\n.cfi_def_cfa_register rsp",
                pop!("rbp"),
                ".cfi_restore rbp",
                "test rax, rax",
                "jnz 3f",
                pop!("rax"),
                pop!("rdi"),
                pop!("rsi"),
                pop!("rdx"),
                pop!("rcx"),
                pop!("r8"),
                pop!("r9"),
                pop!("r10"),
                pop!("r11"),
                "ret",
                // Nested.
                "2:",
                words::nested!(),
                "jmp qword ptr [r11 + {pass}]",
                // On in the original, whose address takes the slot of r9. It is read from below the
                // stack pointer: signal handlers leave 128 bytes there alone (System V psABI, the
                // red zone).
                "3: .cfi_def_cfa_offset 80",
                "mov r9, qword ptr [rsp + 48]",
                "mov qword ptr [rsp + 48], rdx",
                pop!("rax"),
                pop!("rdi"),
                pop!("rsi"),
                pop!("rdx"),
                pop!("rcx"),
                pop!("r8"),
                "add rsp, 8\n.cfi_adjust_cfa_offset -8",
                pop!("r10"),
                "jmp qword ptr [rsp - 16]",
                words::slow!("2b"),
                call = sym calls::call,
                pass = const offset_of!(Site, pass),
                area = const AREA,
                $($operands)*
            )
        }
    };
}

words::with_operands!(define_preserving);
