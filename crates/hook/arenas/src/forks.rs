//! The locks of this crate around a fork: held from before it until after it, so that the child
//! gets whole tables.
//!
//! The thread that forks may still run handlers of the program while it holds them: those that were
//! registered before ours. They may free blocks and use arenas. So its own accesses [reopen] the
//! locks for a moment. In the child the thread has another id, but the same thread pointer.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use heapledger_core::arch;

/// The functions that take and release all locks.
pub(crate) struct AllLocks {
    /// Takes all locks, and calls [`held`].
    pub(crate) take: extern "C" fn(),
    /// Calls [`released`], and releases all locks.
    pub(crate) release: extern "C" fn(),
}

/// The thread pointer of the thread that holds the locks over a fork; 0 if there is none. Written
/// while the locks are held. Only the thread itself can find its own value.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
/// The functions of the last call of [`held`].
static LOCKS: AtomicPtr<AllLocks> = AtomicPtr::new(ptr::null_mut());

/// Notes that this thread has taken all locks over a fork.
pub(crate) fn held(locks: &'static AllLocks) {
    LOCKS.store(ptr::from_ref(locks).cast_mut(), Ordering::Relaxed);
    HOLDER.store(arch::thread_pointer(), Ordering::Relaxed);
}

/// Notes that the thread that holds the locks over a fork is about to release them.
pub(crate) fn released() {
    HOLDER.store(0, Ordering::Relaxed);
}

/// Releases the locks if this thread holds them over a fork; dropping the value takes them again.
/// To be called before each access that takes one of the locks: another thread never waits for one
/// of them while it holds another, so the locks are taken again in the end.
#[inline(always)]
pub(crate) fn reopen() -> Reopened {
    let holder = HOLDER.load(Ordering::Relaxed);
    Reopened(if holder != 0 && holder == arch::thread_pointer() { reopen_all() } else { None })
}

#[cold]
fn reopen_all() -> Option<&'static AllLocks> {
    // SAFETY: null, or a static table: `held` stores nothing else.
    let locks = unsafe { LOCKS.load(Ordering::Relaxed).as_ref() };
    if let Some(locks) = locks {
        (locks.release)();
    }
    locks
}

/// Takes the locks again when it is dropped.
#[must_use]
pub(crate) struct Reopened(Option<&'static AllLocks>);

impl Drop for Reopened {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(locks) = self.0 {
            (locks.take)();
        }
    }
}
