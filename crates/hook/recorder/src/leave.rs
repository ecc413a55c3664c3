//! Leaving a session, so that the process can join another one.
//!
//! A program that has the library without a session is [armed](heapledger_wire::armed): it joins
//! sessions while it runs, and leaves each when it is over, or when its recorder has died. To leave
//! is to unmap the rings, and to make everything that was announced to the collector unknown again.
//! Other threads may be inside the recorder at that moment, and no thread may be made to wait for
//! them: so leaving is attempted by calls that find the session to be over, until an attempt finds
//! nobody inside.
//!
//! # Who is inside
//!
//! A thread is inside while the gate of its block is closed and the block's page is the session's,
//! or while it visits (`Process::visit`). A thread that enters closes its gate first and reads the
//! page then. An attempt does both in the other order, with a barrier of all threads between
//! ([`barrier_of_all_threads`](heapledger_core::sys::barrier_of_all_threads)): it makes every block
//! belong to no session, and looks at the gates then. So either the thread finds that its block
//! belongs to no session, and goes no further; or the attempt finds the gate closed, and gives up.
//! A thread that records pays nothing for that: it closes its gate and reads the page in any case.
//! One that is paused closes and opens its gate, which takes a few instructions for each call.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use heapledger_core::hooks::{self, Observer, dispatch_path};
use heapledger_core::lock::{Guard, Lock};
use heapledger_core::{sandbox, stamp, sys};
use heapledger_thread as thread;
use heapledger_unwind::{modules, tree};
use heapledger_wire::armed::state;

use crate::block::ThreadBlock;
use crate::cell::CELL;
use crate::process::Process;
use crate::{addresses, block, session};

/// Held while the process joins or leaves a session.
static SWITCHING: Lock = Lock::new();
static IS_ARMED: AtomicBool = AtomicBool::new(false);
/// The observer of the session that the process belongs to; null if it belongs to none.
static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(ptr::null_mut());
/// The number of attempts to leave the present session.
static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// The number of attempts that are made at once, one for each call; later, one call in
/// [`ONE_IN`] makes one.
const ATTEMPTS_AT_ONCE: u32 = 16;
const ONE_IN: u32 = 64;

/// Makes the process one that can join sessions at any time, if the kernel lets it leave them.
/// Call at its start.
pub fn arm() {
    if !sys::barrier_of_all_threads() {
        return;
    }
    IS_ARMED.store(true, Ordering::Relaxed);
    session::on_over(attempt);
    CELL.requested_at.store((&raw const dispatch_path::REQUESTED).addr() as u64, Ordering::Release);
    dispatch_path::arm();
}

/// True if the process can join sessions.
pub fn is_armed() -> bool {
    IS_ARMED.load(Ordering::Relaxed)
}

/// Notes that the process has joined a session with this observer, which is installed.
pub fn joined(observer: *const Observer) {
    ATTEMPTS.store(0, Ordering::Relaxed);
    CELL.state.store(state::JOINED, Ordering::Release);
    OBSERVER.store(observer.cast_mut(), Ordering::Release);
}

/// Lends the lock under which a process joins a session; `None` if it is joining or leaving, or
/// belongs to one.
pub fn begin_to_join() -> Option<Guard<'static>> {
    let guard = SWITCHING.try_lock()?;
    OBSERVER.load(Ordering::Acquire).is_null().then_some(guard)
}

/// Keeps the process from joining and leaving sessions over a fork, so that the child does not
/// begin in the middle of it. Bounded, because a signal handler may have interrupted the holder.
pub fn fork_begins() -> bool {
    const MILLISECONDS_MAX: u32 = 1000;
    SWITCHING.lock_within(MILLISECONDS_MAX).map(core::mem::forget).is_some()
}

/// Ends [`fork_begins`], in the parent and in the child.
///
/// # Safety
///
/// This thread, or the thread that it was copied from, called it, and it returned true.
pub unsafe fn fork_ends() {
    // SAFETY: `unlock` requires the thread that took the lock, or its copy: this function's
    // `# Safety`.
    unsafe { SWITCHING.unlock() };
}

/// Opens the gate of this thread's block if the thread has left the recorder by a jump: it does not
/// come to the gate again as long as recording is off.
fn reset_stale_guard() {
    // A word of this function's own, which stays until it returns, stands for the return address.
    let words = core::hint::black_box([0x6865_6170_6c65_6467_u64, 0]);
    if let Some(block) = thread::enter::<ThreadBlock>((&raw const words[1]).addr() as u64) {
        block.head.leave();
    }
    core::hint::black_box(&words);
}

/// Leaves the session, which is over, if no thread is inside. Does nothing if the process is not
/// armed. Makes no thread wait; takes some 10 µs if it succeeds (and the time to look at 1.3 MiB of
/// tables in a session that samples).
#[cold]
#[inline(never)]
fn attempt() {
    if !is_armed() || sandbox::is_entered() || OBSERVER.load(Ordering::Relaxed).is_null() {
        return;
    }
    let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
    if attempt >= ATTEMPTS_AT_ONCE && !attempt.is_multiple_of(ONE_IN) {
        return;
    }
    let Some(_guard) = SWITCHING.try_lock() else { return };
    let observer = OBSERVER.load(Ordering::Acquire);
    if observer.is_null() {
        return;
    }
    session::turn_off();
    CELL.state.store(state::LEAVING, Ordering::Release);
    reset_stale_guard();
    let Some(process) = Process::known() else { return };
    // SAFETY: `leave_session` requires a block that stays mapped: listed ones do.
    process.blocks().for_each(|block| unsafe { block::leave_session(block) });
    if !sys::barrier_of_all_threads() {
        return;
    }
    let mut is_anybody_inside = process.has_visitors();
    // SAFETY: `is_inside` requires a block that stays mapped: listed ones do.
    process.blocks().for_each(|block| is_anybody_inside |= unsafe { block::is_inside(block) });
    if is_anybody_inside {
        return;
    }
    // SAFETY: `reset` of a block requires that it belongs to no session, and that its thread is not
    // inside: both was found above, and a thread that has entered since goes no further than
    // `ThreadBlock::reset` says, because recording is off. That of the process, of the session and
    // of the tree require that no thread is inside.
    unsafe {
        process.blocks().for_each(|block| (*block.as_ptr()).reset());
        process.reset();
        session::reset();
        // Without memory, the tree is that of the earlier session, and the process must not join
        // another one.
        if !tree::restart() {
            IS_ARMED.store(false, Ordering::Relaxed);
            return CELL.requested_at.store(0, Ordering::Release);
        }
    }
    modules::advance_epoch();
    stamp::forget_announced();
    addresses::clear();
    // Fails only if it is not installed.
    let _ = hooks::remove_observer(observer);
    OBSERVER.store(ptr::null_mut(), Ordering::Release);
    CELL.page_at.store(0, Ordering::Relaxed);
    CELL.state.store(state::ARMED, Ordering::Release);
}
