//! Threads that move ranges take turns.
//!
//! A move is told by two events, one before the call and one after it, since both its addresses may
//! be another thread's at once. If two threads moved ranges at the same time, the events would not
//! say which of them the kernel moved first, and so not what lies at an address that one has left
//! and the other has got. The kernel makes moves one after the other anyway.
//!
//! Only moves wait, only for moves, and never for anything that a thread does with a lock of the
//! program's: who has the turn makes one system call and writes two events.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::{arch, sandbox, sys};

/// The thread pointer of the thread whose turn it is; 0 if it is nobody's.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
/// The stack pointer of that thread's call; the largest number until it has written it.
static HOLDER_STACK: AtomicU64 = AtomicU64::new(u64::MAX);
/// The number of turns that have ended, wrapping: threads wait until it changes.
static ENDED: AtomicU32 = AtomicU32::new(0);
/// The number of threads that wait.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// The time after which a turn that has not ended is taken away. In a process that was made by a
/// raw system call, the holder may not exist, and with userfaultfd a move waits for another thread.
const TURN_NANOSECONDS_MAX: u64 = 1_000_000_000;
/// The number of waits that stand for this time in a sandbox, where nobody asks for the time.
const SANDBOX_WAITS_MAX: u64 = TURN_NANOSECONDS_MAX / sys::SPIN_NANOSECONDS;
/// The longest wait before a thread looks again without being woken.
const WAIT_MILLISECONDS: u32 = 20;
const SPINS: u32 = 100;

/// A turn, which ends when it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Turn {
    is_own: bool,
}

/// Waits until it is this thread's turn to move a range. `stack` is the stack pointer of the call.
///
/// A signal handler that interrupts the holder of the turn has it, too. If the handler leaves by
/// `longjmp`, the thread's next move, from an outer frame, takes the turn over.
pub(super) fn begin(stack: u64) -> Turn {
    let own = arch::thread_pointer();
    let mut holder = HOLDER.load(Ordering::Relaxed);
    if holder == own {
        let is_own = HOLDER_STACK.load(Ordering::Relaxed) <= stack;
        if is_own {
            HOLDER_STACK.store(stack, Ordering::Relaxed);
        }
        return Turn { is_own };
    }
    if holder != 0 || !take(0, own) {
        holder = HOLDER.load(Ordering::Relaxed);
        wait(holder, own);
    }
    HOLDER_STACK.store(stack, Ordering::Relaxed);
    Turn { is_own: true }
}

fn take(from: usize, own: usize) -> bool {
    HOLDER.compare_exchange(from, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Takes the turn when it ends, or when it has lasted too long.
#[cold]
fn wait(mut holder: usize, own: usize) {
    for _ in 0..SPINS {
        if holder == 0 && take(0, own) {
            return;
        }
        core::hint::spin_loop();
        holder = HOLDER.load(Ordering::Relaxed);
    }
    WAITING.fetch_add(1, Ordering::SeqCst);
    let (mut ended, mut since, mut waits) = (ENDED.load(Ordering::SeqCst), sys::monotonic_nanoseconds(), 0);
    loop {
        holder = HOLDER.load(Ordering::SeqCst);
        if holder == 0 && take(0, own) {
            break;
        }
        let is_late = match sandbox::is_entered() {
            true => waits >= SANDBOX_WAITS_MAX,
            false => sys::monotonic_nanoseconds().saturating_sub(since) >= TURN_NANOSECONDS_MAX,
        };
        if is_late && holder != 0 && take(holder, own) {
            break;
        }
        sys::futex_wait(&ENDED, ended, Some(WAIT_MILLISECONDS));
        waits += 1;
        let now = ENDED.load(Ordering::SeqCst);
        if now != ended {
            (ended, since, waits) = (now, sys::monotonic_nanoseconds(), 0);
        }
    }
    WAITING.fetch_sub(1, Ordering::Relaxed);
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        HOLDER_STACK.store(u64::MAX, Ordering::Relaxed);
        // It may have been taken away.
        let own = arch::thread_pointer();
        let _ = HOLDER.compare_exchange(own, 0, Ordering::SeqCst, Ordering::Relaxed);
        ENDED.fetch_add(1, Ordering::SeqCst);
        if WAITING.load(Ordering::SeqCst) != 0 {
            sys::futex_wake(&ENDED, 1);
        }
    }
}

/// Ends the turn of a thread that does not exist in this process: a forked child has one thread.
pub fn child_begins() {
    WAITING.store(0, Ordering::Relaxed);
    if HOLDER.load(Ordering::Relaxed) != arch::thread_pointer() {
        HOLDER_STACK.store(u64::MAX, Ordering::Relaxed);
        HOLDER.store(0, Ordering::Relaxed);
    }
}
