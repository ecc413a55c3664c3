//! Blocks that a sampler allocates instead of this allocator: see
//! [`block_sampler`](heapledger_core::block_sampler).
//!
//! Allocations are counted where blocks are handed out: at a refill, which knows how many blocks
//! the free list has then. If one of them is to be sampled, the list is cut before it, so that the
//! next refill of the class comes at that very allocation. So each allocation of a class is as
//! likely to be sampled as any other, and classes in proportion to their allocations. Three things
//! make a difference: blocks that are handed out and never asked for, at most a list for each class
//! and thread, are counted; a sampled block above 512 bytes may come up to 40 allocations early; small blocks with an alignment above 16 are counted once or twice; and
//! blocks of arenas, over 1 MiB, or filled by an option are neither counted nor sampled.

use core::cell::Cell;

use heapledger_core::block_sampler::{self, BlockSampler};

use crate::classes::CLASSES;
use crate::heap::HeapPtr;
use crate::{api, from_heap};

const _: () = assert!(CLASSES <= u128::BITS as usize, "each class has a bit");

/// The allocations of a heap until the next one that is to be sampled.
#[derive(Debug)]
pub(crate) struct Countdown {
    /// The allocations that the sampler has counted, and that were not handed out yet.
    left: Cell<usize>,
    /// True if the one after these is to be sampled.
    ends_with_sample: Cell<bool>,
    /// The classes of which the next refill's block is to be sampled, as bits, unless blocks that
    /// may be taken [out of turn](HeapPtr::out_of_turn) come before it.
    due: Cell<u128>,
}

impl Countdown {
    pub(crate) const fn new() -> Countdown {
        Countdown { left: Cell::new(0), ends_with_sample: Cell::new(false), due: Cell::new(0) }
    }

    fn is_due(&self, class: usize) -> bool {
        self.due.get() & 1 << class != 0
    }

    fn set_due(&self, class: usize) {
        self.due.set(self.due.get() | 1 << class);
    }

    fn end_due(&self, class: usize) {
        self.due.set(self.due.get() & !(1 << class));
    }

    /// Counts up to `wanted` allocations. Returns how many come before the one that is to be
    /// sampled, which is counted, too; `wanted` if none of them is to be.
    fn take(&self, sampler: &BlockSampler, wanted: usize) -> usize {
        while self.left.get() < wanted && !self.ends_with_sample.get() {
            // SAFETY: `count` may be called at any time.
            let counted = unsafe { (sampler.count)() };
            self.left.set(self.left.get() + counted.allocations as usize);
            self.ends_with_sample.set(counted.ends_with_sample != 0);
        }
        if self.left.get() >= wanted {
            self.left.set(self.left.get() - wanted);
            return wanted;
        }
        self.ends_with_sample.set(false);
        self.left.replace(0)
    }
}

/// Returns the sampler that has an address.
#[cold]
pub(crate) fn owner_of(address: usize) -> Option<&'static BlockSampler> {
    // SAFETY: `owns` may be called with any address.
    block_sampler::get().filter(|sampler| unsafe { (sampler.owns)(address) } != 0)
}

/// Returns the usable size of a block that is not this allocator's; 0 if it is no sampler's.
#[cold]
pub(crate) fn usable_size(block: *const u8) -> usize {
    // SAFETY: the function demands an address in the sampler's range.
    owner_of(block.addr()).map_or(0, |sampler| unsafe { (sampler.usable_size)(block.cast_mut().cast()) })
}

/// Refills a class as [`from_heap::refill`] does, and counts the blocks that are handed out. The
/// block is the sampler's, for a request of these bytes and this alignment, if it is to be sampled.
#[inline(always)]
pub(crate) fn refill(
    sampler: &'static BlockSampler,
    heap: HeapPtr,
    class: usize,
    size: usize,
    alignment: usize,
) -> *mut u8 {
    if heap.countdown.due.get() != 0 {
        return refill_due(sampler, heap, class, (size, alignment));
    }
    counted(sampler, heap, class, (size, alignment))
}

/// Does as [`refill`] while a class is due.
#[cold]
#[inline(never)]
fn refill_due(sampler: &'static BlockSampler, heap: HeapPtr, class: usize, request: (usize, usize)) -> *mut u8 {
    if !heap.countdown.is_due(class) {
        return counted(sampler, heap, class, request);
    }
    // The run may not have had as many blocks as come before the one that is due.
    let before = heap.out_of_turn(class);
    if before > 0 {
        let block = from_heap::refill(heap, class);
        heap.hold_back(class, before - 1);
        return block;
    }
    heap.countdown.end_due(class);
    // SAFETY: `allocate` may be called with any size and a power of two, which our callers have.
    let block = unsafe { (sampler.allocate)(request.0, request.1) }.cast::<u8>();
    if block.is_null() { counted(sampler, heap, class, request) } else { block }
}

/// Does the work of [`refill`] for a class that is not due.
#[inline(always)]
fn counted(sampler: &'static BlockSampler, heap: HeapPtr, class: usize, request: (usize, usize)) -> *mut u8 {
    let ready = heap.ready(class);
    let block = from_heap::refill(heap, class);
    // This may be below 0: blocks that could have been taken out of turn were not.
    let wanted = heap.ready(class).wrapping_sub(ready) as isize;
    let left = heap.countdown.left.get();
    if wanted <= left as isize {
        heap.countdown.left.set(left.wrapping_add_signed(-wanted));
        return block;
    }
    finish(sampler, heap, class, request, (block, wanted as usize))
}

/// Counts `wanted` allocations that a refill has made ready if the sampler has to be asked. The
/// refill has returned this block.
#[cold]
#[inline(never)]
fn finish(
    sampler: &'static BlockSampler,
    heap: HeapPtr,
    class: usize,
    (size, alignment): (usize, usize),
    (block, wanted): (*mut u8, usize),
) -> *mut u8 {
    if block.is_null() {
        return block;
    }
    let before = heap.countdown.take(sampler, wanted);
    if before == wanted {
        return block;
    }
    // Those that were ready, and counted, before come first.
    let ready = 1 + heap.free_count(class) + heap.out_of_turn(class);
    let before = before + ready.saturating_sub(wanted);
    heap.hold_back(class, before.saturating_sub(1));
    if before > 0 {
        heap.countdown.set_due(class);
        return block;
    }
    // SAFETY: as in `refill_due`.
    let sampled = unsafe { (sampler.allocate)(size, alignment) }.cast::<u8>();
    if sampled.is_null() {
        return block;
    }
    // SAFETY: `free` demands a block of this allocator that nobody uses.
    unsafe { api::free(block) };
    sampled
}

/// Makes all blocks that this thread's heap has handed out uncounted again, when sampling begins.
pub(crate) fn restart(heap: HeapPtr) {
    (0..CLASSES).for_each(|class| heap.hold_back(class, 0));
}
