//! What sampled blocks stand for, beyond themselves.
//!
//! The ledger counts the blocks that it holds, each once. One that was sampled stands for the inverse of its probability:
//! what that is beyond 1 is summed up here. So exact recording costs nothing here, and the two may follow one another.

use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::{Blocks, Bytes, TypeId, sample};

use crate::LEDGER;
use crate::control::{self, rate_of};

/// Sums of blocks are kept in 65,536ths.
const PARTS: f64 = 65_536.0;

static ALLOCATED: Sum = Sum::new();
static FREED: Sum = Sum::new();
static BYTES_LIVE_MAX: AtomicU64 = AtomicU64::new(0);

struct Sum {
    parts: AtomicU64,
    bytes: AtomicU64,
}

impl Sum {
    const fn new() -> Sum {
        Sum { parts: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    fn add(&self, (parts, bytes): (u64, u64)) {
        self.parts.fetch_add(parts, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        (self.parts.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn clear(&self) {
        self.parts.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

/// How many blocks one of this size and stamp stands for: 1 if it was not sampled.
pub fn weight(size: Bytes, stamp: TypeId) -> f64 {
    rate_of(stamp).map_or(1.0, |mean| 1.0 / sample::probability(size.0, mean.0))
}

/// How many blocks one with a stack stands for of which so many bytes may be used: 1 where all have stacks.
pub fn weight_of_stack(usable: Bytes) -> f64 {
    control::stack_probability().map_or(1.0, |probability| 1.0 / sample::probability_of_stack(usable.0, probability))
}

/// The estimate of what such a block stands for beyond itself.
fn excess(size: Bytes, stamp: TypeId) -> (u64, u64) {
    let more = weight(size, stamp) - 1.0;
    ((more * PARTS + 0.5) as u64, (more * size.0 as f64 + 0.5) as u64)
}

/// A block of this size and stamp has been entered.
#[inline(always)]
pub(crate) fn allocated(size: Bytes, stamp: TypeId) {
    if rate_of(stamp).is_some() {
        allocated_sample(size, stamp);
    }
}

#[cold]
fn allocated_sample(size: Bytes, stamp: TypeId) {
    ALLOCATED.add(excess(size, stamp));
    BYTES_LIVE_MAX.fetch_max(LEDGER.live().bytes_live.0.saturating_add(beyond().bytes_live.0), Ordering::Relaxed);
}

/// One has gone.
#[inline(always)]
pub(crate) fn freed(size: Bytes, stamp: TypeId) {
    if rate_of(stamp).is_some() {
        FREED.add(excess(size, stamp));
    }
}

pub(crate) fn clear() {
    ALLOCATED.clear();
    FREED.clear();
    BYTES_LIVE_MAX.store(0, Ordering::Relaxed);
}

/// What is to be added to the ledger's totals to make them estimates of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// To [`Counts::allocations`](heapledger_ledger::Counts::allocations).
    pub allocations: Blocks,
    /// To the bytes of these.
    pub bytes_allocated: Bytes,
    /// To the frees.
    pub frees: Blocks,
    /// To what is live.
    pub blocks_live: Blocks,
    /// To its bytes.
    pub bytes_live: Bytes,
    /// The estimate of the peak itself, as far as it is one of samples.
    pub bytes_live_max: Bytes,
}

/// As of now.
pub fn beyond() -> Beyond {
    // What is freed is read first: it never exceeds what is allocated then.
    let (parts_freed, bytes_freed) = FREED.get();
    let (parts, bytes_allocated) = ALLOCATED.get();
    let blocks = |parts: u64| (parts as f64 / PARTS + 0.5) as u64;
    let (allocations, blocks_live) = (blocks(parts), blocks(parts.saturating_sub(parts_freed)));
    Beyond {
        allocations: Blocks(allocations),
        bytes_allocated: Bytes(bytes_allocated),
        // So that the three agree whatever is rounded.
        frees: Blocks(allocations.saturating_sub(blocks_live)),
        blocks_live: Blocks(blocks_live),
        bytes_live: Bytes(bytes_allocated.saturating_sub(bytes_freed)),
        bytes_live_max: Bytes(BYTES_LIVE_MAX.load(Ordering::Relaxed)),
    }
}
