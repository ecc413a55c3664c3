//! The list of the blocks of one run that other threads have freed.
//!
//! Any thread pushes; only the owner of the run takes. The owner takes the list when its own blocks
//! run out. Before it leaves a run of which every block is in use, it asks for a notice: then the
//! next thread that pushes a block is told to notify it.

#[cfg(not(all(test, loom)))]
use core::sync::atomic::{AtomicPtr, Ordering};
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicPtr, Ordering};

use core::ptr;

use crate::block::Block;

/// The word of an empty list whose owner has asked for a notice: no block has this address.
const NOTICE: *mut Block = ptr::without_provenance_mut(1);

/// The list: its first block, null, or [`NOTICE`].
#[derive(Debug)]
pub(crate) struct RemoteList(AtomicPtr<Block>);

impl RemoteList {
    /// Returns an empty list, whose owner has not asked for a notice.
    #[cfg(not(all(test, loom)))]
    pub(crate) const fn new() -> RemoteList {
        RemoteList(AtomicPtr::new(ptr::null_mut()))
    }

    #[cfg(all(test, loom))]
    pub(crate) fn new() -> RemoteList {
        RemoteList(AtomicPtr::new(ptr::null_mut()))
    }

    /// Adds a block; `link` makes its second argument follow the first in a list. True if the
    /// caller has to notify the owner: the run cannot be released before the owner has got the
    /// notice. Otherwise the owner may have released the run, and the list with it, when this
    /// returns.
    ///
    /// # Safety
    ///
    /// `block` is a block of the list's run, and the caller owns it.
    pub(crate) unsafe fn push(&self, block: *mut Block, link: impl Fn(*mut Block, *mut Block)) -> bool {
        let mut first = self.0.load(Ordering::Relaxed);
        loop {
            let next = if first == NOTICE { ptr::null_mut() } else { first };
            // The caller owns the block until the exchange succeeds.
            link(block, next);
            // Release: whoever takes the block sees all that its user and this thread wrote to it.
            // Acquire: who is to notify the owner sees that the owner left the run.
            match self.0.compare_exchange_weak(first, block, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return first == NOTICE,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all blocks. Only the owner calls this, and not while it waits for a notice.
    pub(crate) fn take(&self) -> *mut Block {
        // Most runs have no block here, and a load does not take the line from other processors.
        if self.0.load(Ordering::Relaxed).is_null() {
            return ptr::null_mut();
        }
        self.0.swap(ptr::null_mut(), Ordering::Acquire)
    }

    /// Returns the first block, for a thread that only looks: null or [`NOTICE`] if there is none.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn first(&self) -> *mut Block {
        self.0.load(Ordering::Acquire)
    }

    /// Asks for a notice. False if there are blocks in the list: then nothing is asked. Only the
    /// owner calls this.
    pub(crate) fn ask_for_notice(&self) -> bool {
        self.0.compare_exchange(ptr::null_mut(), NOTICE, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the request for a notice back. False if a thread has been told to notify the owner,
    /// which then has to wait for that. Only the owner calls this.
    pub(crate) fn withdraw(&self) -> bool {
        self.0.compare_exchange(NOTICE, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, loom))]
mod model;
