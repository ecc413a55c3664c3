//! Nobody forks while the dynamic linker's list is read: its lock is one that the C library does not free in children
//! (glibc 2.36), where whoever reads the list then, or unwinds, would wait for ever.

use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

static READING: Mutex<()> = Mutex::new(());

/// What the thread that forks holds meanwhile.
struct Store(UnsafeCell<Option<MutexGuard<'static, ()>>>);

// SAFETY: only used by the handlers below. They run in the thread that forks and in its copy, and from the first to the
// last of them that thread has the lock: no other is in there.
unsafe impl Sync for Store {}

static HELD: Store = Store(UnsafeCell::new(None));

/// No fork, until what is returned is dropped. The thread must not fork meanwhile.
pub(crate) fn none() -> MutexGuard<'static, ()> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions of this artefact, for which the C library forgets them when it is unloaded. They do what may be
        // done there: they wait for a lock under which nobody forks, and free it.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    });
    lock()
}

fn lock() -> MutexGuard<'static, ()> {
    READING.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn before() {
    let held = lock();
    // SAFETY: see `Store`: this thread has the lock.
    unsafe { *HELD.0.get() = Some(held) };
}

unsafe extern "C" fn after() {
    // SAFETY: see `Store`. `before` has run in this thread, or in that of which it is the copy.
    drop(unsafe { (*HELD.0.get()).take() });
}
