//! Handles allocations of addresses that are still live: the free in another thread that must have
//! come first is pulled forward.
//!
//! An allocation may be stamped too early: out-of-order execution can read the time stamp counter
//! before the loads by which the allocator found the block, and so before another thread's free of
//! the same address is stamped.
//!
//! If a process has several threads, the hook orders the two. If that is not enough, the free is in
//! another ring, at most [`EARLY_MAX`] later. It then counts before the allocation, and nothing
//! else is reordered. If there is no such free, it is a *missed free*: the program released the
//! block in a way that was not seen.

use std::time::Duration;

use heapledger_core::Api;
use heapledger_ledger::Pending;
use heapledger_wire::event::{Decoder, Event, Extended, ReallocOutcome, code};

/// The most by which a free may be stamped later than the allocation that it made possible. Without
/// the hook's fence, 200 ns were measured on a Zen 4. With a longer time, more frees of the new
/// block would be taken for frees of the old one.
pub(crate) const EARLY_MAX: Duration = Duration::from_micros(2);

/// The number of words of a ring that are searched for a free. Few threads write that many within
/// [`EARLY_MAX`].
pub(crate) const SEARCHED_MAX: usize = 4096;

/// An allocation of a live address at the front of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Early {
    pub(crate) address: u64,
    pub(crate) stamp: u64,
    /// The largest stamp that the free can have.
    pub(crate) until: u64,
    /// True if no ring has the free.
    pub(crate) is_missed: bool,
}

/// The result of a search for a free in the events of a ring that have not been merged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Search {
    Found(Found),
    /// There is no free within the time.
    Nothing,
    /// The ring may still get a free.
    Unknown,
}

/// A free in a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// The index of its first word.
    pub(crate) at: usize,
    pub(crate) stamp: u64,
    /// The state of the decoder before its first word.
    pub(crate) decoder: Decoder,
}

/// A free that has been pulled forward.
#[derive(Debug)]
pub(crate) struct Pulled {
    /// The number of words that came before it in its ring.
    pub(crate) at: u64,
    /// The old block, if the free is the first half of a reallocation: the second half finishes it.
    pub(crate) pending: Option<Pending>,
}

/// Returns the address that an event releases for others, if it does, and whether it is the first
/// half of a reallocation.
pub(crate) fn frees(event: &Event<'_>) -> Option<(u64, bool)> {
    match *event {
        Event::Free { address } => Some((address, false)),
        Event::ReallocBegin { address } => Some((address, true)),
        Event::Extended { code, payload } => match Extended::parse(code, payload) {
            Ok(Some(Extended::Free { api, address, .. })) if !matches!(api, Api::PoolBack | Api::PoolReset) => {
                Some((address, false))
            }
            Ok(Some(Extended::ReallocBegin { address, .. })) => Some((address, true)),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the address that an event makes live, if it does.
#[inline(always)]
pub(crate) fn allocates(event: &Event<'_>) -> Option<u64> {
    match *event {
        Event::Malloc { address, .. }
        | Event::Calloc { address, .. }
        | Event::ReallocEnd { address, .. }
        | Event::WithUsable { address, .. } => Some(address),
        Event::Extended { code: code::ALLOC | code::REALLOC_END | code::IGNORED, .. } => allocates_extended(event),
        _ => None,
    }
}

#[cold]
fn allocates_extended(event: &Event<'_>) -> Option<u64> {
    let Event::Extended { code, payload } = *event else { return None };
    match Extended::parse(code, payload) {
        Ok(Some(Extended::Alloc { address, .. } | Extended::Ignored { address })) => Some(address),
        Ok(Some(Extended::ReallocEnd { address, outcome: ReallocOutcome::Returned, .. })) => Some(address),
        _ => None,
    }
}
