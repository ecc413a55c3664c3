//! Blocks that a sampler allocates instead of this allocator: see
//! [`block_sampler`](heapledger_core::block_sampler).
//!
//! Allocations are counted where blocks are handed out: at a refill, which knows how many blocks
//! the free list has then. If one of them is to be sampled, the list is cut before it, so that the
//! next refill of the class comes at that very allocation. So each allocation of a class is as
//! likely to be sampled as any other, and classes in proportion to their allocations. These things
//! make a difference: blocks that are handed out and never asked for, at most a list for each class
//! and thread, are counted; a sampled block above 512 bytes may come up to 40 allocations early;
//! blocks that a reallocation has moved, of arenas, over 1 MiB, or filled by an option are neither
//! counted nor sampled; and a delay of no more than the blocks of a list is not the same for all
//! classes, unless it is drawn from a distribution without memory.

use heapledger_core::block_sampler::{self, BlockSampler, SamplerUsage};

use crate::block::as_own;
use crate::classes::CLASSES;
use crate::from_heap;
use crate::heap::HeapPtr;
use crate::run::RunPtr;

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

/// Returns the memory of the sampler, if there is one.
pub(crate) fn usage() -> Option<SamplerUsage> {
    // SAFETY: `usage` may be called at any time: callers hold no lock of this allocator.
    block_sampler::get().map(|sampler| unsafe { (sampler.usage)() })
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
    heap.countdown.begin();
    if !heap.countdown.is_nothing_due() {
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
    if heap.countdown.skip(wanted) {
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
    // Blocks that were ready, and counted, before come first.
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
    // SAFETY: `of` demands a live block in a chunk: `from_heap::refill` has just returned it, of a
    // run of this heap. So `free_locally` gets a run that the heap owns, and a block of it that
    // nobody uses.
    unsafe { from_heap::free_locally(heap, RunPtr::of(as_own(block)), block) };
    // The program has not asked for it.
    heap.uncount(class);
    sampled
}

/// Refills a class of this thread's home heap, by a function, for a block that is never the
/// sampler's and that is not counted. Others that are handed out with it are.
#[inline(never)]
pub(crate) fn refill_unsampled(heap: HeapPtr, class: usize, refill: fn(HeapPtr, usize) -> *mut u8) -> *mut u8 {
    let Some(sampler) = block_sampler::get() else { return refill(heap, class) };
    heap.countdown.begin();
    let (ready, out_of_turn) = (heap.ready(class), heap.out_of_turn(class));
    let block = refill(heap, class);
    let wanted = (heap.ready(class).wrapping_sub(ready) as isize).wrapping_sub(1);
    if heap.countdown.is_due(class) && heap.countdown.pass(sampler, class) {
        heap.hold_back(class, out_of_turn);
    } else if !heap.countdown.skip(wanted) {
        finish_unsampled(sampler, heap, class, wanted as usize);
    }
    block
}

/// Counts `wanted` allocations that a refill has made ready beside a block that is not counted, if
/// the sampler has to be asked.
#[cold]
#[inline(never)]
fn finish_unsampled(sampler: &'static BlockSampler, heap: HeapPtr, class: usize, wanted: usize) {
    let before = heap.countdown.take(sampler, wanted);
    if before < wanted {
        let ready = heap.free_count(class) + heap.out_of_turn(class);
        heap.hold_back(class, before + ready.saturating_sub(wanted));
        heap.countdown.set_due(class);
    }
}

/// Makes all blocks that this thread's heap has handed out uncounted again, when sampling begins.
pub(crate) fn restart(heap: HeapPtr) {
    (0..CLASSES).for_each(|class| heap.hold_back(class, 0));
}
