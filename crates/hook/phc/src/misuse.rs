//! Calls with wrong addresses: they are reported, and the program ends as it would at a fault.

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::fatal;

use crate::lookup::{PhcLookup, PhcPageKind};
use crate::region::Position;
use crate::report::{self, Access, PhcError, PhcReport};
use crate::slots::{PhcEvent, Slot};

/// The address at which a fault is caused on purpose, after a report; 0 for none.
static DELIBERATE: AtomicUsize = AtomicUsize::new(0);

/// True if a fault at this address was caused on purpose, so that the address is in the crash; it
/// has been reported already. True once: a later fault there is another error.
pub(crate) fn take_deliberate(address: usize) -> bool {
    DELIBERATE.compare_exchange(address, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// The malloc functions that are passed an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Free,
    Realloc,
    UsableSize,
}

/// Reports a call with an address that is not a live block, and ends the program: by an access to
/// the address, which faults, unless the address is in a live block: then by SIGABRT, as C
/// libraries do. Returns if the program has handled the fault.
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
        fatal::end();
    }
    DELIBERATE.store(address, Ordering::Relaxed);
    // SAFETY: the address is in the reserve. Its page is inaccessible, or, if the system has
    // refused that, readable memory of the checker's. So the read faults, which ends the program or
    // is handled by it, or it reads a byte that is not used.
    let _ = unsafe { ptr::with_exposed_provenance::<u8>(address).read_volatile() };
    // If it has not faulted, nobody else takes the mark away.
    take_deliberate(address);
}
