//! Allocations of addresses that are still live: each waits for the free that must be on its way.
//!
//! An allocation may be stamped too early: out-of-order execution can read the time stamp counter before the loads by which the
//! allocator found the block, and so before another thread's free of the same address is stamped. The hook orders the two
//! where a process has threads; where that does not suffice, the allocation stays in its ring for up to [`WAIT`] after its own
//! stamp, and the thread's later events behind it. The free of its address in another ring ends that. Without one it is a
//! *missed free*: the program released the block in a way that nobody saw.

use std::time::Duration;

use heapledger_ledger::{Key, Ledger};

/// The time by which a free may be stamped later than the allocation that it made possible. Without the hook's fence, 200 ns have
/// been measured on a Zen 4. A longer wait would take a free of the new block for that of the old one.
pub(crate) const WAIT: Duration = Duration::from_micros(2);

/// An allocation at the front of a ring that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) address: u64,
    /// Its own stamp.
    pub(crate) stamp: u64,
    /// The stamp at which it is taken at the latest.
    pub(crate) until: u64,
    /// The free has come.
    pub(crate) is_resumed: bool,
}

/// The allocations of an image that wait: at most one for each of its rings. Addresses, and whether the free has come.
#[derive(Debug, Default)]
pub(crate) struct Awaited(Vec<(u64, bool)>);

impl Awaited {
    pub(crate) fn add(&mut self, address: u64) {
        self.0.push((address, false));
    }

    /// One of the allocations of this address goes on.
    pub(crate) fn resume(&mut self, address: u64) {
        if let Some(one) = self.0.iter_mut().find(|one| **one == (address, false)) {
            one.1 = true;
        }
    }

    pub(crate) fn remove(&mut self, address: u64, is_resumed: bool) {
        if let Some(at) = self.0.iter().position(|one| *one == (address, is_resumed)) {
            self.0.swap_remove(at);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// An awaited address that is free, if there is one: only one allocation can have it then.
    pub(crate) fn freed(&self, ledger: &Ledger) -> Option<u64> {
        let is_taken = |address| self.0.contains(&(address, true)) || ledger.holds(Key(address));
        self.0.iter().map(|one| one.0).find(|&address| !is_taken(address))
    }
}
