//! The untracked scope of Heapledger's own code in a program: its allocations are in no ledger and
//! no recording.
//!
//! Each function by which a program calls Heapledger is a [`scope`]; each function of the program
//! that Heapledger calls, such as a reporter, is a [`callback`]; threads are made by
//! [`spawn()`](crate::untracked_thread::spawn()). The switch is that of [`ignore`](crate::ignore),
//! which observers read at each allocation, so it holds for the ledger and the recorder alike. Both
//! know an untracked block by its address, and do not record its free, whenever and wherever that
//! happens.

use std::marker::PhantomData;

use heapledger_core::context;

use crate::stack;

/// Runs code of Heapledger untracked.
#[inline]
pub fn scope<R>(run: impl FnOnce() -> R) -> R {
    let _guard = enter();
    run()
}

/// Begins an untracked scope that lasts until the guard is dropped.
#[inline]
#[must_use = "it ends when this is dropped"]
pub fn enter() -> Guard {
    // SAFETY: `begin_untracked` requires the calling thread's *own stack* (see `stack`), which
    // `current` returns.
    Guard::new(unsafe { context::begin_untracked(stack::current()) })
}

/// Runs code of the program, within a [`scope`].
#[inline]
pub fn callback<R>(run: impl FnOnce() -> R) -> R {
    // SAFETY: `begin_tracked` requires the calling thread's *own stack* (see `stack`), which
    // `current` returns.
    let _guard = Guard::new(unsafe { context::begin_tracked(stack::current()) });
    run()
}

/// Makes the thread untracked from now on, to its end.
pub(crate) fn begin_for_thread() {
    // SAFETY: `begin_untracked` requires the calling thread's *own stack* (see `stack`), which
    // `current` returns.
    unsafe { context::begin_untracked(stack::current()) };
}

/// A guard that restores the previous state when it is dropped, also if a panic passes.
#[derive(Debug)]
pub struct Guard {
    before: u32,
    _of_one_thread: PhantomData<*mut ()>,
}

impl Guard {
    #[inline]
    fn new(before: u32) -> Guard {
        Guard { before, _of_one_thread: PhantomData }
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `end_ignoring` requires the calling thread's *own stack* (see `stack`), which
        // `current` returns. The guard is not `Send`, so this is the thread that made it.
        unsafe { context::end_ignoring(stack::current(), self.before) };
    }
}
