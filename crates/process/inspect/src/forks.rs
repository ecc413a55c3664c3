//! Nobody forks while the dynamic linker's list is read: its lock is one that the C library does not free in children
//! (glibc 2.36), where whoever reads the list then, or unwinds, would wait for ever.

use std::sync::Once;

use heapledger_context::untracked;
use heapledger_core::lock::{Guard, Lock};
use heapledger_resident::capture;

static READING: Lock = Lock::new();

/// No fork, until what is returned is dropped. The thread must not fork meanwhile.
pub(crate) fn none() -> Guard<'static> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| untracked::scope(|| capture::watch_forks(before, after, after)));
    READING.lock()
}

extern "C" fn before() {
    std::mem::forget(READING.lock());
}

extern "C" fn after() {
    // SAFETY: `before` took the lock and forgot the guard, in this thread or in that of which it is the copy.
    unsafe { READING.unlock() };
}
