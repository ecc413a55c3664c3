//! The caller's frame, which is passed to hooks.

use std::arch::naked_asm;
use std::ffi::c_void;

use heapledger_core::hooks::Caller;

/// Calls `run` with the caller of this function: a function of Heapledger's, from which the
/// unwinder finds the program's frames.
///
/// **Own frame**: it is the frame of the function into which this one is inlined, in this thread,
/// and is live until `run` has returned.
#[inline(always)]
pub(crate) fn with_caller<F: FnOnce(Caller)>(run: F) {
    extern "C" fn enter<F: FnOnce(Caller)>(run: *mut c_void, slot: u64, rbp: u64) {
        // SAFETY: `run` points to the variable of this name below: of this type, live until
        // `call_with_frame` returns, and used by nobody else meanwhile.
        if let Some(run) = unsafe { (*run.cast::<Option<F>>()).take() } {
            run(Caller { slot, rbp });
        }
    }
    let mut run = Some(run);
    // SAFETY: `enter` is given the variable that it is for.
    unsafe { call_with_frame(enter::<F>, (&raw mut run).cast()) }
}

/// Calls `function(data, rsp, rbp)`: on entry the return address is at the stack pointer (System V
/// psABI).
///
/// # Safety
///
/// `function` may be called with `data`.
#[unsafe(naked)]
unsafe extern "C" fn call_with_frame(function: extern "C" fn(*mut c_void, u64, u64), data: *mut c_void) {
    naked_asm!("mov rax, rdi", "mov rdi, rsi", "mov rsi, rsp", "mov rdx, rbp", "jmp rax")
}
