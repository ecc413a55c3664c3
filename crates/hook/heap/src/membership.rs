//! The arena of a heap, by its id.
//!
//! The thread that has the heap reads the id without a lock, to find the heap of an arena. Any
//! thread may dispose of the arena, and *retires* its heaps then: under the arena's lock, after it
//! has released what they had. The thread that has a retired heap may use its memory for another
//! arena. As long as the heap may be retired, the thread does under the lock what it does in the
//! heap without having been asked to allocate or free there.

#[cfg(not(all(test, loom)))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};

/// The id of no arena.
const NONE: u64 = 0;

/// The id of the arena that a heap is of.
#[derive(Debug)]
pub(crate) struct Membership(AtomicU64);

impl Membership {
    /// Returns the state of a heap without an arena.
    #[cfg(not(all(test, loom)))]
    pub(crate) const fn new() -> Membership {
        Membership(AtomicU64::new(NONE))
    }

    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Membership {
        Membership(AtomicU64::new(NONE))
    }

    /// Makes the heap one of an arena. Only the thread that has the heap calls this, or the one
    /// that has just made it.
    pub(crate) fn join(&self, id: u64) {
        self.0.store(id, Ordering::Relaxed);
    }

    /// Ends the membership, because the arena was disposed of.
    pub(crate) fn retire(&self) {
        // Release: the thread that has the heap sees what was done to it before.
        self.0.store(NONE, Ordering::Release);
    }

    /// True if the heap is of no arena.
    pub(crate) fn is_retired(&self) -> bool {
        self.0.load(Ordering::Acquire) == NONE
    }

    /// Returns the id of the arena, 0 if there is none.
    pub(crate) fn id(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, loom))]
mod model;
