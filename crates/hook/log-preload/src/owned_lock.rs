//! A lock that knows its holder, for code that a signal handler may interrupt and enter again.

use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use heapledger_core::sys;

/// A lock, valid when zeroed. The thread that takes it is written by the same operation that takes
/// it, so a signal handler of that thread always finds out that it must not wait.
#[derive(Debug)]
pub(crate) struct OwnedLock {
    /// The thread that holds the lock and the frame in which it took it, as a [`tag`]; 0 if none
    /// does.
    holder: AtomicUsize,
    /// An address in the frame in which the holder took the lock; 0 in the moments in which the
    /// lock is held, but nothing runs yet, or nothing any more.
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
/// Less than the distance between a frame and that of a signal handler that interrupts it: the
/// kernel leaves a red zone of 128 bytes and stores a `struct rt_sigframe` of 440 bytes, and the
/// vector registers, at least 512 bytes.
const SIGNAL_FRAME: usize = 1024;
/// The bits of a [`tag`] that have the frame, in steps of 512 bytes: its address modulo 4 GiB.
const FRAME_BITS: u32 = 23;
const FRAME_MASK: usize = (1 << FRAME_BITS) - 1;
const FRAME_STEP_LOG: u32 = 9;

impl OwnedLock {
    /// Runs a function with the lock, in the thread with this pointer. `None` if this thread holds
    /// it already, or has waited too long.
    #[inline(always)]
    pub(crate) fn with<R>(&self, thread: usize, run: impl FnOnce() -> R) -> Option<R> {
        let frame = frame();
        if let Err(holder) = self.holder.compare_exchange(0, tag(thread, frame), Ordering::SeqCst, Ordering::Relaxed)
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
        let (own, mut attempts, mut began) = (tag(thread, frame), 0, None);
        loop {
            let mut expected = 0;
            match holder {
                0 => {}
                left if (left ^ own) >> FRAME_BITS == 0 => {
                    if self.is_held_above(thread, frame, left) {
                        return false;
                    }
                    // The frame that took the lock is gone.
                    self.frame.store(0, Ordering::Relaxed);
                    expected = left;
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
            match self.holder.compare_exchange(expected, own, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => holder = other,
            }
        }
    }

    /// True unless the frame in which this thread took the lock has been left: stacks grow
    /// downwards, so that it was below the present one, or in its place. A handler that interrupts
    /// the holder is further down.
    fn is_held_above(&self, thread: usize, frame: usize, holder: usize) -> bool {
        match self.frame.load(Ordering::Relaxed) {
            0 => {
                // Only the tag knows the frame, modulo 4 GiB. One step above may be the same frame.
                let present = (frame >> FRAME_STEP_LOG) + 1;
                let below = present.wrapping_sub(holder ^ tag(thread, 0)) & FRAME_MASK;
                below > STACK >> FRAME_STEP_LOG
            }
            holder => holder >= frame.saturating_add(SIGNAL_FRAME) || frame.saturating_sub(holder) > STACK,
        }
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

/// Returns a number other than 0 for a thread and one of its frames. Those of two threads differ in
/// the bits above [`FRAME_BITS`]: their pointers have 47 bits, and are more than 64 bytes apart.
#[inline(always)]
const fn tag(thread: usize, frame: usize) -> usize {
    (thread << (FRAME_BITS - 6)) ^ (frame >> FRAME_STEP_LOG & FRAME_MASK)
}

/// Returns an address in a frame near that of the caller.
#[inline(always)]
fn frame() -> usize {
    let here = black_box(0_u8);
    (&raw const here).addr()
}
