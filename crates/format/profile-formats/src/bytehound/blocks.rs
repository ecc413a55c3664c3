//! Sorts the allocations and frees of a file by time.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::Key;
use crate::profile::{Event, EventKind};

/// The calls so far, and the blocks that are live after them.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    live: HashMap<Key, Call, RandomState>,
    calls: Vec<Call>,
    /// The number of blocks so far. Addresses of events are these numbers: real ones are reused.
    blocks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    time_us: u64,
    block: u64,
    bytes: u64,
    sample: usize,
    thread: u32,
    is_free: bool,
}

impl Blocks {
    /// Adds an allocation.
    pub(super) fn allocate(&mut self, key: Key, time_us: u64, thread: u32, bytes: u64, sample: usize) {
        self.blocks += 1;
        let call = Call { time_us, block: self.blocks, bytes, sample, thread, is_free: false };
        if let Some(missed) = self.live.insert(key, call) {
            self.push_free(missed, time_us, thread);
        }
        self.calls.push(call);
    }

    /// Adds a free. Frees of unknown blocks are left out.
    pub(super) fn free(&mut self, key: Key, time_us: u64, thread: u32) {
        if let Some(allocation) = self.live.remove(&key) {
            self.push_free(allocation, time_us, thread);
        }
    }

    fn push_free(&mut self, allocation: Call, time_us: u64, thread: u32) {
        let time_us = time_us.max(allocation.time_us);
        self.calls.push(Call { time_us, thread, is_free: true, ..allocation });
    }

    /// Passes all calls to `take`, in the order of time, and returns the time of the last one since
    /// `start_us`, in nanoseconds.
    pub(super) fn finish(mut self, start_us: u64, take: &mut dyn FnMut(Event)) -> u64 {
        drop(self.live);
        // The sort is stable: calls of one block, which may have one time, stay in order.
        self.calls.sort_by_key(|call| call.time_us);
        let since_start = |call: &Call| call.time_us.saturating_sub(start_us).saturating_mul(1000);
        for call in &self.calls {
            let Call { block, bytes, sample, thread, is_free, .. } = *call;
            let kind =
                if is_free { EventKind::Freed { bytes, sample } } else { EventKind::Allocated { bytes, sample } };
            take(Event { time_ns: since_start(call), process: 0, thread, address: block, kind });
        }
        self.calls.last().map_or(0, since_start)
    }
}
