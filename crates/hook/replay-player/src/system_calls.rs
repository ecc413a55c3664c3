//! Counts the system calls that change mappings: a filter of the kernel makes each of them a
//! signal, whose handler counts it and makes the call itself, from an instruction that the filter
//! lets pass.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::arch::nr;
use heapledger_wire::replay::{Outcome, SYSTEM_CALLS, UNKNOWN};

use crate::arch::{AUDIT, raw_call, raw_call_range, set_answer, system_call_of};

unsafe extern "C" {
    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
}

const SIGSYS: c_int = 31;
const SA_SIGINFO: c_int = 4;
const SA_NODEFER: c_int = 0x4000_0000;
const PR_SET_NO_NEW_PRIVS: c_int = 38;
const PR_SET_SECCOMP: c_int = 22;
const SECCOMP_MODE_FILTER: usize = 2;
const BRK: usize = 12;

/// The calls that are counted, in the order of [`Outcome::calls`].
const COUNTED: [usize; SYSTEM_CALLS] = [nr::MMAP, nr::MUNMAP, nr::MREMAP, nr::MADVISE, nr::MPROTECT, BRK];

/// `struct sigaction` of the C library.
#[repr(C)]
struct Action {
    handler: extern "C" fn(c_int, *mut c_void, *mut c_void),
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

/// An instruction of a filter.
#[derive(Clone, Copy)]
#[repr(C)]
struct Step {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// A filter.
#[repr(C)]
struct Filter {
    length: u16,
    steps: *const Step,
}

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const TRAP: u32 = 0x0003_0000;
/// The offsets of the number, the architecture and the address in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ADDRESS_LOW: u32 = 8;
const ADDRESS_HIGH: u32 = 12;

static OUTCOME: AtomicPtr<Outcome> = AtomicPtr::new(ptr::null_mut());

/// Prepares the counts: the handler.
pub(crate) fn prepare(outcome: &'static Outcome) {
    OUTCOME.store(ptr::from_ref(outcome).cast_mut(), Ordering::Release);
    let action = Action { handler: handle, mask: [0; 16], flags: SA_SIGINFO | SA_NODEFER, restorer: 0 };
    // SAFETY: `sigaction` demands an action, whose handler only touches what it is given.
    unsafe { sigaction(SIGSYS, &raw const action, ptr::null_mut()) };
}

/// Counts the calls of this thread from now on. If the kernel refuses, the counts are unknown. The
/// thread must not end: when it does, the C library makes such calls with all signals blocked.
pub(crate) fn count() {
    let (from, to) = raw_call_range();
    // The instruction's address, as the kernel sees it, is behind the instruction.
    let (low, high, length) = (from as u32, (from >> 32) as u32, (to - from) as u32);
    let Some(end) = low.checked_add(length + 1) else { return };
    let step = |code, value, if_true, if_false| Step { code, if_true, if_false, value };
    let [mmap, munmap, mremap, madvise, mprotect, brk] = COUNTED.map(|number| number as u32);
    let steps = [
        step(LOAD, ARCHITECTURE, 0, 0),
        step(EQUAL, AUDIT, 0, 12),
        step(LOAD, NUMBER, 0, 0),
        step(EQUAL, mmap, 5, 0),
        step(EQUAL, munmap, 4, 0),
        step(EQUAL, mremap, 3, 0),
        step(EQUAL, madvise, 2, 0),
        step(EQUAL, mprotect, 1, 0),
        step(EQUAL, brk, 0, 5),
        step(LOAD, ADDRESS_HIGH, 0, 0),
        step(EQUAL, high, 0, 4),
        step(LOAD, ADDRESS_LOW, 0, 0),
        step(AT_LEAST, low, 0, 2),
        step(AT_LEAST, end, 1, 0),
        step(RETURN, ALLOW, 0, 0),
        step(RETURN, TRAP, 0, 0),
    ];
    let filter = Filter { length: steps.len() as u16, steps: steps.as_ptr() };
    // SAFETY: `prctl` copies the filter and its steps.
    let is_counted = unsafe {
        prctl(PR_SET_NO_NEW_PRIVS, 1_usize, 0_usize, 0_usize, 0_usize) == 0
            && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const filter, 0_usize, 0_usize) == 0
    };
    // SAFETY: null, or the mapped result, which stays.
    if let Some(outcome) = unsafe { OUTCOME.load(Ordering::Acquire).as_ref() }.filter(|_| !is_counted) {
        outcome.calls.iter().for_each(|calls| calls.store(UNKNOWN, Ordering::Relaxed));
    }
}

/// The signal handler.
extern "C" fn handle(_: c_int, _: *mut c_void, context: *mut c_void) {
    // SAFETY: the kernel passes the context of the interrupted thread, to a handler with
    // `SA_SIGINFO`.
    let (number, arguments) = unsafe { system_call_of(context) };
    let outcome = OUTCOME.load(Ordering::Acquire);
    if let Some(at) = COUNTED.iter().position(|counted| *counted == number)
        // SAFETY: null, or the mapped result, which stays.
        && let Some(calls) = unsafe { outcome.as_ref() }.and_then(|outcome| outcome.calls.get(at))
    {
        calls.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the call that the thread was about to make, with its arguments. Its answer goes where
    // the thread expects it.
    unsafe { set_answer(context, raw_call(number, arguments)) };
}
