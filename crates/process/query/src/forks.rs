//! Blocks forks while the dynamic linker's list is read. The C library does not release the lock of
//! that list in children (glibc 2.36), and a child that reads the list then, or unwinds, would wait
//! for ever.

use std::sync::Once;

use heapledger_annotate::untracked;
use heapledger_core::lock::{Guard, Lock};
use heapledger_inprocess::capture;

static READING: Lock = Lock::new();

/// Blocks forks until the guard is dropped. The calling thread must not fork meanwhile.
pub(crate) fn block() -> Guard<'static> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| untracked::scope(|| capture::watch_forks(before, after, after)));
    READING.lock()
}

extern "C" fn before() {
    std::mem::forget(READING.lock());
}

extern "C" fn after() {
    // SAFETY: `before` took the lock and forgot the guard, in this thread or in that of which it is
    // the copy.
    unsafe { READING.unlock() };
}
