//! The latest allocations and frees of sampled blocks, in order; a bounded number of them.
//!
//! An allocation is entered after it succeeded and before the program has the block, a free before
//! it happens. Both are entered under one lock, so the events of each address, at least, are in the
//! order in which they happened. A ledger that does not sample keeps no events.

use core::sync::atomic::Ordering;

use heapledger_core::Bytes;
use heapledger_ledger::OutOfMemory;
use heapledger_ledger::mapped::Vector;

use crate::block::query;
use ring::RING;

pub(crate) mod ring;

pub use ring::Event;

/// Keeps the last `count` events from now on, and drops those that there are. Each takes 48 bytes.
///
/// # Errors
///
/// The system gives no memory: no events are kept then.
pub fn keep(count: usize) -> Result<(), OutOfMemory> {
    let (slots, result) = match Vector::zeroed(count) {
        Ok(slots) => (slots, Ok(())),
        Err(error) => (Vector::new(), Err(error)),
    };
    let replace = || {
        RING.with(|state| {
            RING.is_on.store(!slots.is_empty(), Ordering::Relaxed);
            state.first = state.count;
            core::mem::replace(&mut state.slots, slots)
        })
    };
    // The earlier buffer is unmapped only after the lock is released.
    drop(query(replace));
    result
}

/// The result of a [read].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The number of events that were read.
    pub count: usize,
    /// The number of the next event to read.
    pub next: u64,
    /// The number of events that had been overwritten before they were read.
    pub lost: u64,
}

/// Reads events from this number on, as many as there is room for. `None` in a signal handler that
/// interrupted the ledger.
pub fn read(from: u64, into: &mut [Event]) -> Option<Reading> {
    query(|| read_held(from, into))
}

fn read_held(from: u64, into: &mut [Event]) -> Reading {
    RING.with(|state| {
        let kept = state.slots.len() as u64;
        let oldest = state.count.saturating_sub(kept).max(state.first);
        let first = from.clamp(oldest, state.count);
        let count = (state.count - first).min(into.len() as u64);
        for (number, slot) in (first..first + count).zip(into) {
            if let Some(event) = state.slots.get((number % kept.max(1)) as usize) {
                *slot = *event;
            }
        }
        Reading { count: count as usize, next: first + count, lost: first.saturating_sub(from) }
    })
}

/// Returns the number of the event that comes next.
pub fn next() -> u64 {
    query(|| RING.with(|state| state.count)).unwrap_or(0)
}

/// Returns the number of bytes mapped for events.
pub(crate) fn bytes_mapped() -> Bytes {
    Bytes(query(|| RING.with(|state| state.slots.bytes_mapped() as u64)).unwrap_or(0))
}
