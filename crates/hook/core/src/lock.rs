//! A futex lock: 4 bytes, valid when zeroed, usable in memory shared between processes.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// The time after which a waiter checks the lock again without being woken.
const WAIT_MILLISECONDS: u32 = 100;

/// A lock that needs no initialisation beyond zeroed memory and no clean-up.
///
/// It does not notice the death of its holder: in memory shared with other processes use
/// [`Lock::try_lock`].
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Returns a free lock.
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        // Not `then_some`: a guard that is made is a guard that is dropped.
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| Guard(self))
    }

    /// Takes the lock, sleeping in the kernel while another thread holds it.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Takes the lock; waits about so many milliseconds while another thread holds it, and in a
    /// [sandbox](crate::sandbox) a fiftieth of that. `None` if it is still held. With 0 it is tried
    /// once. For signal handlers: the holder may be the thread that they have interrupted.
    pub fn lock_within(&self, milliseconds: u32) -> Option<Guard<'_>> {
        for _ in 0..milliseconds {
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            // Nobody wakes this word: a wait is a millisecond, unless a signal ends it.
            sys::futex_wait(&AtomicU32::new(0), 0, Some(1));
        }
        self.try_lock()
    }

    #[cold]
    fn wait(&self) -> Guard<'_> {
        for _ in 0..100 {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            core::hint::spin_loop();
        }
        // A holder that enters a sandbox wakes nobody: hence the timeout.
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            sys::futex_wait(&self.0, CONTENDED, Some(WAIT_MILLISECONDS));
        }
        Guard(self)
    }
}

impl Lock {
    /// Releases the lock without its guard, which was forgotten: for locks that are held over a
    /// fork, after which one holder has become two.
    ///
    /// # Safety
    ///
    /// The calling thread, or the thread that it was copied from by a fork, took the lock and
    /// forgot the guard.
    #[inline(always)]
    pub unsafe fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            sys::futex_wake(&self.0, 1);
        }
    }
}

/// Releases the lock when dropped.
#[derive(Debug)]
#[must_use]
pub struct Guard<'lock>(&'lock Lock);

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `unlock` asks that the lock is held and its guard forgotten: the owner of a guard
        // holds the lock, and this guard is being dropped.
        unsafe { self.0.unlock() };
    }
}

#[cfg(test)]
mod tests;
