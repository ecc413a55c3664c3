//! The heap that this thread has of an arena.
//!
//! The thread's home heap has a table of the others, which is asked first, without a lock.

use core::ptr;

use super::{SharedArena, registry};
use crate::chunk::ChunkPtr;
use crate::heap::HeapPtr;
use crate::map::{self, Range};
use crate::run::RunPtr;
use crate::{arch, fatal, threads};

/// Returns this thread's heap of an arena. `None` if there is no memory.
#[inline(always)]
pub(crate) fn heap_of(id: u64) -> Option<HeapPtr> {
    let heap = arch::heap().arena_heaps(id).get();
    // Retired heaps, and the empty one, have the id 0.
    if id != 0 && heap.is_of(id) { Some(heap) } else { find_heap(id) }
}

/// Does the rest of [`heap_of`]: finds the heap behind others of its list, or gets one.
#[cold]
#[inline(never)]
fn find_heap(id: u64) -> Option<HeapPtr> {
    let mut home = arch::own();
    if home.is_empty() {
        home = threads::acquire()?;
    }
    if id != 0 && home.is_of(id) {
        return Some(home);
    }
    let list = home.arena_heaps(id);
    let (mut before, mut heap) = (None::<HeapPtr>, list.get());
    while !heap.is_empty() && !heap.is_of(id) {
        before = Some(heap);
        heap = heap.sibling.get();
    }
    if id == 0 || heap.is_empty() {
        return get_heap(home, id);
    }
    if let Some(before) = before {
        before.sibling.set(heap.sibling.get());
        heap.sibling.set(list.replace(heap));
    }
    Some(heap)
}

/// Gets a heap of an arena for this thread, which has none there.
fn get_heap(home: HeapPtr, id: u64) -> Option<HeapPtr> {
    let Some(arena) = registry::find(id) else { registry::abort_unknown(id) };
    arena.check_thread();
    let heap = arena.adopt(Some(home), take_retired(home))?;
    home.add_sibling(heap);
    Some(heap)
}

/// Takes a heap of this thread's whose arena was disposed of out of the table.
fn take_retired(home: HeapPtr) -> Option<HeapPtr> {
    let mut found = None;
    home.each_list(|list| {
        let (mut before, mut heap) = (None::<HeapPtr>, list.get());
        while found.is_none() && !heap.is_empty() {
            let next = heap.sibling.get();
            if heap.is_retired() {
                match before {
                    Some(before) => before.sibling.set(next),
                    None => list.set(next),
                }
                found = Some(heap);
            }
            (before, heap) = (Some(heap), next);
        }
    });
    found
}

/// Returns this thread's heap of an arena. `None` if there is no memory.
pub(crate) fn heap_in(arena: &'static SharedArena) -> Option<HeapPtr> {
    let mut home = arch::own();
    if home.is_empty() {
        home = threads::acquire()?;
    }
    if ptr::eq(home.arena(), arena) { Some(home) } else { heap_of(arena.id()) }
}

/// Returns this thread's heap of the arena of a block, whose run is `run`. `None` if there is no
/// memory. Aborts the program if the address is not that of a block.
pub(crate) fn heap_for(run: RunPtr, block: *const u8) -> Option<HeapPtr> {
    if map::find(block.addr()) != Some(Range::Chunk) {
        fatal::abort("reallocation of an address that is not a block", block);
    }
    if run.owner().is_null() {
        fatal::abort("reallocation of a block that was freed", block);
    }
    heap_in(SharedArena::of(ChunkPtr::of(run)))
}
