//! x86-64: `malloc` and the others for one observer that samples, in as few instructions as
//! possible.
//!
//! Each jumps to the next allocator: an entry point leads here while there is one observer, which
//! samples, and no replacement. Calls whose block may be in the sample, by `filter::may_contain` or
//! because the [`countdown`] ends, go to the thunk that notifies the observer. The rate at which
//! the countdown was drawn is not checked here. No register is changed except those that a call may
//! change (System V psABI), and no word of the stack. The observer is not notified of a request
//! that fails here.
//!
//! [`countdown`]: heapledger_core::countdown

use core::arch::naked_asm;
use core::mem::offset_of;

use heapledger_core::filter;
use heapledger_core::hooks::{Functions, Pointer, dispatch};

use crate::thunks;

/// Counts a block whose size is in this register, a block of 0 bytes as one of 1. If the block may
/// be in the sample, counts nothing and jumps to `{hooked}`. Bytes that an interrupting signal
/// handler counts are lost. The largest sizes exceed any countdown.
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
            "jbe {hooked}\n",
            "mov qword ptr fs:[r9], r8",
        )
    };
}

/// Jumps to 4 with a block, in rdi, that may be in the sample by its large region.
macro_rules! check_large_region {
    () => {
        "mov eax, edi
        shr eax, {shift_large}
        lea r8, [rip + {large}]
        cmp byte ptr [r8 + rax], 0
        jne 4f"
    };
}

/// The rest of that check: jumps back to 5 if the block is not in the sample by its small region,
/// and to `{hooked}` otherwise.
macro_rules! check_small_region {
    () => {
        "4: mov eax, edi
        shr eax, {shift_small}
        and eax, {mask_small}
        lea r8, [rip + {small}]
        cmp byte ptr [r8 + rax], 0
        je 5b
        jmp {hooked}"
    };
}

/// `malloc`.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn malloc(size: usize) -> Pointer {
    naked_asm!(
        count_down!("rdi"),
        "jmp qword ptr [rip + {next} + {offset}]",
        hooked = sym thunks::malloc_hooked,
        next = sym dispatch::UNDERLYING,
        offset = const offset_of!(Functions, malloc),
    )
}

/// `calloc`.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn calloc(count: usize, each: usize) -> Pointer {
    naked_asm!(
        "mov rax, rdi",
        "mul rsi",
        "jo {hooked}",
        count_down!("rax"),
        "jmp qword ptr [rip + {next} + {offset}]",
        hooked = sym thunks::calloc_hooked,
        next = sym dispatch::UNDERLYING,
        offset = const offset_of!(Functions, calloc),
    )
}

/// `realloc`.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn realloc(old: Pointer, size: usize) -> Pointer {
    naked_asm!(
        check_large_region!(),
        "5:",
        count_down!("rsi"),
        "jmp qword ptr [rip + {next} + {offset}]",
        check_small_region!(),
        hooked = sym thunks::realloc_hooked,
        next = sym dispatch::UNDERLYING,
        offset = const offset_of!(Functions, realloc),
        shift_large = const filter::SHIFT_LARGE,
        large = sym filter::LARGE,
        shift_small = const filter::SHIFT_SMALL,
        mask_small = const filter::MASK_SMALL,
        small = sym filter::SMALL,
    )
}

/// `free`. A null pointer goes on to the next allocator if nothing in the sample is near 0; there
/// is no test for null.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn free(block: Pointer) {
    naked_asm!(
        check_large_region!(),
        "5: jmp qword ptr [rip + {next} + {offset}]",
        check_small_region!(),
        hooked = sym thunks::free_hooked,
        next = sym dispatch::UNDERLYING,
        offset = const offset_of!(Functions, free),
        shift_large = const filter::SHIFT_LARGE,
        large = sym filter::LARGE,
        shift_small = const filter::SHIFT_SMALL,
        mask_small = const filter::MASK_SMALL,
        small = sym filter::SMALL,
    )
}
