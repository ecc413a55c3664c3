//! Counters of what the ledger could not record.

use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::Blocks;

use crate::{LEDGER, mode};

/// The numbers of calls that a ledger could not record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Allocations that were not recorded because the bound left no memory for them.
    pub refused: Blocks,
    /// Calls within signal handlers that interrupted the ledger itself, calls while the process
    /// forked, and blocks of user pools beyond the largest number of pools, or with addresses that
    /// are too large.
    pub nested: Blocks,
    /// Stamps on addresses at which the ledger knew no live block. None are counted if it samples,
    /// since it then knows few blocks.
    pub stamps_unknown: u64,
}

static NESTED: AtomicU64 = AtomicU64::new(0);
static STAMPS_UNKNOWN: AtomicU64 = AtomicU64::new(0);

/// Returns what was lost since the start.
pub fn losses() -> Losses {
    Losses {
        refused: Blocks(LEDGER.dropped()),
        nested: Blocks(NESTED.load(Ordering::Relaxed)),
        stamps_unknown: STAMPS_UNKNOWN.load(Ordering::Relaxed),
    }
}

/// Resets the counters when a ledger begins.
pub(crate) fn clear() {
    NESTED.store(0, Ordering::Relaxed);
    STAMPS_UNKNOWN.store(0, Ordering::Relaxed);
}

#[cold]
pub(crate) fn count_lost() {
    NESTED.fetch_add(1, Ordering::Relaxed);
}

/// Counts a stamp on an address at which there is no known live block. In a sample most stamps are
/// of that kind, so they are not counted.
#[cold]
pub(crate) fn count_unknown_stamp() {
    if !mode::is_sample() {
        STAMPS_UNKNOWN.fetch_add(1, Ordering::Relaxed);
    }
}
