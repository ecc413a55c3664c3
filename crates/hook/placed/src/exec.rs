//! Programs that the program executes: the recorder follows it there.
//!
//! The system calls execve and execveat of the C library are replaced by calls of [`THUNK`], also
//! those that may enter a sandbox ([`confine`]) and, in a session that records mappings, those that
//! change them ([`mappings`]).
//! Nothing is added to the environment: the recorder traces the process until it has executed the
//! other program, and does there whatever is needed to record that.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char};
use core::ptr;

use heapledger_core::arch::{self, nr};
use heapledger_core::program::Obstacle;
use heapledger_core::{sandbox, sys, thread_slots};
use heapledger_recorder::follow::{Executor, follow, follow_from};
use heapledger_recorder::hook::processes::{self, Exec};
use heapledger_recorder::session;

use crate::call::Call;
use crate::guard::with_guard;
use crate::start::{heapledger_placed_starts, session_to_be_joined};
use crate::{confine, mappings};

/// The thunk to which the system call leads. It is not to be called otherwise.
pub(crate) const THUNK: unsafe extern "C" fn() = thunk;

/// Makes the system call whose number is in rax with the arguments that it has there, and returns
/// its result. Changes the registers that a system call changes, and no others; the stack may have
/// any alignment, and the caller has left the red zone. Uses less than 512 bytes of it in a child
/// of vfork(2) that executes a program.
#[unsafe(naked)]
unsafe extern "C" fn thunk() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push r8",
        "push r9",
        "push r10",
        "push rax",
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 128",
        "and rsp, -16",
        "movups xmmword ptr [rbp - 128], xmm0",
        "movups xmmword ptr [rbp - 112], xmm1",
        "movups xmmword ptr [rbp - 96], xmm2",
        "movups xmmword ptr [rbp - 80], xmm3",
        "movups xmmword ptr [rbp - 64], xmm4",
        "movups xmmword ptr [rbp - 48], xmm5",
        "movups xmmword ptr [rbp - 32], xmm6",
        "movups xmmword ptr [rbp - 16], xmm7",
        "mov rdi, rsp",
        "mov rsi, [rbp + 8]",
        "call {exec_stack}",
        "test rax, rax",
        "cmovnz rsp, rax",
        "mov rdi, rbp",
        "call {execute}",
        "movups xmm0, xmmword ptr [rbp - 128]",
        "movups xmm1, xmmword ptr [rbp - 112]",
        "movups xmm2, xmmword ptr [rbp - 96]",
        "movups xmm3, xmmword ptr [rbp - 80]",
        "movups xmm4, xmmword ptr [rbp - 64]",
        "movups xmm5, xmmword ptr [rbp - 48]",
        "movups xmm6, xmmword ptr [rbp - 32]",
        "movups xmm7, xmmword ptr [rbp - 16]",
        "mov rsp, rbp",
        "pop rbp",
        "lea rsp, [rsp + 8]",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "ret",
        execute = sym execute,
        exec_stack = sym exec_stack,
    )
}

/// Returns the end of the stack for [`execute`]; 0 if that is the caller's own. Calls other than
/// those that execute a program may come before there is a thread pointer, and from a thread that
/// may not make a system call.
extern "C" fn exec_stack(stack_pointer: usize, number: usize) -> usize {
    match number {
        nr::EXECVE | nr::EXECVEAT => thread_slots::exec_stack(stack_pointer),
        _ => 0,
    }
}

/// A path that is made for the recorder: that of a file below an open directory.
struct Path {
    bytes: [u8; PATH_MAX],
    length: usize,
}

/// The most bytes of such a path.
const PATH_MAX: usize = 512;

impl Path {
    /// Returns the address of the path of a call's program, as a NUL-terminated text. `None` if it
    /// is too long, or cannot be read.
    fn of(&mut self, call: &Call) -> Option<usize> {
        const AT_FDCWD: i32 = -100;
        if call.number == nr::EXECVE {
            return Some(call.rdi);
        }
        let directory = call.rdi as i32;
        // By the kernel: it may be no address.
        let mut words = [0_u64; PATH_MAX / 8];
        let read = sys::read_own_pieces(&[[call.rsi as u64, PATH_MAX as u64]], &mut words);
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).take(read);
        let length = bytes.clone().position(|byte| byte == 0)?;
        if directory == AT_FDCWD || directory < 0 || bytes.clone().next() == Some(b'/') {
            return Some(call.rsi);
        }
        let number = directory.unsigned_abs();
        let digits = (0..=number.checked_ilog10().unwrap_or(0)).rev();
        self.put(b"/proc/self/fd/".iter().copied());
        self.put(digits.map(|exponent| b'0' + (number / 10_u32.pow(exponent) % 10) as u8));
        self.put([b'/'].into_iter().take(length));
        self.put(bytes.take(length));
        (self.length < PATH_MAX).then(|| self.bytes.as_ptr().expose_provenance())
    }

    fn put(&mut self, bytes: impl Iterator<Item = u8>) {
        for byte in bytes {
            if let Some(to) = self.bytes.get_mut(self.length) {
                *to = byte;
                self.length += 1;
            }
        }
    }
}

/// Makes the call, and returns the kernel's result.
///
/// # Safety
///
/// The call is one that the program makes, and has yet to return from.
unsafe extern "C" fn execute(registers: &Call) -> isize {
    if mappings::is_one(registers.number) {
        // SAFETY: `make` requires the registers of a call of the thunk that the program has yet to
        // return from, and a call that it makes: this function's `# Safety`.
        return unsafe { mappings::make(registers) };
    }
    if confine::is_one(registers.number) {
        // SAFETY: `make` requires a call that the program makes: this function's `# Safety`.
        return unsafe { confine::make(registers) };
    }
    // SAFETY: `exec` requires a call that the program makes: this function's `# Safety`.
    unsafe { exec(registers) }
}

/// Executes another program, if the kernel does; returns its error otherwise. Has a frame of its
/// own, since the other calls may be made on a small stack.
///
/// # Safety
///
/// The call is one that the program makes.
#[inline(never)]
unsafe fn exec(registers: &Call) -> isize {
    let mut made = Path { bytes: [0; PATH_MAX], length: 0 };
    let path = made.of(registers);
    let call = || {
        let &Call { number, r10, r9, r8, rdx, rsi, rdi, .. } = registers;
        // SAFETY: the program makes this call, with these arguments; if it succeeds, nothing of
        // this process is left. In a sandbox it is made as well.
        unsafe { arch::syscall(number, [rdi, rsi, rdx, r10, r8, r9]) }
    };
    let Some(path) = path else { return call() };
    if let Some(address) = session_to_be_joined() {
        // Nothing is announced: the process does not belong to the session.
        let followed = follow_from(address, path as u64, Executor::Caller);
        let error = call();
        if let Ok(follower) = followed {
            follower.stop();
        }
        return error;
    }
    heapledger_placed_starts();
    if sandbox::is_entered() || !session::is_on() || !thread_slots::has_slot() {
        return call();
    }
    let since = arch::ticks();
    let followed = follow(path as u64, Executor::Caller);
    let obstacle = followed.as_ref().err().and_then(|&number| Obstacle::of_followed(number));
    // Without an answer, it is not known what the path is, or whether there is one.
    let is_announced = followed.is_ok() || obstacle.is_some();
    let pid = sys::process_id();
    if is_announced {
        // A forked child that has made no call of a redirected entry.
        with_guard(processes::child_begins);
        // SAFETY: the recorder has read a NUL-terminated string there.
        let path = unsafe { CStr::from_ptr(ptr::with_exposed_provenance::<c_char>(path)) }.to_bytes();
        with_guard(|sp| processes::exec_begins(Exec { pid, obstacle, is_tight: false, since, path }, sp));
    }
    let error = call();
    if let Ok(follower) = followed {
        follower.stop();
    }
    if is_announced {
        with_guard(|sp| processes::exec_failed(pid, sp));
    }
    error
}
