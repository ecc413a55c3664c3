//! Forks: a child has copies of all locks, and only one thread, which could not wait for the
//! others.
//!
//! Around a fork this crate's lists are held, so that they are whole in the child, and their locks
//! are free. That somebody is called, or collects, is written down with the number of the process:
//! it is not so in the child.

use std::cell::UnsafeCell;
use std::process;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::sync::{Once, PoisonError};

use heapledger_annotate::untracked;
use heapledger_inprocess::capture;

use crate::dark_matter::actions;
use crate::registry;

/// A lock that is free in a forked child, since the thread that holds it is not there.
#[derive(Debug)]
pub struct ForkLock {
    process: Mutex<u32>,
    ended: Condvar,
}

impl ForkLock {
    pub(crate) const fn new() -> ForkLock {
        ForkLock { process: Mutex::new(0), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread of the process holds the lock. Dropping the guard releases it.
    pub fn acquire(&'static self) -> ForkLockGuard {
        let own = process::id();
        let mut process = self.lock();
        // Another number is a parent's: none of its threads is here.
        while *process == own {
            process = self.ended.wait(process).unwrap_or_else(PoisonError::into_inner);
        }
        *process = own;
        ForkLockGuard(self)
    }
}

/// The guard of a [`ForkLock`].
#[derive(Debug)]
pub struct ForkLockGuard(&'static ForkLock);

impl Drop for ForkLockGuard {
    fn drop(&mut self) {
        *self.0.lock() = 0;
        self.0.ended.notify_one();
    }
}

/// Held by the thread that collects.
pub(crate) static COLLECTION_LOCK: ForkLock = ForkLock::new();
/// Held by the thread that makes a memory dump, which does not collect meanwhile.
pub static DUMP_LOCK: ForkLock = ForkLock::new();
/// Protects the state of memory dumps.
static DUMPS: Mutex<()> = Mutex::new(());

/// Locks the state of memory dumps against other threads and forks.
pub fn lock_dumps() -> MutexGuard<'static, ()> {
    install_handlers();
    DUMPS.lock().unwrap_or_else(PoisonError::into_inner)
}

type ForkGuards = (
    registry::ForkGuards,
    MutexGuard<'static, u32>,
    MutexGuard<'static, u32>,
    MutexGuard<'static, ()>,
    actions::ForkGuards,
);

/// The locks that the forking thread holds during the fork.
struct Store(UnsafeCell<Option<ForkGuards>>);

// SAFETY: only used by the handlers below. They run in the thread that forks and in its copy, and
// from the first to the last of them that thread has the locks: no other is in there.
unsafe impl Sync for Store {}

static HELD: Store = Store(UnsafeCell::new(None));

/// Installs the fork handlers. To be called before there is anything to lock.
pub(crate) fn install_handlers() {
    static ONCE: Once = Once::new();
    // They wait for locks under which nobody forks, and free them.
    ONCE.call_once(|| untracked::scope(|| capture::watch_forks(before, after, after)));
}

extern "C" fn before() {
    let dumps = DUMPS.lock().unwrap_or_else(PoisonError::into_inner);
    let held = (registry::lock_for_fork(), COLLECTION_LOCK.lock(), DUMP_LOCK.lock(), dumps, actions::lock_for_fork());
    // SAFETY: the dereference requires that nobody else uses the cell. This thread has all the
    // locks of `held`, and only a thread that has them gets here (`Store`).
    unsafe { *HELD.0.get() = Some(held) };
}

extern "C" fn after() {
    // SAFETY: see `Store`. `before` has run in this thread, or in that of which it is the copy.
    drop(unsafe { (*HELD.0.get()).take() });
}
