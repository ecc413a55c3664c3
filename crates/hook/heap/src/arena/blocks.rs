//! Blocks of arenas: the malloc functions with the id of an arena.
//!
//! A thread that has used an arena before finds its heap there in a table, without a lock. Ids that
//! no arena has, and blocks of other arenas, end the program with a message. So does the id of an
//! arena that was disposed of before the call; during the call, an arena must stay.

use core::ptr;

use super::ids::ArenaId;
use super::lookup::heap_of;
use super::{MAIN, SharedArena, disposal, registry};
use crate::block::as_own;
use crate::chunk::ChunkPtr;
use crate::classes::{DIRECT_MAX, LARGE_MAX, aligned_class_of};
use crate::from_heap::{self, ALIGNMENT, allocate, allocate_of};
use crate::geometry::{CHUNK, SLICE};
use crate::heap::HeapPtr;
use crate::map::{self, Range};
use crate::run::RunPtr;
use crate::{api, arch, fatal, filled, huge, options, sampled, zeroed};

/// Allocates a block of at least `size` bytes in an arena. Null if there is no memory, or if the
/// arena's limit does not allow it. As [`allocate`](crate::allocate) apart from that.
///
/// # Safety
///
/// The arena is not disposed of meanwhile.
#[inline(always)]
pub unsafe fn allocate_in(arena: ArenaId, size: usize) -> *mut u8 {
    // SAFETY: both functions demand what this function's `# Safety` does.
    unsafe {
        let block = allocate_in_at_once(arena, size);
        if block.is_null() { allocate_in_otherwise(arena, size) } else { block }
    }
}

/// Does the part of [`allocate_in`] that is worth inlining: answers requests of up to 512 bytes if
/// the thread has used the arena lately, and if its current run there has a block in its free list.
/// Null otherwise.
///
/// # Safety
///
/// As for [`allocate_in`].
#[inline(always)]
pub unsafe fn allocate_in_at_once(arena: ArenaId, size: usize) -> *mut u8 {
    let id = arena.to_raw();
    let heap = arch::heap().arena_heaps(id).get();
    if size <= DIRECT_MAX && id != 0 && heap.is_of(id) { heap.direct(size).pop().cast() } else { ptr::null_mut() }
}

/// Does the rest of [`allocate_in`].
///
/// # Safety
///
/// As for [`allocate_in`].
#[inline(never)]
pub unsafe fn allocate_in_otherwise(arena: ArenaId, size: usize) -> *mut u8 {
    heap_or_retry(arena.to_raw()).map_or(ptr::null_mut(), |heap| fill_usable(allocate(heap, size)))
}

/// Allocates a block of `size` zero bytes in an arena, as [`allocate_in`] does.
///
/// # Safety
///
/// As for [`allocate_in`].
pub unsafe fn allocate_zeroed_in(arena: ArenaId, size: usize) -> *mut u8 {
    let Some(heap) = heap_or_retry(arena.to_raw()) else { return ptr::null_mut() };
    if size > LARGE_MAX {
        return from_heap::zero_huge(from_heap::allocate_huge(heap, size, ALIGNMENT), size);
    }
    let block = allocate(heap, size);
    if size >= zeroed::LARGE {
        from_heap::zero_large(block, size)
    } else {
        from_heap::zero(block, size)
    }
    block
}

/// Allocates a block in an arena, aligned to `alignment`, a power of two, as [`allocate_in`] does.
///
/// # Safety
///
/// As for [`allocate_in`].
pub unsafe fn allocate_aligned_in(arena: ArenaId, size: usize, alignment: usize) -> *mut u8 {
    debug_assert!(alignment.is_power_of_two());
    let Some(heap) = heap_or_retry(arena.to_raw()) else { return ptr::null_mut() };
    if alignment <= ALIGNMENT {
        return fill_usable(allocate(heap, size));
    }
    fill_usable(match if alignment <= SLICE { aligned_class_of(size, alignment) } else { None } {
        Some(class) => allocate_of(heap, class),
        None => from_heap::allocate_huge(heap, size, alignment).block,
    })
}

/// Returns this thread's heap of an arena. If the system refuses, see
/// [`shortage`](crate::shortage).
#[inline(always)]
fn heap_or_retry(id: u64) -> Option<HeapPtr> {
    let heap = heap_of(id);
    if heap.is_some() { heap } else { retry_heap(id) }
}

#[cold]
#[inline(never)]
fn retry_heap(id: u64) -> Option<HeapPtr> {
    from_heap::heap_after_refusal(&mut || heap_of(id))
}

/// Fills a new block as the options say, as far as it can be used. Null is ignored.
fn fill_usable(block: *mut u8) -> *mut u8 {
    if block.is_null() || !options::is_slow() {
        return block;
    }
    // SAFETY: `usable_size` demands a block that nobody frees meanwhile: a new one.
    filled::fill(block, unsafe { api::usable_size(block) })
}

/// Frees a block of an arena, as [`free`](crate::free) does. Null is ignored. Aborts the program if
/// the block is of another arena.
///
/// # Safety
///
/// The block is null or was returned by this allocator, and nobody uses it any more.
#[inline(always)]
pub unsafe fn free_in(arena: ArenaId, block: *mut u8) {
    let id = arena.to_raw();
    let (heap, block) = (arch::heap().arena_heaps(id).get(), as_own(block));
    if block.addr() & (CHUNK - 1) != 0 && id != 0 && heap.is_of(id) {
        // SAFETY: `RunPtr::of` demands a block in a chunk, which is in the first slice of its run:
        // as in `api::free`.
        let run = unsafe { RunPtr::of(block) };
        if run.is_open_for(heap.as_owner()) {
            // SAFETY: `give_back` demands that this thread's heap owns the run, as was just
            // compared, and that nobody uses the block: this function's `# Safety`.
            if unsafe { run.give_back(block.cast()) } == 0 {
                heap.empty(run);
            }
            return;
        }
    }
    // SAFETY: `free_in_otherwise` demands what this function's `# Safety` does.
    unsafe { free_in_otherwise(arena, block) };
}

/// # Safety
///
/// As for [`free_in`].
#[inline(never)]
unsafe fn free_in_otherwise(arena: ArenaId, block: *mut u8) {
    check_arena(arena, block);
    // SAFETY: `api::free` demands what this function's `# Safety` does.
    unsafe { api::free(block) };
}

/// Changes the size of a block of an arena, as [`reallocate`](crate::reallocate) does. A null block
/// is allocated. Aborts the program if the block is of another arena.
///
/// # Safety
///
/// The block is null or was returned by this allocator, and nobody else uses it. If another one is
/// returned, nobody uses it any more. The arena is not disposed of meanwhile.
pub unsafe fn reallocate_in(arena: ArenaId, block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() {
        // SAFETY: `allocate_in` demands the last part of this function's `# Safety`.
        return unsafe { allocate_in(arena, size) };
    }
    check_arena(arena, block);
    // SAFETY: `api::reallocate` demands what this function's `# Safety` does.
    unsafe { api::reallocate(block, size) }
}

/// Aborts the program unless a block is null, or of an arena that this thread may use.
#[inline(never)]
fn check_arena(arena: ArenaId, block: *const u8) {
    if block.is_null() {
        return;
    }
    let id = arena.to_raw();
    match find_arena(block) {
        Some(of) if of.id() == id => of.check_thread(),
        of => {
            if registry::find(id).is_none() {
                registry::abort_unknown(id);
            }
            match of {
                Some(of) => {
                    let other = of.name();
                    fatal::abort_with(format_args!("a block of {other} was passed as one of arena {id:#x}: {block:p}"))
                }
                None => fatal::abort("an address that is not a block was passed as one of an arena", block),
            }
        }
    }
}

/// Returns the main arena for a block of the sampler, which stands in for a block of that arena.
#[cold]
fn sampled_arena(block: *const u8) -> Option<&'static SharedArena> {
    sampled::owner_of(block.addr()).map(|_| &MAIN)
}

fn find_arena(block: *const u8) -> Option<&'static SharedArena> {
    if block.addr() & (CHUNK - 1) == 0 {
        return huge::find(block).map(huge::HugePtr::arena).or_else(|| sampled_arena(block));
    }
    if map::find(block.addr()) != Some(Range::Chunk) {
        return sampled_arena(block);
    }
    // SAFETY: `RunPtr::of` demands an address in a mapped chunk from which the place of the chunk's
    // header follows, as it does from every address in the chunk: the tree has the chunk. The run
    // is not used.
    let run = unsafe { RunPtr::of(as_own(block.cast_mut())) };
    Some(SharedArena::of(ChunkPtr::of(run)))
}

/// Returns the arena of a block, also if it is the main one, or private: who has a block may know
/// where it is from. `None` if the address is not in memory
/// of this allocator.
///
/// # Safety
///
/// If the address is in memory of this allocator, it is that of a block which nobody frees or
/// reallocates meanwhile.
pub unsafe fn arena_of(block: *const u8) -> Option<ArenaId> {
    let id = find_arena(block)?.id();
    (id != 0).then(|| ArenaId::from_raw(id))
}

/// Returns an arena with this label, in bytes, that is not private: an arena that one part of a
/// program made for others. If several have the label, any of them. `None` if there is none, and
/// for an empty label. Takes a lock, and looks at all arenas.
pub fn find_by_label(label: &[u8]) -> Option<ArenaId> {
    let is_it = |arena: &SharedArena| {
        let own = &arena.settings().label;
        !arena.is_private() && !arena.is_of_threads() && own.split(|&byte| byte == 0).next() == Some(label)
    };
    if label.is_empty() { None } else { registry::find_where(&is_it).map(|arena| ArenaId::from_raw(arena.id())) }
}

/// Returns the id of the main arena, from which the malloc functions allocate.
pub fn main_arena() -> ArenaId {
    ArenaId::from_raw(registry::main_id())
}

/// Disposes of an arena, whose blocks have all been freed. Aborts the program otherwise, and if no
/// arena has the id, or if it is the main one.
///
/// # Safety
///
/// No other thread uses the arena meanwhile.
pub unsafe fn dispose(arena: ArenaId) {
    disposal::dispose(arena.to_raw());
}
