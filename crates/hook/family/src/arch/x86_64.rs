//! x86-64: `malloc` and the others past an observer that samples, in as few instructions as can be.
//!
//! Each goes on to the next allocator, which is the only one: a door leads here while there is one observer, which samples, and no replacement.
//! What may be in the sample goes to the thunk that has the observer told: as `filter::may_hold` has it, and where the [`countdown`] ends. At
//! which rate that was drawn is not looked at here. No register changes on the way but those that a call may change (System V psABI), and no word of
//! the stack. Nobody is told of a request that fails here.
//!
//! [`countdown`]: heapledger_core::countdown

use core::arch::naked_asm;
use core::mem::offset_of;

use heapledger_core::filter;
use heapledger_core::hooks::{Functions, Pointer, serve};

use crate::thunks;

/// Counts a block whose size is in this register, one of 0 bytes as one of 1: goes to `{told}` with one that may be in the sample, and has counted
/// nothing then. Signal handlers that come in between have counted nothing. The largest sizes are too large for any countdown.
macro_rules! count_down {
    ($size:literal) => {
        concat!(
            "cmp ",
            $size,
            ", 1\n",
            "mov r9, qword ptr [rip + heapledger_countdown@GOTTPOFF]\n",
            "mov r8, qword ptr fs:[r9]\n",
            "sbb r8, ",
            $size,
            "\n",
            "jbe {told}\n",
            "mov qword ptr fs:[r9], r8",
        )
    };
}

/// Goes to 4 with a block, in rdi, that may be in the sample at the first look.
macro_rules! look_up {
    () => {
        "mov eax, edi
        shr eax, {shift_large}
        lea r8, [rip + {large}]
        cmp byte ptr [r8 + rax], 0
        jne 4f"
    };
}

/// The other end of that: goes back to 5 with one that is not, at the second look, and to `{told}` with any other.
macro_rules! look_again {
    () => {
        "4: mov eax, edi
        shr eax, {shift_small}
        and eax, {mask_small}
        lea r8, [rip + {small}]
        cmp byte ptr [r8 + rax], 0
        je 5b
        jmp {told}"
    };
}

/// `malloc`.
///
/// # Safety
///
/// As C has it.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn malloc(size: usize) -> Pointer {
    naked_asm!(
        count_down!("rdi"),
        "jmp qword ptr [rip + {next} + {offset}]",
        told = sym thunks::malloc_told,
        next = sym serve::REAL,
        offset = const offset_of!(Functions, malloc),
    )
}

/// `calloc`.
///
/// # Safety
///
/// As C has it.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn calloc(count: usize, each: usize) -> Pointer {
    naked_asm!(
        "mov rax, rdi",
        "mul rsi",
        "jo {told}",
        count_down!("rax"),
        "jmp qword ptr [rip + {next} + {offset}]",
        told = sym thunks::calloc_told,
        next = sym serve::REAL,
        offset = const offset_of!(Functions, calloc),
    )
}

/// `realloc`.
///
/// # Safety
///
/// As C has it.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn realloc(old: Pointer, size: usize) -> Pointer {
    naked_asm!(
        look_up!(),
        "5:",
        count_down!("rsi"),
        "jmp qword ptr [rip + {next} + {offset}]",
        look_again!(),
        told = sym thunks::realloc_told,
        next = sym serve::REAL,
        offset = const offset_of!(Functions, realloc),
        shift_large = const filter::SHIFT_LARGE,
        large = sym filter::LARGE,
        shift_small = const filter::SHIFT_SMALL,
        mask_small = const filter::MASK_SMALL,
        small = sym filter::SMALL,
    )
}

/// `free`. A null pointer goes on to the next allocator, if nothing in the sample is near 0: as null it is not looked at.
///
/// # Safety
///
/// As C has it.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn free(block: Pointer) {
    naked_asm!(
        look_up!(),
        "5: jmp qword ptr [rip + {next} + {offset}]",
        look_again!(),
        told = sym thunks::free_told,
        next = sym serve::REAL,
        offset = const offset_of!(Functions, free),
        shift_large = const filter::SHIFT_LARGE,
        large = sym filter::LARGE,
        shift_small = const filter::SHIFT_SMALL,
        mask_small = const filter::MASK_SMALL,
        small = sym filter::SMALL,
    )
}
