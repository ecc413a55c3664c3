//! A counting Bloom filter over the addresses of recorded blocks: the free of any other block is
//! dismissed in a few instructions.
//!
//! There is one for each loaded object that samples. The heap is divided into regions, and a
//! counter per region counts the recorded blocks that begin there; regions that share a counter lie
//! far apart. If a counter is 0, the block was certainly not recorded; otherwise it may have been.
//! A counter that has reached its maximum stays there.
//!
//! Blocks are counted twice, over two region sizes. Large regions have so few counters that those
//! of a program's working set stay in the fastest cache, and few of these counters are not 0. Small
//! regions tell most blocks apart from a recorded neighbour.

use core::sync::atomic::{AtomicU8, Ordering};

/// The size of a large region, as a power of two: 16 KiB. Neighbouring regions have neighbouring
/// counters.
pub const SHIFT_LARGE: u32 = 14;
/// The size of a small region, as a power of two: 256 bytes.
pub const SHIFT_SMALL: u32 = 8;
/// The bits of the lower half of an address that are left above [`SHIFT_LARGE`].
const BITS_LARGE: u32 = 32 - SHIFT_LARGE;
const BITS_SMALL: u32 = 20;
/// Selects the counter of a small region.
pub const MASK_SMALL: usize = (1 << BITS_SMALL) - 1;

/// The size of the filter in bytes. Pages of it that are never touched cost nothing.
pub const LENGTH: usize = (1 << BITS_LARGE) + (1 << BITS_SMALL);

/// Counters of large regions, indexed by the lower half of an address shifted by [`SHIFT_LARGE`].
pub static LARGE: [AtomicU8; 1 << BITS_LARGE] = [const { AtomicU8::new(0) }; 1 << BITS_LARGE];
/// Counters of small regions, indexed by the address shifted by [`SHIFT_SMALL`], within
/// [`MASK_SMALL`].
pub static SMALL: [AtomicU8; 1 << BITS_SMALL] = [const { AtomicU8::new(0) }; 1 << BITS_SMALL];

#[inline(always)]
fn large(address: u64) -> &'static AtomicU8 {
    &LARGE[(address as u32 >> SHIFT_LARGE) as usize]
}

#[inline(always)]
fn small(address: u64) -> &'static AtomicU8 {
    &SMALL[(address as u32 >> SHIFT_SMALL) as usize & MASK_SMALL]
}

/// True if a recorded block may be at this address.
#[inline(always)]
pub fn may_contain(address: u64) -> bool {
    [large(address), small(address)].iter().all(|count| count.load(Ordering::Relaxed) != 0)
}

/// Counts a block at this address that is about to be recorded.
#[inline(always)]
pub fn add(address: u64) {
    for count in [large(address), small(address)] {
        let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1));
    }
}

/// Uncounts a recorded block at this address that is gone.
#[inline(always)]
pub fn remove(address: u64) {
    let less = |count: u8| if count == u8::MAX { None } else { count.checked_sub(1) };
    for count in [large(address), small(address)] {
        let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Resets all counters to 0.
pub fn clear() {
    for count in LARGE.iter().chain(&SMALL) {
        // Untouched pages stay untouched.
        if count.load(Ordering::Relaxed) != 0 {
            count.store(0, Ordering::Relaxed);
        }
    }
}
