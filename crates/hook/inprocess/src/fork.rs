//! Handlers around a fork: the child gets a whole ledger.

use core::sync::atomic::{AtomicBool, Ordering};

use heapledger_core::arch;
use heapledger_thread as thread;
use heapledger_unwind::tree;

use crate::LEDGER;
use crate::block::{FORKING, ThreadBlock};
use crate::events::ring;
use crate::mode::CONTROL;

/// True if the thread that forks has entered its block.
static HAS_ENTERED: AtomicBool = AtomicBool::new(false);

/// Keeps all threads out of the ledger while the process is copied: locks that they held would stay
/// locked in the child.
pub(crate) extern "C" fn before_fork() {
    core::mem::forget(CONTROL.lock());
    // A word that does not change, for the guard; it is not on the thread's stack, so the guard is
    // never found stale.
    static FRAME: [u64; 2] = [0x6865_6170_6c65_6467, 0];
    HAS_ENTERED.store(thread::enter::<ThreadBlock>(&raw const FRAME[1] as u64).is_some(), Ordering::Relaxed);
    FORKING.store(arch::thread_pointer(), Ordering::Relaxed);
    LEDGER.before_fork();
    ring::before_fork();
}

pub(crate) extern "C" fn after_fork_in_parent() {
    end_fork();
    if HAS_ENTERED.load(Ordering::Relaxed)
        && let thread::Current::Block(block) = thread::current::<ThreadBlock>()
    {
        // SAFETY: the dereference requires a live block that nobody else uses. It is this thread's,
        // which is never unmapped. `before_fork` closed its gate, so signal handlers keep out of
        // it, and kept no reference.
        unsafe { (*block.as_ptr()).head.leave() };
    }
    // SAFETY: `Lock::unlock` requires that this thread, or the one that it was copied from by a
    // fork, took the lock and forgot the guard. `before_fork` did both, in this thread, which has
    // forked since.
    unsafe { CONTROL.unlock() };
}

pub(crate) extern "C" fn after_fork_in_child() {
    // SAFETY: `tree::start_child` requires that this process has one thread. By POSIX a forked
    // child has only the copy of the thread that forked, and that thread runs this handler before
    // `fork` returns.
    unsafe { tree::start_child() };
    // Blocks and pool are wiped: this thread's block is found unattached.
    end_fork();
    // SAFETY: `before_fork` took the lock, in the thread that this one is a copy of.
    unsafe { CONTROL.unlock() };
}

fn end_fork() {
    // SAFETY: the calling thread called `before_fork`, or is its copy in the child.
    unsafe {
        ring::after_fork();
        LEDGER.after_fork();
    }
    FORKING.store(0, Ordering::Relaxed);
}
