//! Heapledger's own code in a program: what it allocates is in no ledger and no recording.
//!
//! Each function by which a program calls Heapledger is a [`scope`]; each function of the program's that Heapledger calls, a
//! reporter for instance, is a [`callback`]; threads are made by [`thread()`](crate::quiet::thread()). It is the switch of
//! [`ignore`](crate::ignore), which whoever observes reads at each allocation, so it holds for the ledger and the recorder alike:
//! both know such a block by its address, and its free, whenever and wherever that happens, is no event.

use std::marker::PhantomData;

use heapledger_core::context;

use crate::stack;

/// Runs code of Heapledger's.
#[inline]
pub fn scope<R>(run: impl FnOnce() -> R) -> R {
    let _guard = enter();
    run()
}

/// The same until the guard is dropped.
#[inline]
#[must_use = "it ends when this is dropped"]
pub fn enter() -> Guard {
    // SAFETY: this thread's stack.
    Guard::new(unsafe { context::begin_untracked(stack::current()) })
}

/// Runs code of the program's, within a [`scope`].
#[inline]
pub fn callback<R>(run: impl FnOnce() -> R) -> R {
    // SAFETY: this thread's stack.
    let _guard = Guard::new(unsafe { context::begin_tracked(stack::current()) });
    run()
}

/// The thread is Heapledger's from now on, to its end.
pub(crate) fn for_good() {
    // SAFETY: this thread's stack.
    unsafe { context::begin_untracked(stack::current()) };
}

/// Goes back to what was before, also when a panic passes.
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
        // SAFETY: this thread's stack, which it has had since the guard was made.
        unsafe { context::end_ignoring(stack::current(), self.before) };
    }
}
