//! A cell of a run that other threads may read.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Run, RunPtr};

/// A cell of a run's address: see [`relaxed`](crate::relaxed).
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct RelaxedRun(AtomicPtr<Run>);

impl RelaxedRun {
    /// Returns a cell with a run.
    pub(crate) const fn new(run: RunPtr) -> RelaxedRun {
        RelaxedRun(AtomicPtr::new(run.0.as_ptr()))
    }

    /// Returns the run. Other threads than the heap's do not know if its chunk is still mapped.
    #[inline(always)]
    pub(crate) fn get(&self) -> RunPtr {
        // SAFETY: `new_unchecked` demands an address other than 0: all are from a `RunPtr`.
        RunPtr(unsafe { NonNull::new_unchecked(self.0.load(Ordering::Relaxed)) })
    }

    /// Changes the run. One thread at a time.
    #[inline(always)]
    pub(crate) fn set(&self, run: RunPtr) {
        self.0.store(run.0.as_ptr(), Ordering::Relaxed);
    }
}
