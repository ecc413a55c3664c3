//! The end of an arena.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::Ordering;

use super::space::Space;
use super::{Heaps, MAIN, SharedArena, heaps, registry};
use crate::chunk::{ChunkPtr, bits};
use crate::fatal;
use crate::geometry::SLICES;
use crate::heap::HeapPtr;
use crate::map;
use crate::run::RunPtr;

/// Disposes of an arena. Aborts the program if it has blocks, or if no arena has the id.
pub(crate) fn dispose(id: u64) {
    if id != 0 && id == MAIN.id() {
        fatal::abort_with(format_args!("the main arena was disposed of"));
    }
    let Some(arena) = registry::find(id) else { registry::abort_unknown(id) };
    if arena.is_of_threads() {
        fatal::abort_with(format_args!("the arena of a thread was disposed of: {id:#x}"));
    }
    arena.check_thread();
    let Some(arena) = registry::remove(id) else { registry::abort_unknown(id) };
    if arena.dispose() {
        registry::reuse(arena);
    }
}

impl SharedArena {
    /// Ends the arena, which the registry does not have any more. Returns false if its description
    /// must not be used again, because it has lost heaps. Aborts the program if it has blocks.
    pub(crate) fn dispose(&'static self) -> bool {
        self.purging.with(|()| {
            let has_lost = self.heaps.with(|heaps| {
                let emptied = self.take_emptied_abandoned(heaps, usize::MAX);
                self.give_back_emptied(emptied);
                let slices = Cell::new(0);
                heaps.each(|heap| {
                    heap.trim();
                    slices.set(slices.get() + heap.slices());
                });
                let huge = self.huge_blocks.load(Ordering::Relaxed);
                // Blocks of lost heaps, and huge blocks that only a thread of the parent knows, are
                // nobody's fault.
                if slices.get() > 0 || (huge > 0 && !heaps.has_lost) {
                    self.abort_for_blocks();
                }
                let is_lost = huge > 0 || self.space.with(|space| space.slices_used > 0);
                if !is_lost {
                    self.space.with(|space| {
                        space.unmap_free(self);
                        *space = Space::new();
                    });
                }
                // A heap that has a thread is left to that thread, which notices at its next visit.
                // From then on other arenas may take the heaps, so they are counted before.
                self.end_operations(heaps);
                heaps.each(|heap| if heap.has_no_home() { heaps::spare(heap) } else { heap.retire() });
                *heaps = Heaps::none(is_lost);
                self.abandoned.store(0, Ordering::Relaxed);
                is_lost
            });
            self.end();
            !has_lost
        })
    }

    #[cold]
    fn abort_for_blocks(&self) -> ! {
        let left = live_blocks(self);
        fatal::abort_with(format_args!(
            "{} was disposed of with {} live blocks of {} bytes",
            self.name(),
            left.blocks,
            left.bytes
        ))
    }
}

/// The blocks of an arena that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveBlocks {
    pub(crate) blocks: usize,
    /// The bytes that can be used in them.
    pub(crate) bytes: usize,
}

/// Counts the blocks of an arena that are in use. Nobody uses the arena meanwhile, and all of its
/// heaps have been trimmed. Visits all chunks of the process.
pub(crate) fn live_blocks(arena: &SharedArena) -> LiveBlocks {
    let mut live = LiveBlocks {
        blocks: arena.huge_blocks.load(Ordering::Relaxed),
        bytes: arena.huge_bytes.load(Ordering::Relaxed),
    };
    arena.space.with(|_| {
        map::each_chunk(|start| {
            // SAFETY: `RunPtr::of` demands a slice of a mapped chunk. A chunk of another arena
            // might be unmapped meanwhile; this function is called before the program is aborted,
            // so the worst is that it ends by SIGSEGV instead.
            let chunk = ChunkPtr::of(unsafe { RunPtr::of(start) });
            if !ptr::eq(SharedArena::of(chunk), arena) {
                return;
            }
            let mut slice = 1;
            while slice <= SLICES {
                let run = chunk.run(slice);
                if chunk.free.get() & bits(slice, 1) != 0 || run.owner().is_null() {
                    slice += 1;
                    continue;
                }
                let used = run.used() as usize - usize::from(is_current(run));
                live.blocks += used;
                live.bytes += used * run.block_size();
                slice += run.slices().max(1);
            }
        });
    });
    live
}

fn is_current(run: RunPtr) -> bool {
    // SAFETY: `from_owner` demands null or an address from `as_owner`, as runs get it.
    unsafe { HeapPtr::from_owner(run.owner()) }.is_some_and(|owner| owner.is_current(run))
}
