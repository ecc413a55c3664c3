//! Data that one thread at a time uses, under a lock that a fork can hold.

use core::cell::UnsafeCell;
use core::mem;

use heapledger_core::lock::Lock;

/// Data under a lock.
pub(crate) struct Locked<T> {
    lock: Lock,
    data: UnsafeCell<T>,
}

// SAFETY: `Sync` demands that threads may share it: `with` gives the data to one at a time, which
// holds the lock. The pointers in the data that this crate locks are of memory that every thread
// may use.
unsafe impl<T> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Locks data.
    pub(crate) const fn new(data: T) -> Locked<T> {
        Locked { lock: Lock::new(), data: UnsafeCell::new(data) }
    }

    /// Runs a function with the data. It must not come back here for the same data.
    pub(crate) fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        let _guard = self.lock.lock();
        // SAFETY: a unique reference demands that there is no other: all are made here, under the
        // lock, and `run` does not come back here.
        run(unsafe { &mut *self.data.get() })
    }

    /// Runs a function with the data if nobody has the lock, as [`Locked::with`] does.
    pub(crate) fn try_with<R>(&self, run: impl FnOnce(&mut T) -> R) -> Option<R> {
        let _guard = self.lock.try_lock()?;
        // SAFETY: as in `with`, all unique references are made under the lock, which this thread
        // has, and `run` does not come back here.
        Some(run(unsafe { &mut *self.data.get() }))
    }

    /// Locks for a fork.
    pub(crate) fn lock_for_fork(&self) {
        mem::forget(self.lock.lock());
    }

    /// Unlocks after a fork, in both processes.
    ///
    /// # Safety
    ///
    /// This thread, or the one that it was copied from, has called [`Locked::lock_for_fork`].
    pub(crate) unsafe fn unlock_after_fork(&self) {
        // SAFETY: `unlock` demands that this thread, or its original, took the lock and forgot the
        // guard: this function's `# Safety`.
        unsafe { self.lock.unlock() };
    }
}
