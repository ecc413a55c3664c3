//! The state of threads that take turns.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::{arch, sandbox, sys};

/// The turns of the threads of a process that [move ranges](crate::hook::mappings). Zeroes are
/// those of a process in which nobody moves a range.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Turns {
    /// The thread pointer of the thread whose turn it is; 0 if it is nobody's.
    pub(crate) holder: AtomicUsize,
    /// The stack pointer of that thread's call, inverted: so it is that of an outermost frame until
    /// the thread has written it.
    inverted_stack: AtomicU64,
    /// The number of turns that have ended, wrapping: threads wait until it changes.
    ended: AtomicU32,
    /// The number of threads that wait.
    pub(crate) waiting: AtomicU32,
}

/// The time after which a turn that has not ended is taken away. In a process that was made by a
/// raw system call, the holder may not exist, and with userfaultfd a move waits for another thread.
const TURN_NANOSECONDS_MAX: u64 = 1_000_000_000;
/// The number of waits that stand for this time in a sandbox, where nobody asks for the time.
const SANDBOX_WAITS_MAX: u64 = TURN_NANOSECONDS_MAX / sys::SPIN_NANOSECONDS;
/// The longest wait before a thread looks again without being woken.
const WAIT_MILLISECONDS: u32 = 20;
const SPINS: u32 = 100;

impl Turns {
    /// Waits until it is this thread's turn. `stack` is the stack pointer of the call. False if it
    /// was the thread's turn already, for an outer call.
    pub(crate) fn take_over(&self, stack: u64) -> bool {
        let own = arch::thread_pointer();
        let mut holder = self.holder.load(Ordering::Relaxed);
        if holder == own {
            let is_own = !self.inverted_stack.load(Ordering::Relaxed) <= stack;
            if is_own {
                self.inverted_stack.store(!stack, Ordering::Relaxed);
            }
            return is_own;
        }
        if holder != 0 || !self.take(0, own) {
            holder = self.holder.load(Ordering::Relaxed);
            self.wait(holder, own);
        }
        self.inverted_stack.store(!stack, Ordering::Relaxed);
        true
    }

    fn take(&self, from: usize, own: usize) -> bool {
        self.holder.compare_exchange(from, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the turn when it ends, or when it has lasted too long.
    #[cold]
    fn wait(&self, mut holder: usize, own: usize) {
        for _ in 0..SPINS {
            if holder == 0 && self.take(0, own) {
                return;
            }
            core::hint::spin_loop();
            holder = self.holder.load(Ordering::Relaxed);
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (mut ended, mut since) = (self.ended.load(Ordering::SeqCst), sys::monotonic_nanoseconds());
        let mut waits = 0;
        loop {
            holder = self.holder.load(Ordering::SeqCst);
            if holder == 0 && self.take(0, own) {
                break;
            }
            let is_late = match sandbox::is_entered() {
                true => waits >= SANDBOX_WAITS_MAX,
                false => sys::monotonic_nanoseconds().saturating_sub(since) >= TURN_NANOSECONDS_MAX,
            };
            if is_late && holder != 0 && self.take(holder, own) {
                break;
            }
            sys::futex_wait(&self.ended, ended, Some(WAIT_MILLISECONDS));
            waits += 1;
            let now = self.ended.load(Ordering::SeqCst);
            if now != ended {
                (ended, since, waits) = (now, sys::monotonic_nanoseconds(), 0);
            }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Ends the turn of this thread.
    pub(crate) fn end(&self) {
        self.inverted_stack.store(0, Ordering::Relaxed);
        // It may have been taken away.
        let own = arch::thread_pointer();
        let _ = self.holder.compare_exchange(own, 0, Ordering::SeqCst, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) != 0 {
            sys::futex_wake(&self.ended, 1);
        }
    }
}
