//! A value that can be reached under its lock only.

use core::cell::UnsafeCell;
use core::fmt;
#[cfg(not(all(test, loom)))]
use core::mem;
use core::ops::{Deref, DerefMut};

#[cfg(not(all(test, loom)))]
use heapledger_core::lock::{Guard as Held, Lock};
#[cfg(all(test, loom))]
use model::{Guard as Held, Lock};

/// A value and its lock, on a cache line of its own, away from its neighbours' locks; two, since
/// processors fetch them in pairs.
#[repr(align(128))]
pub struct Locked<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: `Sync` demands that threads which share the value make no data race. The value is
// accessed only by the thread that holds the lock, and goes from thread to thread with it, so it
// has to be `Send`.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> fmt::Debug for Locked<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Locked").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl<T> Locked<T> {
    /// Returns the value, and a free lock.
    #[cfg(not(all(test, loom)))]
    pub const fn new(value: T) -> Locked<T> {
        Locked { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    #[cfg(all(test, loom))]
    pub(crate) fn new(value: T) -> Locked<T> {
        Locked { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock, and returns the value until the guard is dropped.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_, T> {
        let held = self.lock.lock();
        // SAFETY: the lock is held as long as the guard lives, and this is the only place that
        // makes a reference.
        Guard { value: unsafe { &mut *self.value.get() }, _held: held }
    }

    /// Takes the lock until [`Locked::release`].
    pub fn hold(&self) {
        #[cfg(not(all(test, loom)))]
        mem::forget(self.lock.lock());
        #[cfg(all(test, loom))]
        self.lock.hold();
    }

    /// Gives the lock back.
    ///
    /// # Safety
    ///
    /// The calling thread, or, in a forked child, the thread that it is a copy of, called
    /// [`Locked::hold`] last.
    pub unsafe fn release(&self) {
        // SAFETY: `hold` took the lock and forgot the guard, in this thread or the one that it is a
        // copy of, by the caller's promise.
        unsafe { self.lock.unlock() };
    }

    /// Returns the value of a lock that is held.
    ///
    /// # Safety
    ///
    /// The calling thread has called [`Locked::hold`], and uses no other reference to the value
    /// before the release.
    #[expect(clippy::mut_from_ref, reason = "exclusive by the lock, which is held")]
    pub(crate) unsafe fn held(&self) -> &mut T {
        // SAFETY: the reference must be the only one. By this function's `# Safety` this thread
        // holds the lock, so no other thread has one, and this thread uses no other one.
        unsafe { &mut *self.value.get() }
    }
}

/// A value whose lock is held.
pub struct Guard<'l, T> {
    value: &'l mut T,
    _held: Held<'l>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

/// A lock that takes the place of the futex lock under loom, which tries every order.
#[cfg(all(test, loom))]
mod model {
    use core::cell::UnsafeCell;
    use core::mem;

    use loom::sync::{Mutex, MutexGuard};

    pub(super) struct Lock {
        mutex: Mutex<()>,
        /// The guard of a lock that is held by [`Lock::hold`].
        held: UnsafeCell<Option<Guard<'static>>>,
    }

    pub(super) type Guard<'l> = MutexGuard<'l, ()>;

    impl Lock {
        pub(super) fn new() -> Lock {
            Lock { mutex: Mutex::new(()), held: UnsafeCell::new(None) }
        }

        pub(super) fn lock(&self) -> Guard<'_> {
            self.mutex.lock().unwrap()
        }

        pub(super) fn hold(&self) {
            let guard = self.lock();
            // SAFETY: under the lock. The guard does not outlive it: a thread that holds a lock in
            // a model releases it.
            unsafe { *self.held.get() = Some(mem::transmute::<Guard<'_>, Guard<'static>>(guard)) };
        }

        /// # Safety
        ///
        /// The calling thread called [`Lock::hold`] last.
        pub(super) unsafe fn unlock(&self) {
            // SAFETY: no other reference to `held` exists, because only a thread that holds the
            // mutex makes one. This thread does: by this function's `# Safety` it called `hold`
            // last, which locked the mutex and kept the guard here.
            drop(unsafe { (*self.held.get()).take() });
        }
    }
}
