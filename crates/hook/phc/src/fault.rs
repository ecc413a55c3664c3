//! Faults in the reserve.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::lock::{Guard, Lock};
use heapledger_core::sys;

use crate::arch::{self, Interrupted};
use crate::lookup::{PhcLookup, PhcPageKind, lookup};
use crate::report::{self, Access, PhcError, PhcReport};
use crate::{misuse, slots, stack};

/// The bytes of the stack on which reports are made. That of a signal handler may have 2 KiB.
const STACK_LENGTH: usize = 64 << 10;
/// The end of that stack; 0 before it is mapped.
static STACK_END: AtomicUsize = AtomicUsize::new(0);
/// The address and the program counter of the fault that was reported last.
static LAST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Held while the stack is used.
static STACK_LOCK: Lock = Lock::new();

/// Maps the stack for reports. Without memory for it, reports use the stack of the handler.
pub(crate) fn prepare() {
    if let Ok(start) = sys::map_guarded(STACK_LENGTH, false) {
        STACK_END.store(start.expose_provenance() + STACK_LENGTH, Ordering::Release);
    }
}

/// A fault to report.
struct Fault {
    address: usize,
    at: Interrupted,
}

/// Reports a fault at an address, if the address is in the reserve.
///
/// # Safety
///
/// This is a handler of the fault's signal, and `context` is its third argument.
pub(crate) unsafe fn on_fault(address: usize, context: *const c_void) {
    if !slots::contains(address) || misuse::is_deliberate(address) {
        return;
    }
    // SAFETY: `Interrupted::read` has the same contract.
    let mut fault = Fault { address, at: unsafe { Interrupted::read(context) } };
    let end = STACK_END.load(Ordering::Acquire);
    // A handler of the program's may have restored the default action and returned, so that the
    // instruction faults again: Rust's standard library does.
    if LAST[0].load(Ordering::Relaxed) == address as u64 && LAST[1].load(Ordering::Relaxed) == fault.at.pc {
        return;
    }
    LAST[0].store(address as u64, Ordering::Relaxed);
    LAST[1].store(fault.at.pc, Ordering::Relaxed);
    match take_stack().filter(|_| end != 0) {
        Some(guard) => {
            // SAFETY: the stack ends at `end`, a multiple of the page size, and nobody else uses
            // it: `guard` holds its lock. `report_at` returns, and its argument is a live `Fault`.
            unsafe { arch::call_on_stack(report_at, ptr::from_mut(&mut fault).cast(), end) };
            drop(guard);
        }
        None => report(&fault),
    }
}

extern "C" fn report_at(fault: *mut c_void) {
    // SAFETY: `on_fault` passes a live `Fault`, which nobody else accesses.
    report(unsafe { &*fault.cast::<Fault>() });
}

/// Waits for the report of another thread, for a bounded time.
fn take_stack() -> Option<Guard<'static>> {
    const TRIES: u32 = 1000;
    (0..TRIES).find_map(|_| {
        STACK_LOCK.try_lock().or_else(|| {
            sys::futex_wait(&AtomicU32::new(0), 0, Some(1));
            None
        })
    })
}

fn report(&Fault { address, at }: &Fault) {
    let access = match at.error {
        error if error & 16 != 0 => Access::Execute,
        error if error & 2 != 0 => Access::Write,
        _ => Access::Read,
    };
    let event = stack::capture_interrupted(&at);
    let lookup = wait_for(address);
    let error = match lookup.kind {
        PhcPageKind::FreedPage => PhcError::UseAfterFree,
        PhcPageKind::GuardPage if lookup.is_overflow => PhcError::Overflow,
        PhcPageKind::GuardPage => PhcError::Underflow,
        // The pages of a slot that its block does not need are inaccessible, too.
        PhcPageKind::InUsePage if lookup.block.is_some_and(|block| address < block.base) => PhcError::Underflow,
        PhcPageKind::InUsePage => PhcError::Overflow,
        _ => PhcError::WildAccess,
    };
    report::note(&PhcReport { error, address, access, at: event, lookup });
}

/// Looks an address up, again if another thread has the lock at the moment.
fn wait_for(address: usize) -> PhcLookup {
    const TRIES: u32 = 100_000;
    let mut found = lookup(address);
    for _ in 0..TRIES {
        if !found.was_locked {
            break;
        }
        core::hint::spin_loop();
        found = lookup(address);
    }
    found
}
