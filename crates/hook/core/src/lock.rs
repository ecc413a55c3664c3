//! A futex lock: 4 bytes, valid when zeroed, usable in memory shared between processes.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// A lock that needs no initialisation beyond zeroed memory and no clean-up.
///
/// It does not notice the death of its holder: in memory shared with other processes use [`Lock::try_lock`].
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Lock(AtomicU32);

impl Lock {
    /// A free lock.
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok().then_some(Guard(self))
    }

    /// Takes the lock, sleeping in the kernel while another thread holds it.
    pub fn lock(&self) -> Guard<'_> {
        for _ in 0..100 {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            core::hint::spin_loop();
        }
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            sys::futex_wait(&self.0, CONTENDED, None);
        }
        Guard(self)
    }
}

/// Releases the lock when dropped.
#[derive(Debug)]
#[must_use]
pub struct Guard<'lock>(&'lock Lock);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(FREE, Ordering::Release) == CONTENDED {
            sys::futex_wake(&self.0.0, 1);
        }
    }
}
