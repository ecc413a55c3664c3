//! The functions of the allocator.

use core::ptr;

use heapledger_core::block_sampler;

use crate::arena::{MAIN, lookup, registry};
use crate::block::{self, as_own};
use crate::classes::{
    self, DIRECT_MAX, LARGE_MAX, SMALL_MAX, aligned_class_of, bytes_of, class_above_direct, class_of,
};
use crate::from_heap::{self, ALIGNMENT};
use crate::geometry::{CHUNK, SLICE};
use crate::heap::HeapPtr;
use crate::run::RunPtr;
use crate::trim::trim;
use crate::{arch, fatal, filled, huge, map, options, page, sampled, shortage, threads, zeroed};

/// Allocates a block of at least `size` bytes, aligned to [`ALIGNMENT`]. Null if there is no
/// memory. Up to 512 bytes this takes about fifteen instructions.
#[inline(always)]
pub fn allocate(size: usize) -> *mut u8 {
    let block = allocate_at_once(size);
    if block.is_null() { allocate_otherwise(size) } else { block }
}

/// Does the part of [`allocate`] that is worth inlining: answers requests of up to 512 bytes if the
/// thread's current run has a block in its free list. Null otherwise.
#[inline(always)]
pub fn allocate_at_once(size: usize) -> *mut u8 {
    if size <= DIRECT_MAX { arch::heap().direct(size).pop().cast() } else { ptr::null_mut() }
}

/// Does as [`allocate_at_once`] for requests of up to 1 MiB, which takes more code.
#[inline(always)]
pub fn allocate_any_at_once(size: usize) -> *mut u8 {
    if size <= DIRECT_MAX {
        allocate_at_once(size)
    } else if size <= SMALL_MAX {
        // Apart from larger ones, whose class is found in another way: one branch less.
        arch::heap().pop(class_above_direct(size)).cast()
    } else if size <= LARGE_MAX {
        arch::heap().pop(class_above_direct(size)).cast()
    } else {
        ptr::null_mut()
    }
}

/// Does the rest of [`allocate`].
#[inline(never)]
pub fn allocate_otherwise(size: usize) -> *mut u8 {
    if size <= DIRECT_MAX {
        let block = arch::heap().refill_at_once(size);
        if block.is_null() { refill(class_of(size), size, ALIGNMENT) } else { block.cast() }
    } else if size <= LARGE_MAX {
        allocate_of(class_above_direct(size), size, ALIGNMENT)
    } else {
        allocate_huge(size, ALIGNMENT)
    }
}

#[cold]
fn allocate_huge(size: usize, alignment: usize) -> *mut u8 {
    threads::prepare();
    filled::fill_huge(from_heap::allocate_huge_of(&MAIN, size, alignment).block, size)
}

/// Allocates a block of a class of over 512 bytes, for a request of `size` bytes.
#[inline(always)]
fn allocate_of(class: usize, size: usize, alignment: usize) -> *mut u8 {
    let block = arch::heap().pop(class);
    if block.is_null() { refill(class, size, alignment) } else { block.cast() }
}

#[cold]
#[inline(never)]
fn refill(class: usize, size: usize, alignment: usize) -> *mut u8 {
    let mut heap = arch::heap();
    if heap.is_empty() {
        match acquire() {
            Some(own) => heap = own,
            None => return ptr::null_mut(),
        }
        if options::is_slow() {
            return filled::fill(from_heap::allocate_of(heap, class), bytes_of(class));
        }
    }
    match block_sampler::get() {
        Some(sampler) => sampled::refill(sampler, heap, class, size, alignment),
        None => from_heap::refill(heap, class),
    }
}

/// Has the next allocation of this thread counted as the first one by the sampler: see
/// [`block_sampler`]. Blocks in the free lists of other threads are not counted.
pub fn restart_sampling() {
    registry::for_each(|arena| arena.note_sampler());
    let heap = arch::own();
    if !heap.is_empty() {
        sampled::restart(heap);
    }
}

/// Returns this thread's home heap. If the system refuses, see [`shortage`].
#[cold]
fn acquire() -> Option<HeapPtr> {
    threads::acquire().or_else(|| from_heap::heap_after_refusal(&mut threads::acquire))
}

/// Allocates a block of `size` zero bytes. Memory that was not used since the system returned it is
/// not written to.
#[inline]
pub fn allocate_zeroed(size: usize) -> *mut u8 {
    if size >= zeroed::LARGE {
        return allocate_zeroed_large(size);
    }
    let block = allocate(size);
    from_heap::zero(block, size);
    block
}

#[cold]
#[inline(never)]
fn allocate_zeroed_large(size: usize) -> *mut u8 {
    if size > LARGE_MAX {
        threads::prepare();
        return from_heap::zero_huge(from_heap::allocate_huge_of(&MAIN, size, ALIGNMENT), size);
    }
    let block = allocate(size);
    from_heap::zero_large(block, size);
    block
}

/// Allocates a block of at least `size` bytes, aligned to `alignment`, a power of two. Null if
/// there is no memory.
#[inline]
pub fn allocate_aligned(size: usize, alignment: usize) -> *mut u8 {
    debug_assert!(alignment.is_power_of_two());
    if alignment <= ALIGNMENT {
        return allocate(size);
    }
    let class = if alignment <= SLICE { aligned_class_of(size, alignment) } else { None };
    match class {
        Some(class) => {
            let block = arch::heap().pop_any(class);
            if block.is_null() { refill(class, size, alignment) } else { block.cast() }
        }
        None => allocate_huge(size, alignment),
    }
}

/// Frees a block. Null is ignored.
///
/// # Safety
///
/// The block is null or was returned by this allocator, and nobody uses it any more.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    let block = as_own(block);
    // No block in a chunk begins where the chunk does; null and huge blocks do.
    if block.addr() & (CHUNK - 1) == 0 {
        // SAFETY: `free_huge` demands what this function's `# Safety` does.
        return unsafe { free_huge(block) };
    }
    let heap = arch::heap();
    // SAFETY: `of` demands a live block in a chunk: by the contract of this function it is a block
    // of this allocator, and those that are not in a chunk begin at a multiple of `CHUNK`. A block
    // lies in the first slice of its run: only runs of one block have several.
    let run = unsafe { RunPtr::of(block) };
    if !run.is_open_for(heap.as_owner()) {
        // SAFETY: `free_elsewhere` demands what this function's `# Safety` does, and the block's
        // run, which `of` has returned.
        return unsafe { free_elsewhere(block, run) };
    }
    // SAFETY: `give_back` demands that this thread's heap owns the run, as was just compared, and
    // that nobody uses the block.
    if unsafe { run.give_back(block.cast()) } == 0 {
        heap.empty(run);
    }
}

/// # Safety
///
/// As for [`free`].
#[cold]
#[inline(never)]
unsafe fn free_huge(block: *mut u8) {
    // SAFETY: `huge::free` demands that nobody uses the block: the contract of `free`.
    if !block.is_null() && !unsafe { huge::free(block) } && !free_sampled(block) {
        fatal::abort("free of an address that is not a block, or of a block that was freed", block);
    }
}

/// Frees a block of the sampler. False if it is none.
#[cold]
fn free_sampled(block: *mut u8) -> bool {
    let owner = sampled::owner_of(block.addr());
    // SAFETY: the function demands an address in the sampler's range.
    owner.inspect(|sampler| unsafe { (sampler.free)(block.cast()) }).is_some()
}

/// Frees a block of a run that is full, or that this thread's heap does not own.
///
/// # Safety
///
/// As for [`free`], and `run` is the block's.
///
/// The block is the first argument, as it is of `free`, so that `free` need not move it.
#[cold]
#[inline(never)]
unsafe fn free_elsewhere(block: *mut u8, run: RunPtr) {
    let (mut heap, owner) = (arch::heap(), run.owner());
    if owner == heap.as_owner() {
        // SAFETY: this thread's heap owns the run, which is full because it was not open.
        return unsafe { heap.free_in_full(run, block.cast()) };
    }
    if map::find(block.addr()) != Some(map::Range::Chunk) {
        if free_sampled(block) {
            return;
        }
        fatal::abort("free of an address that is not a block", block);
    }
    if options::is_slow() {
        // SAFETY: `poison` demands a block's address and run, in a chunk that stays mapped, and
        // that nobody uses the block: the contract of `free`.
        unsafe { filled::poison(run, block) };
        heap = arch::own();
    }
    // SAFETY: `from_owner` demands null or an address from `as_owner`, as runs get it.
    let Some(owner) = (unsafe { HeapPtr::from_owner(owner) }) else {
        fatal::abort("free of a block that was freed", block);
    };
    if owner.is_at_home(heap) {
        // SAFETY: `free_locally` demands a run that a heap of this thread owns, and a block of it
        // that nobody uses: the contract of `free`.
        return unsafe { from_heap::free_locally(owner, run, block) };
    }
    // Before the block is given back: afterwards, the run and its arena may be gone.
    let (arena, size) = (owner.arena(), run.block_size());
    let is_left = owner.has_no_home();
    arena.check_thread();
    // SAFETY: `give_back_remotely` demands a block of the run that nobody uses: the contract of
    // `free`.
    if unsafe { run.give_back_remotely(block.cast()) } {
        notify_owner(run);
    }
    if is_left {
        arena.count_abandoned(size);
    }
}

/// Notifies the heap that owns a full run, of which this thread has freed a block.
fn notify_owner(run: RunPtr) {
    // The owner of now: the run may have been abandoned, and taken by another heap, which filled
    // it, between the look at its owner and the free. From here on it stays the same, as no list
    // has the run before its owner gets the notice.
    // SAFETY: `from_owner` demands null or an address from `as_owner`, as runs get it.
    let Some(owner) = (unsafe { HeapPtr::from_owner(run.owner()) }) else { return };
    let arena = owner.arena();
    owner.notify(run);
    if owner.has_no_home() {
        arena.receive(owner);
    }
}

/// Returns the number of bytes of a block that its user may use. Returns 0 for null, and for
/// addresses at which this allocator has no memory.
///
/// # Safety
///
/// If the address is in memory of this allocator, it is that of a block which nobody frees or
/// reallocates meanwhile.
#[inline]
pub unsafe fn usable_size(block: *const u8) -> usize {
    if block.addr() & (CHUNK - 1) == 0 {
        return huge::find(block).map_or_else(|| sampled::usable_size(block), huge::HugePtr::length);
    }
    if map::find(block.addr()) != Some(map::Range::Chunk) {
        return sampled::usable_size(block);
    }
    // SAFETY: `of` demands a live block in a chunk: the tree has the chunk, and the address is that
    // of a block by this function's `# Safety`. It is in the first slice of its run, as in `free`.
    unsafe { RunPtr::of(as_own(block.cast_mut())) }.block_size()
}

/// Returns the usable size of a block of `size` bytes, as [`allocate`] would return it. `None` if
/// no block can be as large.
pub fn good_size(size: usize) -> Option<usize> {
    classes::good_size(size, page::page_size())
}

/// Changes the size of a block, in place if possible. Returns the block, which may have moved; null
/// if there is no memory to grow: then the old block is as it was. A null `block` is allocated.
///
/// # Safety
///
/// The block is null or was returned by this allocator, and nobody else uses it. If another one is
/// returned, nobody uses it any more.
#[inline]
pub unsafe fn reallocate(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        return allocate(size);
    }
    if block.addr() & (CHUNK - 1) == 0 {
        // SAFETY: `reallocate_huge` demands what this function's `# Safety` does.
        return unsafe { reallocate_huge(block, size) };
    }
    // SAFETY: `of` demands a live block in a chunk: see `free`.
    let run = unsafe { RunPtr::of(as_own(block)) };
    let old = run.block_size();
    // A block that shrinks to less than half moves, so that its memory can be used.
    if size <= old && size >= old / 2 {
        return block;
    }
    // SAFETY: `move_block` demands what this function's `# Safety` does, and the block's run, which
    // `of` has returned.
    unsafe { move_block(block, run, size) }
}

/// # Safety
///
/// As for [`reallocate`], and `run` is the block's.
#[inline(never)]
unsafe fn move_block(block: *mut u8, run: RunPtr, size: usize) -> *mut u8 {
    let (heap, old) = (arch::heap(), run.block_size());
    // The metadata of a sampler's block is zero.
    if old == 0
        && let Some(sampler) = sampled::owner_of(block.addr())
    {
        // SAFETY: the function demands an address in the sampler's range.
        return unsafe { (sampler.reallocate)(block.cast(), size) }.cast();
    }
    if size <= old && class_of(size) == run.class() {
        return block;
    }
    // Blocks stay in their arenas, whose heap of this thread may be another one than its home.
    let mut own = if run.owner() == heap.as_owner() { Some(heap) } else { lookup::heap_for(run, block) };
    if own.is_none() && size > old {
        own = from_heap::heap_after_refusal(&mut || lookup::heap_for(run, block));
    }
    let is_large = size > SLICE && size <= LARGE_MAX && old >= SLICE;
    if is_large && own.is_some_and(|own| run.owner() == own.as_owner() && own.resize_large(run, class_of(size))) {
        filled::fill_grown(block, old, run.block_size());
        return block;
    }
    // If it shrinks, it can stay where it is.
    let refill = if size <= old { from_heap::refill_or_fail } else { from_heap::refill };
    let new = own.map_or(ptr::null_mut(), |own| {
        from_heap::allocate_by(own, size, |own, class| {
            if own == heap { sampled::refill_unsampled(own, class, refill) } else { refill(own, class) }
        })
    });
    if new.is_null() {
        return if size <= old { block } else { new };
    }
    // SAFETY: `copy` demands that many bytes in both blocks, which are ours. `usable_size` demands
    // a block of this allocator that nobody frees meanwhile. `free` demands that nobody uses the
    // old one any more: the contract of `reallocate`.
    unsafe {
        block::copy(block, new, old.min(size));
        filled::fill_grown(new, old.min(size), usable_size(new));
        free(block);
    }
    new
}

/// # Safety
///
/// As for [`reallocate`].
#[cold]
unsafe fn reallocate_huge(block: *mut u8, size: usize) -> *mut u8 {
    let Some(huge) = huge::find(block) else {
        if let Some(sampler) = sampled::owner_of(block.addr()) {
            // SAFETY: the function demands an address in the sampler's range.
            return unsafe { (sampler.reallocate)(block.cast(), size) }.cast();
        }
        fatal::abort("reallocation of an address that is not a block", block);
    };
    huge.arena().check_thread();
    let old = huge.length();
    if size > LARGE_MAX {
        let resize = || {
            // SAFETY: `resize` demands the block's description, and that the caller owns the block,
            // which is as it was after a failure.
            unsafe { huge::resize(block, huge, size) }
        };
        let mut new = resize();
        if new.is_null() && from_heap::make_room(huge.arena()) {
            new = resize();
        }
        if new.is_null() {
            shortage::retry(size, trim, &mut || {
                new = resize();
                !new.is_null()
            });
        }
        // SAFETY: `usable_size` demands null or a block that nobody frees meanwhile.
        filled::fill_grown(new, old, unsafe { usable_size(new) });
        return new;
    }
    // It shrinks: a huge block has more bytes than any in a chunk.
    let new = lookup::heap_in(huge.arena()).map_or(ptr::null_mut(), |own| {
        from_heap::allocate_by(own, size, |own, class| {
            let refill = from_heap::refill_or_fail;
            if own == arch::heap() { sampled::refill_unsampled(own, class, refill) } else { refill(own, class) }
        })
    });
    if new.is_null() {
        return if size <= old { block } else { new };
    }
    // SAFETY: `copy` demands that many bytes in both blocks, which are ours. `usable_size` demands
    // a block of this allocator that nobody frees meanwhile. `free` demands that nobody uses the
    // old one any more: the contract of `reallocate`.
    unsafe {
        block::copy(block, new, old.min(size));
        filled::fill_grown(new, old.min(size), usable_size(new));
        free(block);
    }
    new
}
