//! `prctl` and `syscall`: the functions by which a program puts itself in a sandbox (`seccomp`),
//! after which we make no system calls. libseccomp uses them too. A program that makes the system
//! call by its own instructions is not noticed.
//!
//! A loaded object with this crate defines a Rust function that does its part then: see [`Moment`].

use core::arch::naked_asm;
use core::ffi::{c_int, c_long};
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::{arch, sandbox};

use crate::next::{Objects, Scope};
use crate::set_errno;

/// The moments of entering a sandbox at which `heapledger_family_sandbox` is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The program is about to enter: system calls are still allowed.
    Before {
        /// True for strict mode, in which a thread may not even read the time stamp counter.
        is_strict: bool,
    },
    /// The kernel has refused: everything is as it was.
    Refused,
    /// The program is in the sandbox; we make no system calls from now on.
    Entered {
        /// True for strict mode.
        is_strict: bool,
    },
}

// Each loaded object has its own, and a process may have two.
core::arch::global_asm!(".hidden heapledger_family_sandbox");

unsafe extern "Rust" {
    /// Does the work of the loaded object when the program enters a sandbox.
    safe fn heapledger_family_sandbox(moment: Moment);
}

static PRCTL: AtomicUsize = AtomicUsize::new(0);
static SYSCALL: AtomicUsize = AtomicUsize::new(0);

const SYS_PRCTL: c_long = 157;
const SYS_SECCOMP: c_long = 317;
const PR_SET_SECCOMP: c_long = 22;
const SECCOMP_MODE_STRICT: c_long = 1;
/// The operations of `seccomp` that put the caller in a sandbox; others only query.
const SECCOMP_SET_MODE_STRICT: c_long = 0;
const SECCOMP_SET_MODE_FILTER: c_long = 1;

/// Looks up the functions that are called here. Once, at start.
pub(crate) fn look_up(objects: &Objects<'_>) {
    for (address, name) in [(&PRCTL, c"prctl"), (&SYSCALL, c"syscall")] {
        address.store(objects.lookup(Scope::Next, name), Ordering::Release);
    }
}

/// The C function of this name.
///
/// # Safety
///
/// The contract of the C function on Linux.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn prctl() {
    naked_asm!(
        "cmp edi, {set_seccomp}",
        "je {enter}",
        "mov rax, [rip + {next}]",
        "test rax, rax",
        "jz {early}",
        "jmp rax",
        set_seccomp = const PR_SET_SECCOMP,
        enter = sym enter_by_prctl,
        next = sym PRCTL,
        early = sym early_prctl,
    )
}

/// The C function of this name.
///
/// # Safety
///
/// The contract of the C function on Linux.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rdi, {seccomp}",
        "je {enter}",
        "cmp rdi, {prctl}",
        "jne 2f",
        "cmp esi, {set_seccomp}",
        "je {enter}",
        "2:",
        "mov rax, [rip + {next}]",
        "test rax, rax",
        "jz {early}",
        "jmp rax",
        seccomp = const SYS_SECCOMP,
        prctl = const SYS_PRCTL,
        set_seccomp = const PR_SET_SECCOMP,
        enter = sym enter_by_syscall,
        next = sym SYSCALL,
        early = sym early_syscall,
    )
}

/// Makes the program's call of [`prctl`], which may enter a sandbox.
///
/// # Safety
///
/// The contract of the C function on Linux: [`prctl`] jumps here with its caller's arguments.
unsafe extern "C" fn enter_by_prctl(option: c_long, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int {
    type Prctl = unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long) -> c_int;
    // SAFETY: null is `None`; otherwise the next definition of `prctl`, which reads no more
    // registers.
    let next = unsafe { mem::transmute::<usize, Option<Prctl>>(PRCTL.load(Ordering::Acquire)) };
    enter(a == SECCOMP_MODE_STRICT, || match next {
        // SAFETY: the next `prctl` requires the contract of the C function. It gets the program's
        // own arguments unchanged, of which this function's `# Safety` requires that contract.
        Some(prctl) => c_long::from(unsafe { prctl(option, a, b, c, d) }),
        // SAFETY: the program's own arguments, with which it asked for this system call.
        None => unsafe { call(SYS_PRCTL, [option, a, b, c, d, 0]) },
    }) as c_int
}

/// Makes the program's call of [`syscall`], which may enter a sandbox.
///
/// # Safety
///
/// The contract of the C function on Linux: [`syscall`] jumps here with its caller's arguments.
unsafe extern "C" fn enter_by_syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long) -> c_long {
    type Syscall = unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;
    // SAFETY: null is `None`; otherwise the next definition of `syscall`.
    let next = unsafe { mem::transmute::<usize, Option<Syscall>>(SYSCALL.load(Ordering::Acquire)) };
    let call = || match next {
        // SAFETY: the program's own arguments; neither of the two calls has a sixth.
        Some(syscall) => unsafe { syscall(number, a, b, c, d, e, 0) },
        // SAFETY: the program's own arguments, with which it asked for this system call.
        None => unsafe { call(number, [a, b, c, d, e, 0]) },
    };
    match (number, a) {
        (SYS_SECCOMP, SECCOMP_SET_MODE_STRICT | SECCOMP_SET_MODE_FILTER) => enter(a == SECCOMP_SET_MODE_STRICT, call),
        (SYS_SECCOMP, _) => call(),
        _ => enter(b == SECCOMP_MODE_STRICT, call),
    }
}

/// Makes the call that enters a sandbox. Before it and from then on we make no system calls, unless
/// it fails.
fn enter(is_strict: bool, call: impl FnOnce() -> c_long) -> c_long {
    heapledger_family_sandbox(Moment::Before { is_strict });
    sandbox::enter();
    let answer = call();
    if answer == -1 {
        sandbox::refused();
        heapledger_family_sandbox(Moment::Refused);
    } else {
        heapledger_family_sandbox(Moment::Entered { is_strict });
    }
    answer
}

/// Makes the same system call as `prctl` before anything has been looked up.
///
/// # Safety
///
/// The contract of the C function on Linux: [`prctl`] jumps here with its caller's arguments.
unsafe extern "C" fn early_prctl(option: c_long, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int {
    // SAFETY: the program's own arguments, with which it asked for this system call.
    unsafe { call(SYS_PRCTL, [option, a, b, c, d, 0]) as c_int }
}

/// Makes a system call before anything has been looked up: for a library that is initialised before
/// this one.
///
/// # Safety
///
/// The contract of the C function on Linux: [`syscall`] jumps here with its caller's arguments.
unsafe extern "C" fn early_syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // SAFETY: the program's own arguments, with which it asked for this system call.
    unsafe { call(number, [a, b, c, d, e, f]) }
}

/// Makes a system call as the C library's `syscall` does.
///
/// # Safety
///
/// The contract of the system call.
unsafe fn call(number: c_long, arguments: [c_long; 6]) -> c_long {
    // SAFETY: `arch::syscall` requires that pointers are valid, and that the call breaks no
    // assumption of other code: the contract of the system call. This function's `# Safety`
    // requires it of `number` and `arguments`.
    let answer = unsafe { arch::syscall(number as usize, arguments.map(|argument| argument as usize)) };
    if (-4095..0).contains(&answer) {
        set_errno(-answer as c_int);
        return -1;
    }
    answer as c_long
}
