//! The signals of faults, SIGSEGV and SIGBUS: our handler is in front of the program's.
//!
//! The kernel has our handler, with the flags and the mask of the program's, so that the program's
//! runs on the stack and with the blocked signals that it asked for. [`set_program_action`] keeps
//! the program's own, for code that stands in front of the C library's `sigaction`.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use heapledger_core::arch::nr;
use heapledger_core::lock::Lock;
use heapledger_core::{sandbox, sys};

use crate::{arch, fault, slots};

/// SIGSEGV and SIGBUS.
const FAULTS: [c_int; 2] = [11, 7];

const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;
const SA_SIGINFO: u64 = 4;
const SA_RESTORER: u64 = 0x0400_0000;
const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESETHAND: u64 = 0x8000_0000;

/// An action of a signal, as the kernel has it (`struct kernel_sigaction`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SignalAction {
    /// The address of the handler, or SIG_DFL or SIG_IGN.
    pub handler: usize,
    /// The flags: SA_SIGINFO and others.
    pub flags: u64,
    /// The address to which the handler returns.
    pub restorer: usize,
    /// The signals that are blocked while the handler runs.
    pub mask: u64,
}

/// The program's action of a signal.
///
/// **Guarded cell**: `rest` is accessed in this module only, and only while `LOCK` is held.
/// Handlers read `handler` and `is_once` alone.
struct ProgramAction {
    handler: AtomicUsize,
    /// True if the action becomes the default one when it is taken.
    is_once: AtomicBool,
    rest: UnsafeCell<SignalAction>,
}

// SAFETY: `Sync` demands that threads which share the value make no data race: two fields are
// atomics, and the third is a *guarded cell* of plain values.
unsafe impl Sync for ProgramAction {}

static ACTIONS: [ProgramAction; 2] = [const {
    ProgramAction {
        handler: AtomicUsize::new(SIG_DFL),
        is_once: AtomicBool::new(false),
        rest: UnsafeCell::new(SignalAction { handler: SIG_DFL, flags: 0, restorer: 0, mask: 0 }),
    }
}; 2];
static LOCK: Lock = Lock::new();
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

fn action(signal: c_int) -> Option<&'static ProgramAction> {
    FAULTS.iter().position(|&fault| fault == signal).and_then(|index| ACTIONS.get(index))
}

/// The process whose actions are kept here. A child of vfork(2) shares this memory, but has actions
/// of its own.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// True if our handler is in front of the program's action of this signal. False in a child of
/// vfork(2) or clone(2), in which no handler of forks has run.
pub fn handles(signal: c_int) -> bool {
    FAULTS.contains(&signal) && IS_INSTALLED.load(Ordering::Acquire) && is_owner()
}

/// True in the process that has installed the handlers, and in its children by fork(3); false in a
/// child that shares its parent's memory, by vfork(2).
pub fn is_owner() -> bool {
    OWNER.load(Ordering::Relaxed) == sys::process_id()
}

/// Makes this process the owner of the actions, after it was forked.
pub(crate) fn set_owner() {
    OWNER.store(sys::process_id(), Ordering::Relaxed);
}

/// Installs our handler in front of the present actions.
pub fn install_handlers() {
    if sandbox::is_entered() || IS_INSTALLED.load(Ordering::Acquire) {
        return;
    }
    set_owner();
    sys::without_signals(|| {
        let _guard = LOCK.lock();
        for signal in FAULTS {
            let mut now = SignalAction::default();
            if kernel_action(signal, None, Some(&mut now)) && now.handler != own_handler() {
                keep(signal, now);
            }
            install(signal);
        }
        IS_INSTALLED.store(true, Ordering::Release);
    });
}

/// Gives the kernel the program's own actions.
pub fn remove_handlers() {
    if !IS_INSTALLED.swap(false, Ordering::AcqRel) {
        return;
    }
    sys::without_signals(|| {
        let _guard = LOCK.lock();
        for signal in FAULTS {
            kernel_action(signal, Some(&with_restorer(kept(signal))), None);
        }
    });
}

/// Replaces the program's action of a signal for which [`handles`] is true, and returns the former
/// one. With `None` nothing is replaced. Returns `None` if the kernel has refused the action.
pub fn set_program_action(signal: c_int, new: Option<SignalAction>) -> Option<SignalAction> {
    sys::without_signals(|| {
        // A thread that forks holds the lock already.
        let _guard = (!slots::is_forking()).then(|| LOCK.lock());
        let old = kept(signal);
        if let Some(new) = new {
            keep(signal, new);
            if !install(signal) {
                keep(signal, old);
                return None;
            }
        }
        Some(old)
    })
}

/// Keeps an action as the program's. `LOCK` must be held.
fn keep(signal: c_int, new: SignalAction) {
    let Some(action) = action(signal) else { return };
    // SAFETY: no reference to the *guarded cell* exists: the caller holds `LOCK`.
    unsafe { action.rest.get().write(new) };
    action.is_once.store(new.flags & SA_RESETHAND != 0, Ordering::Relaxed);
    action.handler.store(new.handler, Ordering::Release);
}

/// Returns the program's action. `LOCK` must be held.
fn kept(signal: c_int) -> SignalAction {
    let Some(action) = action(signal) else { return SignalAction::default() };
    // SAFETY: nobody writes to the *guarded cell*: the caller holds `LOCK`.
    let rest = unsafe { action.rest.get().read() };
    match action.handler.load(Ordering::Relaxed) {
        // A handler that is called once has been called.
        SIG_DFL => SignalAction::default(),
        handler => SignalAction { handler, ..rest },
    }
}

/// Returns an action with an address to return to, without which x86-64 cannot deliver the signal:
/// programs leave it to the C library.
fn with_restorer(action: SignalAction) -> SignalAction {
    if action.handler <= SIG_IGN || action.flags & SA_RESTORER != 0 {
        return action;
    }
    SignalAction { flags: action.flags | SA_RESTORER, restorer: arch::restore as *const () as usize, ..action }
}

/// Gives the kernel our handler, with the flags of the program's action. `LOCK` must be held.
fn install(signal: c_int) -> bool {
    let program = kept(signal);
    let has_handler = program.handler > SIG_IGN;
    let (flags, mask) = if has_handler { (program.flags, program.mask) } else { (SA_ONSTACK, u64::MAX) };
    let ours = SignalAction {
        handler: own_handler(),
        flags: flags & !SA_RESETHAND | SA_SIGINFO | SA_RESTORER,
        restorer: arch::restore as *const () as usize,
        mask,
    };
    kernel_action(signal, Some(&ours), None)
}

fn own_handler() -> usize {
    arch::handler as *const () as usize
}

fn kernel_action(signal: c_int, new: Option<&SignalAction>, old: Option<&mut SignalAction>) -> bool {
    let new = new.map_or(0, |new| (&raw const *new) as usize);
    let old = old.map_or(0, |old| (&raw mut *old) as usize);
    // SAFETY: the kernel reads and writes one structure each, both live. The handler is ours, which
    // has the signature that its flags say and is never unloaded, or the program's own action.
    unsafe { sys::call(nr::RT_SIGACTION, [signal as usize, new, old, 8, 0, 0]) == 0 }
}

/// Handles a signal of a fault, and returns the program's handler, which is to be called next; 0 if
/// there is none.
///
/// Without a handler of the program's, the default action is restored. The instruction faults again
/// when the handler returns, and the process dies of it as it would have. A signal that somebody
/// has sent is queued again.
pub(crate) extern "C" fn on_signal(signal: c_int, details: *const c_void, context: *const c_void) -> usize {
    // SAFETY: with SA_SIGINFO, `details` is a `siginfo_t`, of 128 bytes: `si_code` is at byte 8,
    // and the address of a fault at byte 16.
    let (code, address) = unsafe { (details.cast::<i32>().add(2).read(), details.cast::<usize>().add(2).read()) };
    let is_fault = code > 0;
    if is_fault {
        // SAFETY: `context` is this handler's third argument.
        unsafe { fault::on_fault(address, context) };
    }
    let Some(action) = action(signal) else { return 0 };
    let handler = action.handler.load(Ordering::Acquire);
    if handler > SIG_IGN {
        if action.is_once.load(Ordering::Relaxed) {
            action.handler.store(SIG_DFL, Ordering::Release);
        }
        return handler;
    }
    if handler == SIG_IGN && !is_fault {
        return 0;
    }
    kernel_action(signal, Some(&SignalAction::default()), None);
    if !is_fault {
        let (process, thread) = (sys::process_id() as usize, sys::thread_id() as usize);
        // SAFETY: queues the signal to this thread with the details that the kernel has handed to
        // us. It is delivered when this handler has returned.
        unsafe {
            sys::call(nr::RT_TGSIGQUEUEINFO, [process, thread, signal as usize, details as usize, 0, 0]);
        }
    }
    0
}

/// Takes the lock until [`release`], around a fork.
pub(crate) fn hold() {
    core::mem::forget(LOCK.lock());
}

/// # Safety
///
/// This thread called `hold`, or is a copy of the one that did.
pub(crate) unsafe fn release() {
    // SAFETY: `Lock::unlock` requires that this thread, or the one that it was copied from by a
    // fork, took the lock and forgot the guard. `hold` does both.
    unsafe { LOCK.unlock() };
}
