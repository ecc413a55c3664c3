//! User pools: heaps of the program's own, as the ledger sees them.
//!
//! A custom allocator (a bump arena, a slab, memory of a device) asks the global allocator for
//! large blocks and hands out small ones, of which a ledger knows nothing. A [`Pool`] reports
//! these: they are then recorded as those of `malloc` are, with size, stack and context, in a heap
//! of the pool's name. The block that backs the pool leaves the totals when it [becomes backing
//! memory](Pool::back), so that nothing is counted twice.
//!
//! ```
//! use heapledger_annotate::Pool;
//!
//! static FRAMES: Pool = Pool::new("frames");
//!
//! let mut memory = vec![0_u8; 4096];
//! FRAMES.back(memory.as_ptr());
//! let (first, rest) = memory.split_at_mut(64);
//! FRAMES.alloc(first.as_ptr(), first.len());
//! FRAMES.alloc(rest.as_ptr(), 100);
//! FRAMES.free(first.as_ptr());
//! FRAMES.reset();
//! ```
//!
//! If nobody observes the program, each call is two loads and two tests. Otherwise an allocation
//! costs about as much as the recording of a `malloc`. No call allocates, fails, or blocks longer
//! than recording does; all may be made in any thread, and inside a global allocator.
//! `examples/bump.rs` is a whole arena.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::bridge::{self, BridgeRef};
use heapledger_core::context::Name;
use heapledger_core::pool;

/// A heap of the program's own.
///
/// Pools of the same name are shown as one heap. Dropping a pool frees its blocks, as
/// [`Pool::reset`] does; a static pool is never dropped. At most 65,535 pools are open at a time:
/// events of others are counted as lost.
#[derive(Debug)]
pub struct Pool {
    text: &'static str,
    pool: pool::Pool,
}

impl Pool {
    /// Returns a pool with this name, of which the first 1,024 bytes are shown. Observers learn of
    /// it with its first block.
    pub const fn new(name: &'static str) -> Pool {
        Pool { text: name, pool: pool::Pool::nameless() }
    }

    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.text
    }

    /// Records that the pool has handed out `bytes` bytes at `block`. Call it when the block may be
    /// used.
    ///
    /// A block is identified by its address, which is below 2⁴⁷ and need not be in memory of this
    /// process; events with other addresses are counted as lost. If an address is handed out twice,
    /// the ledger assumes that it was freed in between.
    #[inline(always)]
    pub fn alloc(&self, block: *const u8, bytes: usize) {
        if let Some(allocated) = self.observer().and_then(BridgeRef::pool_allocated) {
            // SAFETY: `pool_allocated` requires a pool that stays where it is until the call
            // returns. `self` is borrowed meanwhile, so it can be neither moved nor dropped.
            unsafe { allocated(&self.pool, block.addr() as u64, bytes as u64) };
        }
    }

    /// Records that the pool is about to take the block back. Call it before another thread may get
    /// the block. A block that the ledger does not know is counted as a free of an unknown block.
    #[inline]
    pub fn free(&self, block: *const u8) {
        if let Some(freed) = bridge::find().and_then(BridgeRef::pool_freed) {
            // SAFETY: `pool_freed` requires a pool that stays where it is until the call returns.
            // `self` is borrowed meanwhile, so it can be neither moved nor dropped.
            unsafe { freed(&self.pool, block.addr() as u64) };
        }
    }

    /// Records that the pool is about to take all its blocks back: one event, however many there
    /// are.
    #[inline]
    pub fn reset(&self) {
        if let Some(reset) = bridge::find().and_then(BridgeRef::pool_reset) {
            // SAFETY: `pool_reset` requires a pool that stays where it is until the call returns.
            // `self` is borrowed meanwhile, so it can be neither moved nor dropped.
            unsafe { reset(&self.pool) };
        }
    }

    /// Declares that a block of the global allocator has become backing memory of this pool: it
    /// leaves the totals, since the pool's blocks count instead. Its later free is not recorded; if
    /// it is reallocated, the new block has to be declared again.
    #[inline]
    pub fn back(&self, block: *const u8) {
        if let Some(backed) = bridge::find().and_then(BridgeRef::pool_backed) {
            // SAFETY: `pool_backed` requires a pool that stays where it is until the call returns.
            // `self` is borrowed meanwhile, so it can be neither moved nor dropped.
            unsafe { backed(&self.pool, block.addr() as u64) };
        }
    }

    /// Returns the bridge, after giving the pool its name.
    #[inline(always)]
    fn observer(&self) -> Option<BridgeRef> {
        let found = bridge::find()?;
        if self.pool.name().is_none() {
            self.pool.set_name(name(self.text));
        }
        Some(found)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(closed) = bridge::find().and_then(BridgeRef::pool_closed) {
            // SAFETY: `pool_closed` requires a pool that stays where it is until the call returns.
            // `drop` borrows it until then, and its memory is given up later.
            unsafe { closed(&self.pool) };
        }
    }
}

/// The maximal number of different names of pools.
const NAMES_MAX: usize = 256;

/// Returns the name in the form that observers read, at any time in the life of the process. Each
/// text has one, in static memory, since this may run inside an allocator.
fn name(text: &'static str) -> &'static Name {
    struct NameSlot {
        text: AtomicPtr<u8>,
        name: core::cell::UnsafeCell<Name>,
        /// 0, or one more than the length of the text.
        length: core::sync::atomic::AtomicUsize,
    }
    // SAFETY: `name` is written by the thread that took the slot, by an exchange of `text`, and
    // read when `length` says so.
    unsafe impl Sync for NameSlot {}
    static NAME_SLOTS: [NameSlot; NAMES_MAX] = [const {
        NameSlot {
            text: AtomicPtr::new(ptr::null_mut()),
            name: core::cell::UnsafeCell::new(Name::new("")),
            length: core::sync::atomic::AtomicUsize::new(0),
        }
    }; NAMES_MAX];
    static OTHER: Name = Name::new("(other pools)");

    let key = text.as_ptr().cast_mut();
    for slot in &NAME_SLOTS {
        let taken = slot.text.load(Ordering::Acquire);
        if taken.is_null() && slot.text.compare_exchange(taken, key, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // SAFETY: the slot is ours alone by the exchange, and nobody reads before the store
            // below.
            unsafe { slot.name.get().write(Name::new(text)) };
            slot.length.store(text.len() + 1, Ordering::Release);
        }
        // While another thread writes a slot, its length is not known yet. The search then goes on
        // to another slot, so a name may have two; readers merge them.
        if slot.length.load(Ordering::Acquire) == text.len() + 1 && slot.text.load(Ordering::Acquire) == key {
            // SAFETY: the reference requires a `Name` that is never written again. The thread that
            // took the slot wrote it before it stored `length`, which this thread has loaded
            // since, and nobody else writes to a slot that is taken.
            return unsafe { &*slot.name.get() };
        }
    }
    &OTHER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_once() {
        static TEXT: &str = "frames and more";
        let (frames, more) = (&TEXT[..6], &TEXT[6..]);
        let bytes = |name: &'static Name| core::str::from_utf8(name.bytes()).unwrap();
        assert_eq!((bytes(name(frames)), bytes(name(more)), bytes(name(TEXT))), ("frames", " and more", TEXT));
        assert!(ptr::eq(name(frames), name(frames)));
        let texts: std::vec::Vec<&'static str> = (0..NAMES_MAX + 10)
            .map(|number| &*std::boxed::Box::leak(std::format!("pool {number}").into_boxed_str()))
            .collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for text in &texts {
                        let found = bytes(name(text));
                        assert!(found == *text || found == "(other pools)", "{found}");
                    }
                });
            }
        });
        assert_eq!(bytes(name(texts[NAMES_MAX + 9])), "(other pools)");
    }

    /// Without an observer, calls do nothing.
    #[test]
    fn alone() {
        let pool = Pool::new("alone");
        pool.back(ptr::null());
        pool.alloc(ptr::null(), 10);
        pool.free(ptr::null());
        pool.reset();
        assert!(pool.pool.name().is_none() && pool.pool.known_id().is_none());
    }
}
