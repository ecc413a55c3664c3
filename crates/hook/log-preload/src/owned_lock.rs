//! A lock that knows its holder, for code that a signal handler may interrupt and enter again.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use heapledger_core::{arch, sys};

/// A lock, valid when zeroed. The thread that takes it is written by the same operation that takes
/// it, so a signal handler of that thread always finds out that it must not wait.
#[derive(Debug)]
pub(crate) struct OwnedLock {
    /// The thread that holds the lock, by its pointer; 0 if none does.
    holder: AtomicUsize,
    /// The threads that sleep, or are about to.
    waiting: AtomicU32,
    /// The number of times that a sleeper was woken.
    woken: AtomicU32,
}

/// The attempts to take the lock before a thread sleeps.
const ATTEMPTS: u32 = 100;
/// The time after which a sleeper tries again without being woken.
const WAIT_MILLISECONDS: u32 = 10;

impl OwnedLock {
    /// Takes the lock. False if this thread holds it already.
    pub(crate) fn lock(&self) -> bool {
        let thread = arch::thread_pointer();
        let mut attempts = 0;
        loop {
            match self.holder.compare_exchange(0, thread, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(holder) if holder == thread => return false,
                Err(_) if attempts < ATTEMPTS => core::hint::spin_loop(),
                Err(_) => self.sleep(),
            }
            attempts += 1;
        }
    }

    /// Gives the lock back. Only its holder calls this.
    pub(crate) fn unlock(&self) {
        self.holder.store(0, Ordering::SeqCst);
        // Sequentially consistent, as in `sleep`: either this sees the sleeper, or the sleeper sees
        // that the lock is free.
        if self.waiting.load(Ordering::SeqCst) != 0 {
            self.woken.fetch_add(1, Ordering::Relaxed);
            sys::futex_wake(&self.woken, 1);
        }
    }

    #[cold]
    fn sleep(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let woken = self.woken.load(Ordering::Relaxed);
        if self.holder.load(Ordering::SeqCst) != 0 {
            sys::futex_wait(&self.woken, woken, Some(WAIT_MILLISECONDS));
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
