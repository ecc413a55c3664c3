//! Which addresses may be of a recorded block: what lets the free of any other be done with in a few instructions.
//!
//! One for each artefact that samples. A counter for each piece of the heap, and for those 256 MiB apart from it together, of the recorded blocks that begin there:
//! 0 is certain, all else is a maybe. A counter that has reached its maximum stays there.

use core::sync::atomic::{AtomicU8, Ordering};

/// A counter is for so many bytes of the heap, as a power of two: neighbours have neighbouring counters, so that the program's working set has
/// few of them.
pub const SHIFT: u32 = 8;
const BITS: u32 = 20;

/// Bytes of the filter: a power of two.
pub const LENGTH: usize = 1 << BITS;

/// Pages of it that are never touched cost nothing.
pub static COUNTS: [AtomicU8; LENGTH] = [const { AtomicU8::new(0) }; LENGTH];

#[inline(always)]
fn count(address: u64) -> &'static AtomicU8 {
    // The lower half has all the bits that are wanted.
    &COUNTS[(address as u32 >> SHIFT) as usize & (LENGTH - 1)]
}

/// Whether a recorded block may be at this address.
#[inline(always)]
pub fn may_hold(address: u64) -> bool {
    count(address).load(Ordering::Relaxed) != 0
}

/// A block at this address is about to be recorded.
#[inline(always)]
pub fn add(address: u64) {
    let _ = count(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1));
}

/// A recorded block at this address is gone.
#[inline(always)]
pub fn remove(address: u64) {
    let less = |count: u8| if count == u8::MAX { None } else { count.checked_sub(1) };
    let _ = count(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Nothing is recorded.
pub fn clear() {
    for count in &COUNTS {
        // Untouched pages stay untouched.
        if count.load(Ordering::Relaxed) != 0 {
            count.store(0, Ordering::Relaxed);
        }
    }
}
