//! The list of the runs that have a notice for their heap: any thread adds one, the heap's thread
//! takes all.

#[cfg(not(all(test, loom)))]
use core::sync::atomic::{AtomicPtr, Ordering};
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicPtr, Ordering};

use core::ptr;

/// Something that may be in the list.
pub(crate) trait Linked: Sized {
    /// Returns the word for the next one in the list, which nobody else uses meanwhile.
    fn link(&self) -> &AtomicPtr<Self>;
}

/// The list.
#[derive(Debug)]
pub(crate) struct Notices<T>(AtomicPtr<T>);

impl<T: Linked> Notices<T> {
    /// Returns an empty list.
    #[cfg(not(all(test, loom)))]
    pub(crate) const fn new() -> Notices<T> {
        Notices(AtomicPtr::new(ptr::null_mut()))
    }

    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Notices<T> {
        Notices(AtomicPtr::new(ptr::null_mut()))
    }

    /// True if there is no notice. One that is being added may be missed.
    #[cfg_attr(all(test, loom), allow(dead_code, reason = "only heaps ask"))]
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed).is_null()
    }

    /// Adds a run whose owner has asked for a notice that this thread has to bring.
    ///
    /// # Safety
    ///
    /// The run is valid until [`Notices::take`] has returned it.
    pub(crate) unsafe fn push(&self, run: *mut T) {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: a valid run, by this function's `# Safety`.
            unsafe { (*run).link() }.store(first, Ordering::Relaxed);
            // Release: whoever takes the run sees its link.
            match self.0.compare_exchange_weak(first, run, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all runs: the first of a list, null if there is none.
    pub(crate) fn take(&self) -> *mut T {
        self.0.swap(ptr::null_mut(), Ordering::Acquire)
    }
}
