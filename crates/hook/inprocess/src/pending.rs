//! Reallocations that have begun.

use heapledger_core::ThreadId;
use heapledger_ledger::SharedPending;

use crate::events::ring;
use crate::{LEDGER, filter};

/// A reallocation that has begun.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) old: u64,
    pub(crate) pending: SharedPending,
}

/// Ends a reallocation as a free.
pub(crate) fn release(pending: SharedPending, thread: ThreadId) {
    count_release(&pending, thread);
    LEDGER.finish_as_free(pending);
}

/// Notes that the old block of a reallocation is about to be freed for good.
pub(crate) fn count_release(pending: &SharedPending, thread: ThreadId) {
    if let Some(old) = pending.old_block() {
        filter::remove(old.key.0);
        ring::freed(&old, thread);
    }
}
