//! Which addresses may be of a recorded block: what lets the free of any other be done with in a few instructions.
//!
//! One for each artefact that samples. Of pieces of the heap it counts the recorded blocks that begin there; so many pieces share a counter that those
//! are far apart. 0 is certain, all else is a maybe. A counter that has reached its maximum stays there.
//!
//! Counted twice: large pieces have so few counters that those of a program's working set stay in the fastest cache, and few of them are
//! not 0. Small pieces tell most blocks apart from a recorded one beside them.

use core::sync::atomic::{AtomicU8, Ordering};

/// A counter of the first look is for so many bytes of the heap, as a power of two. Neighbours have neighbouring counters.
pub const SHIFT_LARGE: u32 = 14;
/// The same of the second look.
pub const SHIFT_SMALL: u32 = 8;
/// All of the bits that are left of the lower half of an address.
const BITS_LARGE: u32 = 32 - SHIFT_LARGE;
const BITS_SMALL: u32 = 20;
/// Selects the counter of a small piece.
pub const MASK_SMALL: usize = (1 << BITS_SMALL) - 1;

/// Bytes of the filter. Pages of it that are never touched cost nothing.
pub const LENGTH: usize = (1 << BITS_LARGE) + (1 << BITS_SMALL);

/// By the lower half of an address, above [`SHIFT_LARGE`].
pub static LARGE: [AtomicU8; 1 << BITS_LARGE] = [const { AtomicU8::new(0) }; 1 << BITS_LARGE];
/// The same above [`SHIFT_SMALL`], and below [`MASK_SMALL`].
pub static SMALL: [AtomicU8; 1 << BITS_SMALL] = [const { AtomicU8::new(0) }; 1 << BITS_SMALL];

#[inline(always)]
fn large(address: u64) -> &'static AtomicU8 {
    &LARGE[(address as u32 >> SHIFT_LARGE) as usize]
}

#[inline(always)]
fn small(address: u64) -> &'static AtomicU8 {
    &SMALL[(address as u32 >> SHIFT_SMALL) as usize & MASK_SMALL]
}

/// Whether a recorded block may be at this address.
#[inline(always)]
pub fn may_hold(address: u64) -> bool {
    [large(address), small(address)].iter().all(|count| count.load(Ordering::Relaxed) != 0)
}

/// A block at this address is about to be recorded.
#[inline(always)]
pub fn add(address: u64) {
    for count in [large(address), small(address)] {
        let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_add(1));
    }
}

/// A recorded block at this address is gone.
#[inline(always)]
pub fn remove(address: u64) {
    let less = |count: u8| if count == u8::MAX { None } else { count.checked_sub(1) };
    for count in [large(address), small(address)] {
        let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// Nothing is recorded.
pub fn clear() {
    for count in LARGE.iter().chain(&SMALL) {
        // Untouched pages stay untouched.
        if count.load(Ordering::Relaxed) != 0 {
            count.store(0, Ordering::Relaxed);
        }
    }
}
