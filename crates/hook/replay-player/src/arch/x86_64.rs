//! x86-64: a system call at a known address, and the registers of an interrupted thread.

use core::arch::global_asm;
use core::ffi::c_void;

/// The number of this architecture in filters of system calls.
pub(crate) const AUDIT: u32 = 0xC000_003E;

// int64_t heapledger_replay_call(number, const arguments[6])
global_asm!(
    ".pushsection .text.heapledger_replay_call,\"ax\",@progbits",
    ".hidden heapledger_replay_call",
    ".globl heapledger_replay_call",
    ".type heapledger_replay_call, @function",
    "heapledger_replay_call:",
    "mov rax, rdi",
    "mov rcx, rsi",
    "mov rdi, [rcx]",
    "mov rsi, [rcx + 8]",
    "mov rdx, [rcx + 16]",
    "mov r10, [rcx + 24]",
    "mov r8, [rcx + 32]",
    "mov r9, [rcx + 40]",
    "syscall",
    "ret",
    ".hidden heapledger_replay_call_end",
    ".globl heapledger_replay_call_end",
    "heapledger_replay_call_end:",
    ".size heapledger_replay_call, . - heapledger_replay_call",
    ".popsection",
);

unsafe extern "C" {
    fn heapledger_replay_call(number: usize, arguments: *const usize) -> isize;
    fn heapledger_replay_call_end();
}

/// Makes a system call from the one instruction in [`raw_call_range`].
///
/// # Safety
///
/// The contract of the call.
pub(crate) unsafe fn raw_call(number: usize, arguments: [usize; 6]) -> isize {
    // SAFETY: six arguments are read. The call is as the caller wants it.
    unsafe { heapledger_replay_call(number, arguments.as_ptr()) }
}

/// Returns the addresses of the function with that instruction: its first, and the one behind it.
pub(crate) fn raw_call_range() -> (usize, usize) {
    (heapledger_replay_call as *const () as usize, heapledger_replay_call_end as *const () as usize)
}

/// The registers in `ucontext_t`, which begin 40 bytes into it: r8 to r15, rdi, rsi, rbp, rbx, rdx,
/// rax, rcx, rsp, rip.
const REGISTERS: usize = 40 / 8;
const R8: usize = 0;
const R9: usize = 1;
const R10: usize = 2;
const RDI: usize = 8;
const RSI: usize = 9;
const RDX: usize = 12;
const RAX: usize = 13;

/// Returns the number and the arguments of the system call that a filter has stopped.
///
/// # Safety
///
/// `context` is that of a handler of SIGSYS.
pub(crate) unsafe fn system_call_of(context: *mut c_void) -> (usize, [usize; 6]) {
    // SAFETY: the registers are in the context, see `REGISTERS`.
    let register = |number| unsafe { context.cast::<usize>().add(REGISTERS + number).read() };
    (register(RAX), [RDI, RSI, RDX, R10, R8, R9].map(register))
}

/// Sets the answer of the system call.
///
/// # Safety
///
/// As for [`system_call_of`].
pub(crate) unsafe fn set_answer(context: *mut c_void, answer: isize) {
    // SAFETY: as above.
    unsafe { context.cast::<isize>().add(REGISTERS + RAX).write(answer) };
}
