//! Programs that the program executes: the recorder follows it there.
//!
//! The system call execve of the program's C library is replaced by a call of [`THUNK`]. Nothing is
//! added to the environment: the recorder traces the process until it has executed the other
//! program, and does there whatever is needed to record that.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char};

use heapledger_core::arch::{self, nr};
use heapledger_core::program::Obstacle;
use heapledger_core::{sandbox, sys, thread_slots};
use heapledger_recorder::follow::follow;
use heapledger_recorder::hook::processes::{self, Exec};
use heapledger_recorder::session;

use crate::start::heapledger_placed_starts;

/// The thunk to which the system call leads. It is not to be called otherwise.
pub(crate) const THUNK: unsafe extern "C" fn() = thunk;

/// Makes the system call execve, with the arguments that it has there, and returns its result.
/// Changes the registers that a system call changes, and no others; the stack may have any
/// alignment, and the caller has left the red zone.
#[unsafe(naked)]
unsafe extern "C" fn thunk() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push r8",
        "push r9",
        "push r10",
        "push rbp",
        "mov rbp, rsp",
        "and rsp, -16",
        "sub rsp, 128",
        "movups xmmword ptr [rsp], xmm0",
        "movups xmmword ptr [rsp + 16], xmm1",
        "movups xmmword ptr [rsp + 32], xmm2",
        "movups xmmword ptr [rsp + 48], xmm3",
        "movups xmmword ptr [rsp + 64], xmm4",
        "movups xmmword ptr [rsp + 80], xmm5",
        "movups xmmword ptr [rsp + 96], xmm6",
        "movups xmmword ptr [rsp + 112], xmm7",
        "call {execute}",
        "movups xmm0, xmmword ptr [rsp]",
        "movups xmm1, xmmword ptr [rsp + 16]",
        "movups xmm2, xmmword ptr [rsp + 32]",
        "movups xmm3, xmmword ptr [rsp + 48]",
        "movups xmm4, xmmword ptr [rsp + 64]",
        "movups xmm5, xmmword ptr [rsp + 80]",
        "movups xmm6, xmmword ptr [rsp + 96]",
        "movups xmm7, xmmword ptr [rsp + 112]",
        "mov rsp, rbp",
        "pop rbp",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "ret",
        execute = sym execute,
    )
}

/// Executes another program, if the kernel does; returns its error otherwise.
///
/// # Safety
///
/// The arguments are those of a call of execve(2) that the program makes.
unsafe extern "C" fn execute(path: *const c_char, arguments: usize, environment: usize) -> isize {
    heapledger_placed_starts();
    let call = || {
        // SAFETY: the program makes this call, with these arguments; if it succeeds, nothing of
        // this process is left. In a sandbox it is made as well.
        unsafe { arch::syscall(nr::EXECVE, [path.addr(), arguments, environment, 0, 0, 0]) }
    };
    if sandbox::is_entered() || !session::is_on() || !thread_slots::has_slot() {
        return call();
    }
    let since = arch::ticks();
    let followed = follow(path.addr() as u64);
    let obstacle = followed.as_ref().err().and_then(|&number| obstacle(number));
    // Without an answer, it is not known what the path is, or whether there is one.
    let is_announced = followed.is_ok() || obstacle.is_some();
    let pid = sys::process_id();
    if is_announced {
        // A forked child that has made no call of a redirected entry.
        with_guard(processes::child_begins);
        // SAFETY: the recorder has read a NUL-terminated string there.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
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

/// Returns the obstacle of this number, of those that a file tells.
fn obstacle(number: u16) -> Option<Obstacle> {
    let all = [Obstacle::Static, Obstacle::OtherRights, Obstacle::OtherMachine, Obstacle::OtherLibrary];
    all.into_iter().find(|obstacle| *obstacle as u16 == number)
}

/// Runs a function with an address in its frame, below which there is a word that does not change
/// meanwhile, as a guard requires.
#[inline(never)]
fn with_guard(run: impl FnOnce(u64)) {
    let words = core::hint::black_box([0x6865_6170_6c65_6467_u64, 0]);
    run(&raw const words[1] as u64);
    core::hint::black_box(&words);
}
