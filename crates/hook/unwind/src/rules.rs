//! The rule cache: return address → rule, computed from `.eh_frame` when first needed, shared by
//! all threads, no locks.
//!
//! One array of 64-bit entries, direct mapped: the lower 16 bits of an address select the entry,
//! which holds the remaining bits and the rule, so a hit is exact. Entries are written and read
//! whole, so a race can only lose one.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use heapledger_core::sys;

use crate::PAGE;
use crate::arch::Rule;

const ENTRIES: usize = 1 << 16;
/// A mask that distinguishes entries from the empty one, for any address that a program can have.
const PRESENT: u64 = u64::MAX << 31;

/// The size of the cache in bytes when every page of it has been touched.
pub const CACHE_LENGTH: usize = ENTRIES * 8;

static CACHE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// The pages of the cache that have been written, a bit for each.
static WRITTEN: [AtomicU64; PAGES / 64] = [const { AtomicU64::new(0) }; PAGES / 64];
const PAGES: usize = CACHE_LENGTH / PAGE as usize;

/// Maps the cache. Idempotent; false if there is no memory.
pub fn initialise() -> bool {
    if !CACHE.load(Ordering::Acquire).is_null() {
        return true;
    }
    let Ok(memory) = sys::map_private(CACHE_LENGTH) else { return false };
    sys::dont_dump(memory, CACHE_LENGTH);
    CACHE.store(memory.cast(), Ordering::Release);
    true
}

/// Clears the cache, because a module may have been unloaded.
pub fn clear() {
    let Some(cache) = cache() else { return };
    for index in 0..ENTRIES {
        // Untouched pages stay untouched.
        let entry = cache.entry(index as u64);
        if entry.load(Ordering::Relaxed) != 0 {
            note_written(index as u64);
            entry.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the cache, once it is mapped.
#[inline(always)]
pub fn cache() -> Option<Cache> {
    let entries = CACHE.load(Ordering::Acquire);
    // SAFETY: the mapping has `ENTRIES` entries and is never unmapped; zeroes are valid atomics.
    (!entries.is_null()).then(|| Cache(unsafe { &*entries.cast::<[AtomicU64; ENTRIES]>() }))
}

/// The mapped cache.
#[derive(Clone, Copy, Debug)]
pub struct Cache(&'static [AtomicU64; ENTRIES]);

impl Cache {
    /// Returns the bits of the cached rule of a return address; a number of more than
    /// [`Rule::BITS`] bits if there is none.
    #[inline(always)]
    pub fn bits(self, return_address: u64) -> u64 {
        // If the address is the same, all bits of the entry except the rule cancel; otherwise some
        // remain.
        self.entry(return_address).load(Ordering::Relaxed) ^ address_tag(return_address)
    }

    /// Returns the cached rule of a return address.
    pub fn get(self, return_address: u64) -> Option<Rule> {
        let bits = self.bits(return_address);
        (bits < 1 << Rule::BITS).then(|| Rule::from_bits(bits as u32))
    }

    /// Caches the rule of a return address.
    pub(crate) fn put(self, return_address: u64, rule: Rule) {
        note_written(return_address);
        self.entry(return_address).store(address_tag(return_address) ^ u64::from(rule.bits()), Ordering::Relaxed);
    }

    /// Clears the entry of a return address.
    pub(crate) fn take(self, return_address: u64) {
        self.entry(return_address).store(0, Ordering::Relaxed);
    }

    #[inline(always)]
    fn entry(self, return_address: u64) -> &'static AtomicU64 {
        // SAFETY: the index has 16 bits, and there are 2^16 entries.
        unsafe { self.0.get_unchecked(return_address as usize & (ENTRIES - 1)) }
    }
}

/// Returns the number of bytes of memory that the cache takes in this process: only written pages
/// count.
pub fn bytes() -> u64 {
    WRITTEN.iter().map(|pages| u64::from(pages.load(Ordering::Relaxed).count_ones()) * PAGE).sum()
}

/// Resets the count in a forked child, which shares with its parent the pages that it does not
/// write.
pub fn start_child() {
    WRITTEN.iter().for_each(|pages| pages.store(0, Ordering::Relaxed));
}

/// Notes that the entry of this address is about to be written.
fn note_written(return_address: u64) {
    let page = return_address as usize % ENTRIES * 8 / PAGE as usize;
    if let Some(pages) = WRITTEN.get(page / 64) {
        pages.fetch_or(1 << (page % 64), Ordering::Relaxed);
    }
}

#[inline(always)]
const fn address_tag(return_address: u64) -> u64 {
    return_address << 16 ^ PRESENT
}
