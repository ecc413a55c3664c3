//! Calls with wrong addresses: they are reported, and the program ends as it would at a fault.

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::arch::nr;
use heapledger_core::sys;

use crate::lookup::{PhcLookup, PhcPageKind};
use crate::region::Position;
use crate::report::{self, Access, PhcError, PhcReport};
use crate::slots::{PhcEvent, Slot};

/// The address at which a fault is caused on purpose, after a report; 0 for none.
static DELIBERATE: AtomicUsize = AtomicUsize::new(0);

/// True if a fault at this address was caused on purpose. Whoever looks at the crash sees the
/// address in it, but it has been reported already.
pub(crate) fn is_deliberate(address: usize) -> bool {
    DELIBERATE.load(Ordering::Relaxed) == address
}

/// The malloc functions that are passed an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Free,
    Realloc,
    UsableSize,
}

/// Reports a call with an address that is not a live block, and ends the program: by an access to
/// the address if that faults, else by SIGABRT, as C libraries do. Returns if the program has
/// handled that.
#[cold]
pub(crate) fn end(function: Function, address: usize, at: PhcEvent, found: Option<(Position, Option<Slot>)>) {
    let lookup = PhcLookup::of(found);
    let error = match (function, lookup.kind) {
        (Function::UsableSize, _) => PhcError::InvalidUsableSize,
        (Function::Free, PhcPageKind::FreedPage) => PhcError::DoubleFree,
        (Function::Realloc, PhcPageKind::FreedPage) => PhcError::ReallocAfterFree,
        (_, PhcPageKind::InUsePage) => PhcError::InvalidFree,
        _ => PhcError::WildFree,
    };
    report::note(&PhcReport { error, address, access: Access::Call, at, lookup });
    if lookup.kind == PhcPageKind::InUsePage {
        abort();
        return;
    }
    DELIBERATE.store(address, Ordering::Relaxed);
    // SAFETY: the address is in the reserve. Its page is inaccessible, or, if the system has
    // refused that, readable memory of the checker's. So the read faults, which ends the program or
    // is handled by it, or it reads a byte that is not used.
    let _ = unsafe { ptr::with_exposed_provenance::<u8>(address).read_volatile() };
}

/// Ends the process by SIGABRT, as abort(3) does: after a handler of the program's has returned, by
/// the default action.
fn abort() {
    const SIGABRT: usize = 6;
    let thread = [sys::process_id() as usize, sys::thread_id() as usize, SIGABRT, 0, 0, 0];
    // SAFETY: tgkill(2) and rt_sigaction(2) with a live `struct sigaction` of the kernel's, all of
    // zeroes, which is the default action. The process ends, as it would by a free of such an
    // address in the C library.
    unsafe {
        sys::call(nr::TGKILL, thread);
        let default = [0_usize; 4];
        sys::call(nr::RT_SIGACTION, [SIGABRT, (&raw const default) as usize, 0, 8, 0, 0]);
        sys::call(nr::TGKILL, thread);
    }
}
