//! Blocks of one of this thread's heaps.

use core::ptr;

use crate::arena::{SharedArena, lookup};
use crate::block::{Block, as_own};
use crate::chunk::ChunkPtr;
use crate::classes::{DIRECT_MAX, LARGE_MAX, bytes_of, class_of};
use crate::heap::{Heap, HeapPtr};
use crate::run::RunPtr;
use crate::trim::trim;
use crate::{huge, keys, options, shortage, threads, zeroed};

/// The alignment of every block in bytes.
pub const ALIGNMENT: usize = 16;

/// Allocates a block from a heap of this thread's. Null if there is no memory.
#[inline(always)]
pub(crate) fn allocate(heap: HeapPtr, size: usize) -> *mut u8 {
    allocate_by(heap, size, refill)
}

/// Allocates as [`allocate`] does. If the current run of the class has no block in its free list, a
/// function returns one instead of [`refill`].
#[inline(always)]
pub(crate) fn allocate_by(heap: HeapPtr, size: usize, refill: impl FnOnce(HeapPtr, usize) -> *mut u8) -> *mut u8 {
    if size <= DIRECT_MAX && !keys::are_on() {
        let block = heap.direct(size).pop();
        return if block.is_null() { refill(heap, class_of(size)) } else { block.cast() };
    }
    if size <= LARGE_MAX {
        let class = class_of(size);
        let block = heap.pop_any(class);
        return if block.is_null() { refill(heap, class) } else { block.cast() };
    }
    allocate_huge(heap, size, ALIGNMENT).block
}

/// Allocates a huge block in the arena of a heap of this thread's.
pub(crate) fn allocate_huge(heap: HeapPtr, size: usize, alignment: usize) -> huge::New {
    allocate_huge_of(heap.arena(), size, alignment)
}

/// Allocates a huge block in an arena. If the system refuses, see [`shortage`].
pub(crate) fn allocate_huge_of(arena: &'static SharedArena, size: usize, alignment: usize) -> huge::New {
    let mut new = huge::allocate(arena, size, alignment);
    if new.block.is_null() && make_room(arena) {
        new = huge::allocate(arena, size, alignment);
    }
    if new.block.is_null() {
        shortage::retry(size, trim, &mut || {
            new = huge::allocate(arena, size, alignment);
            !new.block.is_null()
        });
    }
    new
}

/// Unmaps what an arena with a limit does not use, as far as this thread can. False if the arena
/// has no limit.
pub(crate) fn make_room(arena: &'static SharedArena) -> bool {
    let has_limit = arena.settings().bytes_max != 0;
    if has_limit {
        if let Some(heap) = lookup::heap_in(arena) {
            heap.trim();
        }
        arena.sweep(usize::MAX);
        arena.space.with(|space| space.unmap_free(arena));
    }
    has_limit
}

/// Allocates a block of a class from a heap of this thread's. Null if there is no memory.
pub(crate) fn allocate_of(heap: HeapPtr, class: usize) -> *mut u8 {
    let block = heap.pop_any(class);
    if block.is_null() { refill(heap, class) } else { block.cast() }
}

/// Returns a block of a class from one of this thread's heaps whose current run has none in its
/// free list. Null if there is no memory: if the system refuses, see [`shortage`].
pub(crate) fn refill(heap: HeapPtr, class: usize) -> *mut u8 {
    let block = refill_or_fail(heap, class);
    if block.is_null() { refill_after_refusal(heap, class) } else { block }
}

#[cold]
#[inline(never)]
fn refill_after_refusal(heap: HeapPtr, class: usize) -> *mut u8 {
    let mut block = ptr::null_mut();
    shortage::retry(bytes_of(class), trim, &mut || {
        block = refill_or_fail(heap, class);
        !block.is_null()
    });
    block
}

/// Finds or makes a heap of this thread's again, after the system has refused memory for it: see
/// [`shortage`]. `None` if there is still none.
#[cold]
#[inline(never)]
pub(crate) fn heap_after_refusal(attempt: &mut dyn FnMut() -> Option<HeapPtr>) -> Option<HeapPtr> {
    let mut heap = None;
    shortage::retry(size_of::<Heap>(), trim, &mut || {
        heap = attempt();
        heap.is_some()
    });
    heap
}

/// Does as [`refill`], without the steps of [`shortage`], for a caller that can do without the
/// block.
pub(crate) fn refill_or_fail(heap: HeapPtr, class: usize) -> *mut u8 {
    if heap.tick() {
        threads::visit(heap);
    }
    heap.note_use(class);
    heap.refill(class).cast()
}

/// Makes a huge block that was allocated just now zero, unless it is null. Returns its address.
pub(crate) fn zero_huge(new: huge::New, size: usize) -> *mut u8 {
    if !new.is_zero {
        // SAFETY: a new block of at least that size, not null. If it is in memory of the system's,
        // it begins at a page and has whole ones: each is a mapping.
        unsafe {
            match huge::find(new.block) {
                Some(huge) if huge.arena().settings().source.is_system() => zeroed::fill(new.block, size),
                _ => ptr::write_bytes(new.block, 0, size),
            }
        }
    }
    new.block
}

/// Makes the first `size` bytes of a block zero that was allocated just now in a chunk, unless it
/// is null.
#[inline(always)]
pub(crate) fn zero(block: *mut u8, size: usize) {
    if !block.is_null() {
        // SAFETY: `of` demands a live block in a chunk, and it is the first one of its run or in
        // the first slice: it was allocated above. `write_bytes` demands that many writable bytes,
        // and nobody else uses the block.
        unsafe {
            // New blocks may have been filled with another byte.
            let is_fresh = RunPtr::of(as_own(block)).is_fresh() && !options::is_slow();
            ptr::write_bytes(block, 0, if is_fresh { size_of::<Block>().min(size.max(1)) } else { size });
        }
    }
}

/// Does as [`zero`] for a block of at least [`zeroed::LARGE`] bytes.
pub(crate) fn zero_large(block: *mut u8, size: usize) {
    if block.is_null() {
        return;
    }
    // SAFETY: as for `zero`: a live block in a chunk, the first one of its run.
    let run = unsafe { RunPtr::of(as_own(block)) };
    let is_fresh = run.is_fresh() && !options::is_slow();
    // The metadata of a sampler's block is zero, and it has no arena.
    let is_own = run.block_size() != 0;
    if is_own && !is_fresh && SharedArena::of(ChunkPtr::of(run)).settings().source.is_system() {
        // SAFETY: `fill` demands whole pages of the system's: a block of that size has whole
        // slices, in a chunk of such an arena, and it was allocated just now.
        unsafe { zeroed::fill(block, size) };
    } else {
        zero(block, size);
    }
}

/// Frees a block of a run of this thread's heap `owner`.
///
/// # Safety
///
/// `owner` owns the run, and `block` is a block of it that nobody uses any more.
pub(crate) unsafe fn free_locally(owner: HeapPtr, run: RunPtr, block: *mut u8) {
    // SAFETY: both functions demand what this function's `# Safety` does; `free_in_full` a run that
    // is full, and `give_back_any` only the owner, which is this thread.
    unsafe {
        if run.is_full() {
            owner.free_in_full(run, block.cast());
        } else if run.give_back_any(block.cast()) == 0 {
            owner.empty(run);
        }
    }
}
