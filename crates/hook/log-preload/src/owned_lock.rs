//! A lock that knows its holder, for code that a signal handler may interrupt and enter again.

use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use heapledger_core::sys;

/// A lock, valid when zeroed. The thread that takes it is written by the same operation that takes
/// it, so a signal handler of that thread always finds out that it must not wait.
#[derive(Debug)]
pub(crate) struct OwnedLock {
    /// The thread that holds the lock, by its pointer; 0 if none does.
    holder: AtomicUsize,
    /// An address in the frame in which the holder took the lock.
    frame: AtomicUsize,
    /// True if threads may sleep, or are about to.
    is_awaited: AtomicBool,
    /// The number of times that a sleeper was woken.
    woken: AtomicU32,
    /// True if a thread has waited in vain: the next ones do not wait as long.
    is_stuck: AtomicBool,
}

/// The attempts to take the lock before a thread sleeps.
const ATTEMPTS: u32 = 100;
/// The time after which a sleeper tries again without being woken.
const WAIT_MILLISECONDS: u32 = 10;
/// The longest time that a thread waits: its holder may be gone, as after a jump out of a signal
/// handler, or suspended.
const WAIT_MAX_NANOSECONDS: u64 = 5_000_000_000;
/// The largest distance between two frames of one stack; further away is another stack.
const STACK: usize = 8 << 20;

impl OwnedLock {
    /// Runs a function with the lock, in the thread with this pointer. `None` if this thread holds
    /// it already, or has waited too long.
    #[inline(always)]
    pub(crate) fn with<R>(&self, thread: usize, run: impl FnOnce() -> R) -> Option<R> {
        let frame = frame();
        if let Err(holder) = self.holder.compare_exchange(0, thread, Ordering::SeqCst, Ordering::Relaxed)
            && !self.wait(thread, frame, holder)
        {
            return None;
        }
        self.frame.store(frame, Ordering::Relaxed);
        self.is_stuck.store(false, Ordering::Relaxed);
        let answer = run();
        self.unlock();
        Some(answer)
    }

    /// Takes the lock that another thread, or this one, held a moment ago. False if this thread
    /// holds it already, or has waited too long.
    #[cold]
    #[inline(never)]
    fn wait(&self, thread: usize, frame: usize, mut holder: usize) -> bool {
        let (mut attempts, mut began) = (0, None);
        loop {
            match holder {
                0 => {}
                holder if holder == thread => {
                    if self.is_held_above(frame) {
                        return false;
                    }
                    // The frame that took the lock is gone.
                    break;
                }
                _ if attempts < ATTEMPTS => {
                    attempts += 1;
                    core::hint::spin_loop();
                    // Reads only, so that the holder keeps the cache line.
                    holder = self.holder.load(Ordering::Relaxed);
                    continue;
                }
                _ if self.is_stuck.load(Ordering::Relaxed) => return false,
                _ => {
                    let now = sys::monotonic_nanoseconds();
                    if now.saturating_sub(*began.get_or_insert(now)) > WAIT_MAX_NANOSECONDS {
                        self.is_stuck.store(true, Ordering::Relaxed);
                        return false;
                    }
                    self.sleep();
                }
            }
            match self.holder.compare_exchange(0, thread, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => holder = other,
            }
        }
        true
    }

    /// True unless the frame in which this thread took the lock has been left: stacks grow
    /// downwards, so that it was below the present one.
    fn is_held_above(&self, frame: usize) -> bool {
        let holder = self.frame.load(Ordering::Relaxed);
        // Between the two stores of `lock` there is no frame yet.
        holder == 0 || holder >= frame || frame - holder > STACK
    }

    /// Gives the lock back. Only its holder calls this.
    #[inline(always)]
    fn unlock(&self) {
        self.frame.store(0, Ordering::Relaxed);
        self.holder.store(0, Ordering::SeqCst);
        // Sequentially consistent, as in `sleep`: either this sees the sleeper, or the sleeper sees
        // that the lock is free.
        if self.is_awaited.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Wakes one sleeper. Other unlocks wake nobody until it runs, and sets the flag again for
    /// those that still sleep.
    #[cold]
    #[inline(never)]
    fn wake(&self) {
        self.is_awaited.store(false, Ordering::SeqCst);
        self.woken.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&self.woken, 1);
    }

    #[cold]
    fn sleep(&self) {
        // In this order: if `wake` clears the flag after it was set here, the number changes after
        // it was read here, and there is no sleep.
        let woken = self.woken.load(Ordering::SeqCst);
        self.is_awaited.store(true, Ordering::SeqCst);
        if self.holder.load(Ordering::SeqCst) != 0 {
            sys::futex_wait(&self.woken, woken, Some(WAIT_MILLISECONDS));
            self.is_awaited.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns an address in a frame near that of the caller.
#[inline(always)]
fn frame() -> usize {
    let here = black_box(0_u8);
    (&raw const here).addr()
}
