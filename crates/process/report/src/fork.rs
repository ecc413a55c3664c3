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

use heapledger_context::untracked;
use heapledger_resident::capture;

use crate::{dark_matter, registry};

/// Something that one thread of the process does at a time.
#[derive(Debug)]
pub struct Turn {
    process: Mutex<u32>,
    ended: Condvar,
}

impl Turn {
    pub(crate) const fn new() -> Turn {
        Turn { process: Mutex::new(0), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the thread's turn; it ends when what is returned is dropped.
    pub fn wait(&'static self) -> Mine {
        let own = process::id();
        let mut process = self.lock();
        // Another number is a parent's: none of its threads is here.
        while *process == own {
            process = self.ended.wait(process).unwrap_or_else(PoisonError::into_inner);
        }
        *process = own;
        Mine(self)
    }
}

/// A [`Turn`] that this thread has.
#[derive(Debug)]
pub struct Mine(&'static Turn);

impl Drop for Mine {
    fn drop(&mut self) {
        *self.0.lock() = 0;
        self.0.ended.notify_one();
    }
}

/// Whose turn it is to collect.
pub(crate) static COLLECTING: Turn = Turn::new();
/// Whose turn it is to make a memory dump. Whoever has it does not collect.
pub static DUMPING: Turn = Turn::new();
/// Under which what memory dumps have is changed.
static DUMPS: Mutex<()> = Mutex::new(());

/// Keeps others, and forks, from what memory dumps have.
pub fn dumps() -> MutexGuard<'static, ()> {
    watch();
    DUMPS.lock().unwrap_or_else(PoisonError::into_inner)
}

type Held =
    (registry::Held, MutexGuard<'static, u32>, MutexGuard<'static, u32>, MutexGuard<'static, ()>, dark_matter::Held);

/// The locks that the forking thread holds during the fork.
struct Store(UnsafeCell<Option<Held>>);

// SAFETY: only used by the handlers below. They run in the thread that forks and in its copy, and
// from the first to the last of them that thread has the locks: no other is in there.
unsafe impl Sync for Store {}

static HELD: Store = Store(UnsafeCell::new(None));

/// From now on forks are seen to. To be called before there is anything to hold.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    // They wait for locks under which nobody forks, and free them.
    ONCE.call_once(|| untracked::scope(|| capture::watch_forks(before, after, after)));
}

extern "C" fn before() {
    let dumps = DUMPS.lock().unwrap_or_else(PoisonError::into_inner);
    let held = (registry::hold(), COLLECTING.lock(), DUMPING.lock(), dumps, dark_matter::hold());
    // SAFETY: the dereference requires that nobody else uses the cell. This thread has all the
    // locks of `held`, and only a thread that has them gets here (`Store`).
    unsafe { *HELD.0.get() = Some(held) };
}

extern "C" fn after() {
    // SAFETY: see `Store`. `before` has run in this thread, or in that of which it is the copy.
    drop(unsafe { (*HELD.0.get()).take() });
}
