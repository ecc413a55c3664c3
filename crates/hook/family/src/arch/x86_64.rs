//! x86-64: `malloc` and the others past an observer that samples, in as few instructions as can be.
//!
//! Each does what `countdown::passes` and `filter::may_hold` do, and calls the next allocator, which is the only one: a door leads here
//! while there is one observer, which samples, and no replacement. What may be in the sample goes to the thunk that has the observer told.
//! No register changes on the way there but those that a call may change (System V psABI), and no word of the stack.

use core::arch::naked_asm;
use core::mem::offset_of;

use heapledger_core::filter;
use heapledger_core::hooks::{Functions, Pointer, serve, way};

use crate::thunks;

/// Counts a block whose size is in this register: goes to `{told}` with one of 0 bytes, or more than `isize::MAX`, and where the countdown was drawn
/// at another rate; to 2 with one that may be in the sample.
macro_rules! count_down {
    ($size:literal) => {
        concat!(
            "test ",
            $size,
            ", ",
            $size,
            "\n",
            "jle {told}\n",
            "mov r8, qword ptr [rip + {rate}]\n",
            "mov r9, qword ptr [rip + heapledger_countdown@GOTTPOFF]\n",
            "mov r8d, dword ptr [r8]\n",
            "cmp dword ptr fs:[r9 + 8], r8d\n",
            "jne {told}\n",
            "sub qword ptr fs:[r9], ",
            $size,
            "\n",
            "jle 2f",
        )
    };
}

/// The other end of that: the countdown is put right.
macro_rules! count_up {
    ($size:literal) => {
        concat!("2: add qword ptr fs:[r9], ", $size, "\n", "jmp {told}")
    };
}

/// Goes to `{told}` with a block, in rdi, that may be in the sample.
macro_rules! look_up {
    () => {
        "mov eax, edi
        shr eax, {shift}
        and eax, {mask}
        lea r8, [rip + {counts}]
        cmp byte ptr [r8 + rax], 0
        jne {told}"
    };
}

/// Calls the next allocator with what is in rdi and rsi; goes to 3 with these on the stack if it returns no block.
macro_rules! call_next {
    () => {
        "push rdi
        push rsi
        sub rsp, 8
        .cfi_def_cfa_offset 32
        call qword ptr [rip + {next} + {offset}]
        test rax, rax
        jz 3f
        add rsp, 24
        .cfi_def_cfa_offset 8
        ret"
    };
}

/// The other end of that: goes to `{failed}` with them, and the caller's registers.
macro_rules! failed {
    () => {
        "3:
        .cfi_def_cfa_offset 32
        add rsp, 8
        pop rsi
        pop rdi
        .cfi_def_cfa_offset 8
        mov rdx, rsp
        mov rcx, rbp
        jmp {failed}"
    };
}

const MASK: usize = filter::LENGTH - 1;

/// `malloc`.
///
/// # Safety
///
/// As C has it.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn malloc(size: usize) -> Pointer {
    naked_asm!(
        ".cfi_startproc",
        count_down!("rdi"),
        // Which also aligns the stack for the call.
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call qword ptr [rip + {next} + {offset}]",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 3f",
        "ret",
        count_up!("rdi"),
        // It failed: nothing is told of what passed but this.
        "3: mov rsi, rsp",
        "mov rdx, rbp",
        "jmp {failed}",
        ".cfi_endproc",
        told = sym thunks::malloc_told,
        failed = sym thunks::malloc_failed,
        rate = sym way::RATE,
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
        ".cfi_startproc",
        "mov rax, rdi",
        "mul rsi",
        "jo {told}",
        count_down!("rax"),
        call_next!(),
        count_up!("rax"),
        failed!(),
        ".cfi_endproc",
        told = sym thunks::calloc_told,
        failed = sym thunks::calloc_failed,
        rate = sym way::RATE,
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
        ".cfi_startproc",
        look_up!(),
        count_down!("rsi"),
        call_next!(),
        count_up!("rsi"),
        failed!(),
        ".cfi_endproc",
        told = sym thunks::realloc_told,
        failed = sym thunks::realloc_failed,
        rate = sym way::RATE,
        next = sym serve::REAL,
        offset = const offset_of!(Functions, realloc),
        shift = const filter::SHIFT,
        mask = const MASK,
        counts = sym filter::COUNTS,
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
        "jmp qword ptr [rip + {next} + {offset}]",
        told = sym thunks::free_told,
        next = sym serve::REAL,
        offset = const offset_of!(Functions, free),
        shift = const filter::SHIFT,
        mask = const MASK,
        counts = sym filter::COUNTS,
    )
}
