//! Faults in the reserve.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use heapledger_core::lock::Lock;
use heapledger_core::sys;

use crate::arch::{self, Interrupted, set_word, word};
use crate::lookup::{PhcPageKind, lookup_within};
use crate::report::{self, Access, PhcError, PhcReport};
use crate::{misuse, slots, stack};

/// The bytes of the stack on which reports are made. That of a signal handler may have 2 KiB.
const STACK_LENGTH: usize = 64 << 10;
/// The end of that stack; 0 before it is mapped.
static STACK_END: AtomicUsize = AtomicUsize::new(0);
/// The address and the program counter of the fault that was reported last, by any thread.
static LAST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The offset of the thread's word with a hash of the same for the thread's own last fault.
const LAST_OF_THREAD: usize = 24;
/// Held while the stack is used.
static STACK_LOCK: Lock = Lock::new();

/// Maps the stack for reports. Without memory for it, reports use the stack of the handler.
pub(crate) fn prepare() {
    if STACK_END.load(Ordering::Relaxed) != 0 {
        return;
    }
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
    if !slots::contains(address) {
        return;
    }
    // SAFETY: `Interrupted::read` has the same contract.
    let mut fault = Fault { address, at: unsafe { Interrupted::read(context) } };
    // A handler of the program's may have restored the default action and returned, so that the
    // instruction faults again: Rust's standard library does.
    let hash = (address as u64 ^ fault.at.pc.rotate_left(32)) as usize;
    let is_reported = misuse::take_deliberate(address) || word::<LAST_OF_THREAD>() == hash;
    set_word::<LAST_OF_THREAD>(hash);
    if is_reported {
        return;
    }
    // A handler of the program's must not run on the small stack, nor leave it by a jump: the lock
    // would stay held.
    sys::without_signals(|| report_once(&mut fault));
}

/// Reports a fault, unless another thread has reported the same error: then waits until that report
/// is written, because this thread may end the process when this returns.
fn report_once(fault: &mut Fault) {
    let end = STACK_END.load(Ordering::Acquire);
    let guard = STACK_LOCK.lock_within(report::WAIT_MILLISECONDS);
    let error = [fault.address as u64, fault.at.pc];
    if LAST.each_ref().map(|word| word.load(Ordering::Relaxed)) == error {
        return;
    }
    LAST.iter().zip(error).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    match guard.filter(|_| end != 0) {
        Some(guard) => {
            // SAFETY: the stack ends at `end`, a multiple of the page size, and nobody else uses
            // it: `guard` holds its lock. `report_at` returns, and its argument is a live `Fault`.
            unsafe { arch::call_on_stack(report_at, ptr::from_mut(fault).cast(), end) };
            drop(guard);
        }
        None => report(fault),
    }
}

extern "C" fn report_at(fault: *mut c_void) {
    // SAFETY: `report_once` passes a live `Fault`, which nobody else accesses.
    report(unsafe { &*fault.cast::<Fault>() });
}

fn report(&Fault { address, at }: &Fault) {
    let access = match at.error {
        error if error & 16 != 0 => Access::Execute,
        error if error & 2 != 0 => Access::Write,
        _ => Access::Read,
    };
    let event = stack::capture_interrupted(&at);
    // Another thread may be forking, which holds the lock while the kernel copies the process.
    let lookup = lookup_within(address, report::WAIT_MILLISECONDS);
    let error = match lookup.kind {
        _ if lookup.was_locked => PhcError::Unknown,
        // The slot was never used.
        PhcPageKind::GuardPage if lookup.block.is_none() => PhcError::WildAccess,
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
