//! x86-64: the thunks to which stubs lead.
//!
//! A thunk marks the thread: what it calls until it returns are nested calls. A nested call goes on
//! in the original at once.

use core::arch::naked_asm;
use core::mem::offset_of;

use heapledger_wire::redirection::{Site, Thunk};

use super::preserving::{pop, preserving, push};
use super::words;
use crate::calls;

/// The code with the thunks: see [`Thunk::first`]. It is not to be called otherwise.
#[cfg(placed)]
pub const THUNKS: unsafe extern "C" fn() = thunks;

/// Returns the address of the first thunk; those of the others are [`Thunk::address`].
pub fn thunk_address() -> u64 {
    Thunk::first((thunks as *const ()).expose_provenance() as u64)
}

/// Defines the thunks, with these further operands of their assembly.
macro_rules! define_thunks {
    ($($operands:tt)*) => {
        /// The thunks, in the order of [`Thunk`]: from the next multiple of [`Thunk::LENGTH`] on,
        /// and that far from each other. All but the first use the registers that a call may
        /// change.
        #[unsafe(naked)]
        unsafe extern "C" fn thunks() {
            naked_asm!(
                ".p2align 8, 0xcc",
                "jmp {preserving}",
                // Malloc.
                ".p2align 8, 0xcc\n.cfi_startproc",
                words::mark!(),
                words::call_plain!("{malloc}"),
                "8: jmp qword ptr [r11 + {pass}]",
                words::slow!("8b"),
                // Free.
                ".p2align 8, 0xcc\n.cfi_startproc",
                words::mark!(),
                words::call_plain!("{free}"),
                "8: jmp qword ptr [r11 + {pass}]",
                words::slow!("8b"),
                // New: without a block it goes on in the original, with the argument of the call.
                ".p2align 8, 0xcc\n.cfi_startproc",
                words::mark!(),
                words::call_new!("{new}"),
                "test rax, rax",
                "jz 9f",
                "ret",
                "8: jmp qword ptr [r11 + {pass}]",
                "9: jmp rdx",
                words::slow!("8b"),
                // Calloc.
                ".p2align 8, 0xcc\n.cfi_startproc",
                words::mark!(),
                words::call_plain!("{calloc}"),
                "8: jmp qword ptr [r11 + {pass}]",
                words::slow!("8b"),
                // Realloc: of four arguments.
                ".p2align 8, 0xcc\n.cfi_startproc",
                words::mark!(),
                words::call_realloc!("{realloc}"),
                "8: jmp qword ptr [r11 + {pass}]",
                words::slow!("8b"),
                // Aligned.
                ".p2align 8, 0xcc\n.cfi_startproc",
                words::mark!(),
                words::call_plain!("{aligned}"),
                "8: jmp qword ptr [r11 + {pass}]",
                words::slow!("8b"),
                ".p2align 8, 0xcc",
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
                $($operands)*
            )
        }
    };
}
words::with_operands!(define_thunks);

/// Defines the thunk for all other kinds, with these further operands of its assembly.
macro_rules! define_other {
    ($($operands:tt)*) => {
        /// [`Thunk::Other`]: saves the arguments, and uses the other registers that a call may
        /// change.
        #[unsafe(naked)]
        unsafe extern "C" fn other() {
            naked_asm!(
                ".cfi_startproc",
                // In the layout of `Registers`.
                words::begin_other!(),
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
                words::end_other!(),
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
                "jmp qword ptr [r11 + {pass}]",
                words::slow!("8b"),
                call = sym calls::call,
                pass = const offset_of!(Site, pass),
                $($operands)*
            )
        }
    };
}
words::with_operands!(define_other);

#[cfg(test)]
mod tests;
