//! The end of the process: its live blocks are inspected before it exits, becomes another program,
//! or dies of a fatal signal, and the file says so. If the file does not say so, the command knows
//! that they were not.
//!
//! A handler replaces the default action of the signals that a broken heap ends in. The program
//! does not see it: `sigaction` and `signal` say that the default is in place, and a handler of the
//! program's own replaces ours. After the inspection our handler removes itself and queues the same
//! signal again with the same details, so that the process dies of it at the instruction where it
//! came.

use core::arch::naked_asm;
use core::ffi::{CStr, c_int, c_void};
use core::mem;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use heapledger_core::arch::{nr, syscall};
use heapledger_core::lock::Lock;
use heapledger_core::{sandbox, sys};
use heapledger_dynsym::{Object, Objects, Scope};
use heapledger_memcheck::{self as checks, ReadMode};

use crate::file::{self, End};
use crate::operators::find_within_loader;

/// SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV.
const FATAL: [c_int; 5] = [4, 6, 7, 8, 11];
/// SIGBUS, SIGSEGV: signals of an access to memory.
const FAULTS: [c_int; 2] = [7, 11];
const SIG_DFL: usize = 0;

/// The id of the process that has begun its file. A child made by vfork, or by a system call of its
/// own, has another.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Held by the thread that inspects blocks. A thread that dies of a signal never gives it back.
static INSPECTING: Lock = Lock::new();
/// True if the program calls a `malloc` that is defined before Heapledger's.
static IS_WRAPPED: AtomicBool = AtomicBool::new(false);

/// Begins the file of this process. Call once, when the checks have started.
pub(crate) fn watch(objects: &Objects<'_>) {
    for function in FUNCTIONS {
        function.next.store(objects.lookup(Scope::Next, function.name), Ordering::Release);
    }
    let object = |name| Object::of(objects.lookup(Scope::All, name)).map(|object| object.base);
    IS_WRAPPED.store(object(c"malloc") != object(c"heapledger_hooks_v1"), Ordering::Relaxed);
    begin();
    // SAFETY: POSIX's function; the handler does not allocate. Registered after that of the checks,
    // it runs after it.
    unsafe { pthread_atfork(None, None, Some(begin_child)) };
    FATAL.into_iter().for_each(install);
}

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

fn begin() {
    PROCESS.store(sys::process_id(), Ordering::Release);
    file::begin();
}

extern "C" fn begin_child() {
    match INSPECTING.try_lock() {
        Some(guard) => drop(guard),
        // SAFETY: the lock was held by a thread that this process does not have.
        None => unsafe { INSPECTING.unlock() },
    }
    begin();
}

/// True in the process that the file belongs to, unless it is in a sandbox.
fn is_own() -> bool {
    !sandbox::is_entered() && checks::is_running() && PROCESS.load(Ordering::Acquire) == sys::process_id()
}

/// Inspects the live blocks, and writes so, before this end of the process. Call with `INSPECTING`
/// locked.
fn inspect(end: End, mode: ReadMode) {
    if IS_WRAPPED.load(Ordering::Relaxed) && !checks::has_seen_blocks() {
        // The program's own malloc has not called ours.
        file::refuse();
        return;
    }
    let is_complete = checks::inspect(mode);
    file::finish(is_complete.then_some(end));
}

/// Does the same in a thread that may go on afterwards.
pub(crate) fn inspect_now(end: End) {
    if is_own() {
        sys::without_signals(|| {
            let _guard = INSPECTING.lock();
            inspect(end, ReadMode::Direct);
        });
    }
}

/// Inspects the live blocks for the last time, and restores the signals' default actions: from here
/// on no system call is made.
pub(crate) fn enter_sandbox() {
    if is_own() {
        sys::without_signals(|| {
            let _guard = INSPECTING.lock();
            if checks::has_seen_blocks() || !IS_WRAPPED.load(Ordering::Relaxed) {
                checks::inspect(ReadMode::Direct);
            }
            file::confine();
        });
        FATAL.into_iter().for_each(uninstall);
    }
    sandbox::enter();
}

/// Takes back one [`enter_sandbox`] if the kernel has refused the sandbox.
pub(crate) fn sandbox_refused() {
    sandbox::refused();
    if is_own() {
        FATAL.into_iter().for_each(install);
        file::begin();
    }
}

/// Takes back that this is the end of the process.
pub(crate) fn resume() {
    if is_own() {
        file::begin();
    }
}

// ----------------------------------------------------------------------------------------- signals

/// `struct sigaction` of the kernel.
#[repr(C)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

impl KernelAction {
    const DEFAULT: KernelAction = KernelAction { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 };
}

/// `struct sigaction` of the C library.
#[derive(Debug)]
#[repr(C)]
pub struct Action {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

/// Installs our handler if the default action is in place.
fn install(signal: c_int) {
    const SA_SIGINFO: u64 = 4;
    const SA_RESTORER: u64 = 0x0400_0000;
    if sandbox::is_entered() || handler_of(signal) != Some(SIG_DFL) {
        return;
    }
    // On the thread's own stack: an alternative one may be too small for us.
    let ours = KernelAction {
        handler: handle as *const () as usize,
        flags: SA_SIGINFO | SA_RESTORER,
        restorer: restore as *const () as usize,
        mask: u64::MAX,
    };
    kernel_action(signal, Some(&ours), None);
}

/// Restores the default action if our handler is in place.
fn uninstall(signal: c_int) {
    if handler_of(signal).is_some_and(is_ours) {
        kernel_action(signal, Some(&KernelAction::DEFAULT), None);
    }
}

/// Returns the handler that the kernel has for a signal.
fn handler_of(signal: c_int) -> Option<usize> {
    let mut now = KernelAction::DEFAULT;
    kernel_action(signal, None, Some(&mut now)).then_some(now.handler)
}

fn kernel_action(signal: c_int, new: Option<&KernelAction>, old: Option<&mut KernelAction>) -> bool {
    let new = new.map_or(0, |new| (&raw const *new) as usize);
    let old = old.map_or(0, |old| (&raw mut *old) as usize);
    // SAFETY: the kernel reads and writes one structure each, both live; the handler has the
    // signature that the flags say, and is never unloaded: the library is preloaded.
    unsafe { syscall(nr::RT_SIGACTION, [signal as usize, new, old, 8, 0, 0]) == 0 }
}

/// Returns from a signal handler.
///
/// # Safety
///
/// A signal handler returns here, with the kernel's signal frame at the stack pointer.
#[unsafe(naked)]
unsafe extern "C" fn restore() {
    naked_asm!("mov rax, 15", "syscall")
}

/// Handles a fatal signal, while every other signal is blocked.
///
/// # Safety
///
/// The kernel calls this as the handler of `signal`, with `SA_SIGINFO`: `details` points to the
/// signal's `siginfo_t`, and `context` to its `ucontext_t`.
unsafe extern "C" fn handle(signal: c_int, details: *const c_void, context: *const c_void) {
    /// The offset of the registers in `ucontext_t`.
    const REGISTERS: usize = 40;
    if is_own() {
        // Another thread that inspects blocks is about to end the process: its signal came first.
        mem::forget(INSPECTING.lock());
        if FAULTS.contains(&signal) {
            // SAFETY: `read` requires readable, aligned memory: the registers are part of the
            // context, at a multiple of 8, and any bits are valid integers. `inspect_fault`
            // requires the registers of the signal that its caller handles; they are.
            unsafe { checks::inspect_fault(&context.byte_add(REGISTERS).cast::<[u64; checks::REGISTERS]>().read()) };
        }
        inspect(End::Signal, ReadMode::Probed);
    }
    kernel_action(signal, Some(&KernelAction::DEFAULT), None);
    let (process, thread) = (sys::process_id() as usize, sys::thread_id() as usize);
    // SAFETY: queues a signal to this thread, with the details that the kernel has handed to us.
    let queued = unsafe { syscall(nr::RT_TGSIGQUEUEINFO, [process, thread, signal as usize, details as usize, 0, 0]) };
    if queued != 0 {
        // SAFETY: `syscall` requires that pointers are valid, and that the call breaks no
        // assumption of other code. tgkill(2) takes no pointer. The signal ends the process by its
        // default action, restored above, as it would have without our handler.
        unsafe { syscall(nr::TGKILL, [process, thread, signal as usize, 0, 0, 0]) };
    }
}

fn is_ours(handler: usize) -> bool {
    handler == handle as *const () as usize
}

// --------------------------------------------------------------------------------------- functions

struct Next {
    name: &'static CStr,
    next: AtomicUsize,
}

/// Defines functions in front of the C library's, whose contracts are C's.
macro_rules! functions {
    ($($function:ident = $text:literal, $name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $missing:expr, as $next:ident $body:block)*) => {
        $(
            static $function: Next = Next { name: $text, next: AtomicUsize::new(0) };

            /// The C function of this name.
            ///
            /// # Safety
            ///
            /// The contract of the C function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                let address = match $function.next.load(Ordering::Acquire) {
                    0 => find_within_loader($function.name),
                    address => address,
                };
                if address == 0 {
                    return $missing;
                }
                // SAFETY: the next definition of the function of this name, whose type this is.
                let $next = unsafe { mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(address) };
                $body
            }
        )*

        static FUNCTIONS: &[&Next] = &[$(&$function),*];
    };
}

// SAFETY of the calls below: the program's own arguments.
functions! {
    SIGACTION = c"sigaction", sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int, else -1, as next {
        // SAFETY: the program's own arguments, by the contract of the C function.
        let result = unsafe { next(signal, new, old) };
        if result == 0 && FATAL.contains(&signal) {
            // SAFETY: null, or the program's structures, which the C library has just written and
            // read.
            let (new, old) = unsafe { (new.as_ref(), old.as_mut()) };
            let is_default = new.is_some_and(|new| new.handler == SIG_DFL);
            if let Some(old) = old.filter(|old| is_ours(old.handler)) {
                *old = Action { handler: SIG_DFL, mask: [0; 16], flags: 0, restorer: 0 };
            }
            if is_default {
                install(signal);
            }
        }
        result
    }

    SIGNAL = c"signal", signal(signal: c_int, handler: usize) -> usize, else usize::MAX, as next {
        // SAFETY: the program's own arguments, by the contract of the C function.
        let old = unsafe { next(signal, handler) };
        if FATAL.contains(&signal) && old != usize::MAX && handler == SIG_DFL {
            install(signal);
        }
        if is_ours(old) { SIG_DFL } else { old }
    }

    EXIT = c"_exit", _exit(status: c_int) -> (), else exit_now(status), as next {
        inspect_now(End::Exit);
        // SAFETY: the program's own argument, by the contract of the C function.
        unsafe { next(status) };
    }

    EXIT_C = c"_Exit", _Exit(status: c_int) -> (), else exit_now(status), as next {
        inspect_now(End::Exit);
        // SAFETY: the program's own argument, by the contract of the C function.
        unsafe { next(status) };
    }
}

fn exit_now(status: c_int) {
    // SAFETY: `syscall` requires that pointers are valid, and that the call breaks no assumption of
    // other code. exit_group(2) takes no pointer, and no code of this process runs after it, as the
    // caller of `_exit` demands.
    unsafe { syscall(nr::EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]) };
}
