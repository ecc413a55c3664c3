//! System calls by which a program puts itself in a sandbox (`seccomp`), made in the place of the C
//! library: from then on the recorder makes no system calls of its own.
//!
//! A program that makes the call by its own code, or by the C function `syscall`, is not noticed.

use heapledger_core::arch::{self, nr};
use heapledger_core::{sandbox, sys, thread_slots};
use heapledger_recorder::hook::declarations;
use heapledger_recorder::{attach, session};
use heapledger_wire::event::code;

use crate::call::Call;
use crate::guard::with_guard;
use crate::start::{heapledger_placed_starts, session_to_be_joined};

const SECCOMP: usize = 317;
const PR_SET_SECCOMP: u32 = 22;
const SECCOMP_MODE_STRICT: usize = 1;
/// The operations of `seccomp` that put the caller in a sandbox; others only query.
const SECCOMP_SET_MODE_STRICT: u32 = 0;
const SECCOMP_SET_MODE_FILTER: u32 = 1;

/// True for the number of a system call that may enter a sandbox.
pub(crate) fn is_one(number: usize) -> bool {
    matches!(number, nr::PRCTL | SECCOMP)
}

/// Makes the call, and returns the kernel's result. If it enters a sandbox, the recording says so.
///
/// # Safety
///
/// The call is one that the program makes.
pub(crate) unsafe fn make(registers: &Call) -> isize {
    let &Call { number, r10, r9, r8, rdx, rsi, rdi, .. } = registers;
    // SAFETY: `arch::syscall` requires valid pointers, and no effect that breaks assumptions: the
    // call and its arguments are the program's own.
    let call = || unsafe { arch::syscall(number, [rdi, rsi, rdx, r10, r8, r9]) };
    let is_strict = match (number, rdi as u32) {
        (nr::PRCTL, PR_SET_SECCOMP) => rsi == SECCOMP_MODE_STRICT,
        (SECCOMP, SECCOMP_SET_MODE_STRICT) => true,
        (SECCOMP, SECCOMP_SET_MODE_FILTER) => false,
        _ => return call(),
    };
    // In the sandbox the session cannot be joined.
    if session_to_be_joined().is_none() {
        heapledger_placed_starts();
    }
    let is_recorded = session::is_on() && !thread_slots::enter().is_null();
    // Writing an annotation takes no system call.
    let annotate = || with_guard(|sp| _ = declarations::annotate(code::SANDBOX, &[], sp));
    if is_recorded && is_strict {
        // In strict mode a thread may not even read the time stamp counter, for times of events.
        annotate();
        sys::forget_thread_id();
        with_guard(attach::detach_thread);
    } else if is_recorded {
        with_guard(attach::prepare_for_sandbox);
    }
    sandbox::enter();
    let result = call();
    if sys::check(result).is_err() {
        sandbox::refused();
    } else if is_recorded && !is_strict {
        annotate();
    }
    result
}
