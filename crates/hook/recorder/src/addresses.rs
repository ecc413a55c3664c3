//! The addresses of the blocks that are in the sample. Frees of other addresses are not recorded.
//!
//! A fixed, static hash table: addresses are found, entered and removed without a lock, in signal
//! handlers and forked children too. Once a bucket has been full, no free of an address in it can
//! be left out any more; the reader of the events knows what was recorded. The [filter] before the
//! table makes most look-ups one load.

use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::filter;

const BUCKET_BITS: u32 = 14;
/// The number of slots in a bucket: a cache line, with the word that says that the bucket was full.
const SLOTS: usize = 7;

#[repr(C, align(64))]
struct Bucket {
    /// Keys; 0 in a free slot.
    slots: [AtomicU64; SLOTS],
    /// Not 0 if an address found no slot.
    overflow: AtomicU64,
}

/// The bytes that this table and the filter take if all their pages are touched.
pub(crate) const BYTES: u64 = (size_of::<[Bucket; 1 << BUCKET_BITS]>() + filter::LENGTH) as u64;

/// 1 MiB, of which pages are touched only by addresses that are entered.
static BUCKETS: [Bucket; 1 << BUCKET_BITS] = [const { Bucket::new() }; 1 << BUCKET_BITS];

impl Bucket {
    const fn new() -> Bucket {
        Bucket { slots: [const { AtomicU64::new(0) }; SLOTS], overflow: AtomicU64::new(0) }
    }

    /// Returns the bucket of a key, by a hash whose upper bits are good.
    fn of(key: u64) -> &'static Bucket {
        // The index has as many bits as the table.
        &BUCKETS[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKET_BITS)) as usize]
    }

    fn find(&self, key: u64) -> Option<&AtomicU64> {
        self.slots.iter().find(|slot| slot.load(Ordering::Relaxed) == key)
    }
}

/// Enters the address of a block, or a pool's key. Call before the program has the block, so that
/// its free finds the address.
pub(crate) fn add(key: u64) {
    let bucket = Bucket::of(key);
    // The address of a block whose free was not seen, for instance because it was a raw system
    // call.
    if bucket.find(key).is_some() {
        return;
    }
    filter::add(key);
    let enter = |slot: &AtomicU64| slot.compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if !bucket.slots.iter().any(enter) {
        bucket.overflow.store(1, Ordering::Relaxed);
    }
}

/// Removes the address of a block that is about to be freed. True if the address may have been
/// there.
pub(crate) fn take(key: u64) -> bool {
    if !filter::may_contain(key) {
        return false;
    }
    let bucket = Bucket::of(key);
    let take = |slot: &AtomicU64| slot.compare_exchange(key, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if bucket.find(key).is_some_and(take) {
        filter::remove(key);
        return true;
    }
    bucket.overflow.load(Ordering::Relaxed) != 0
}

/// Removes all addresses. Those that other threads enter or remove meanwhile may stay, which makes
/// the table answer "perhaps" for their buckets.
pub(crate) fn clear() {
    for bucket in &BUCKETS {
        let words = bucket.slots.iter().chain([&bucket.overflow]);
        // Untouched pages stay untouched.
        words.filter(|word| word.load(Ordering::Relaxed) != 0).for_each(|word| word.store(0, Ordering::Relaxed));
    }
    filter::clear();
}

/// True if an address may be there.
pub(crate) fn may_contain(key: u64) -> bool {
    let bucket = Bucket::of(key);
    filter::may_contain(key) && (bucket.find(key).is_some() || bucket.overflow.load(Ordering::Relaxed) != 0)
}

#[cfg(test)]
mod tests;
