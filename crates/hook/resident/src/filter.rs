//! Which addresses may be of a recorded block: what lets the free of any other be done with in a few instructions.
//!
//! A counter per hash of an address, of the recorded blocks with that hash: 0 is certain, all else is a maybe. A counter
//! that has reached its maximum stays there.

use core::sync::atomic::{AtomicU8, Ordering};

const BITS: u32 = 20;

/// Bytes of the filter.
pub(crate) const LENGTH: usize = 1 << BITS;

/// Pages of it that are never touched cost nothing.
static COUNTS: [AtomicU8; 1 << BITS] = [const { AtomicU8::new(0) }; 1 << BITS];

#[inline(always)]
fn count(address: u64) -> &'static AtomicU8 {
    // The multiplication spreads neighbours; the index has as many bits as the table.
    &COUNTS[(address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as usize]
}

/// Whether a recorded block may be at this address.
#[inline(always)]
pub(crate) fn may_hold(address: u64) -> bool {
    count(address).load(Ordering::Relaxed) != 0
}

/// A block at this address is about to be recorded.
#[inline(always)]
pub(crate) fn add(address: u64) {
    let _ = count(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1));
}

/// A recorded block at this address is gone.
#[inline(always)]
pub(crate) fn remove(address: u64) {
    let less = |count: u8| if count == u8::MAX { None } else { count.checked_sub(1) };
    let _ = count(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Nothing is recorded.
pub(crate) fn clear() {
    for count in &COUNTS {
        // Untouched pages stay untouched.
        if count.load(Ordering::Relaxed) != 0 {
            count.store(0, Ordering::Relaxed);
        }
    }
}
