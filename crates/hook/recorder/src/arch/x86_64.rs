//! x86-64: a call on another stack.

use core::arch::global_asm;
use core::ffi::c_void;

// Through rbp an unwinder finds the way from the other stack back to this one.
global_asm!(
    ".pushsection .text.heapledger_call_on,\"ax\",@progbits",
    ".globl heapledger_call_on",
    ".hidden heapledger_call_on",
    ".type heapledger_call_on, @function",
    "heapledger_call_on:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset 6, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register 6",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov esi, edx",
    "mov rsp, rcx",
    "call rax",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa 7, 8",
    "ret",
    ".cfi_endproc",
    ".size heapledger_call_on, . - heapledger_call_on",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "heapledger_call_on"]
    fn call_on_stack(function: usize, array: *mut *mut c_void, size: i32, end: *mut u8) -> i32;
}

/// Calls a function of type `backtrace` on the stack that ends (is highest) at `end`.
///
/// # Safety
///
/// `function` is one of that type, and may be called with `array` and `size`. `end` is a multiple
/// of 16, and the memory below it is large enough for the function, and used by nobody else
/// meanwhile.
pub unsafe fn call_on(function: usize, array: *mut *mut c_void, size: i32, end: *mut u8) -> i32 {
    // SAFETY: `call_on_stack` requires what this function's `# Safety` does. The code above keeps
    // the callee-saved registers and the stack pointer, and calls with the stack aligned as the ABI
    // asks.
    unsafe { call_on_stack(function, array, size, end) }
}
