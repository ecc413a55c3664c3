//! Slices of an arena's chunks, for runs.
//!
//! Heaps take runs of slices here and give them back, about once in a thousand small blocks. Dirty
//! slices are used first. If their pages are more than the arena's budget, their memory is
//! returned: see [`purge`](super::purge).

use super::SharedArena;
use super::purge;
use super::space::Space;
use crate::chunk::{ChunkPtr, bits, find};
use crate::classes::slices_of;
use crate::geometry::{CHUNK, PAGE, SLICE, SLICES};
use crate::os;
use crate::run::RunPtr;

impl SharedArena {
    /// Takes a run of `count` slices, which is the number of a class. If pages of it may have
    /// content, the metadata of the first slice says so. `None` if there is no memory.
    pub(crate) fn take(&'static self, count: usize) -> Option<RunPtr> {
        self.space.with(|space| {
            let chunk = space.chunk_with_room(self, count)?;
            let dirty = if count == 1 { find(chunk.dirty.get(), 1) } else { None };
            let first = dirty.or_else(|| find(chunk.free.get(), count))?;
            if !self.commit(space, chunk, first, count) {
                return None;
            }
            let touched = (first..first + count).map(|slice| chunk.run(slice).touched()).max();
            if space.use_slices(chunk, bits(first, count)) {
                purge::note_reuse(self);
            }
            chunk.run(first).set_touched(touched.unwrap_or(0));
            Some(chunk.run(first))
        })
    }

    /// Takes the slices behind a run of `old` slices, so that it has `new`. False if they are not
    /// free.
    pub(crate) fn extend(&self, run: RunPtr, old: usize, new: usize) -> bool {
        let chunk = ChunkPtr::of(run);
        let end = slice_of(run) + old;
        if end + (new - old) > SLICES + 1 {
            return false;
        }
        self.space.with(|space| {
            let more = bits(end, new - old);
            let is_free = chunk.free.get() & more == more && self.commit(space, chunk, end, new - old);
            if is_free && space.use_slices(chunk, more) {
                purge::note_reuse(self);
            }
            is_free
        })
    }

    /// Makes free slices usable that were decommitted. False if that fails for one: then those
    /// before it are dirty, so that a purge returns their memory.
    fn commit(&self, space: &mut Space, chunk: ChunkPtr, first: usize, count: usize) -> bool {
        let source = &self.settings().source;
        if source.is_system() {
            return true;
        }
        let mut committed = 0;
        for slice in first..first + count {
            let run = chunk.run(slice);
            if !run.is_decommitted() {
                continue;
            }
            // SAFETY: `commit` demands whole pages of the source that nobody else uses: the slice
            // is free, and the arena's lock is held.
            if !unsafe { source.commit(chunk.slice(slice), SLICE) } {
                os::refuse();
                space.mark_dirty(chunk, committed);
                return false;
            }
            run.set_touched(SLICE / PAGE);
            committed |= bits(slice, 1);
        }
        true
    }

    /// Gives the slices of a run back, from number `from` of the run on.
    pub(crate) fn give_back(&'static self, run: RunPtr, from: usize, count: usize) {
        let (chunk, first) = (ChunkPtr::of(run), slice_of(run) + from);
        let pages = if count == 1 && from == 0 { run.pages() } else { SLICE / PAGE };
        let is_too_much = self.space.with(|space| {
            space.slices_used -= count;
            for slice in first..first + count {
                chunk.run(slice).set_touched(pages);
                space.pages_dirty += pages;
            }
            space.free_slices(self, chunk, bits(first, count), true);
            space.pages_dirty > self.dirty_max(space)
        });
        if is_too_much {
            purge::over_budget(self);
        }
    }

    /// Returns the slices that a run of a class is given back as.
    pub(crate) fn give_back_run(&'static self, run: RunPtr) {
        let count = slices_of(run.class());
        run.end();
        self.give_back(run, 0, count);
    }
}

fn slice_of(run: RunPtr) -> usize {
    (run.start().addr() % CHUNK) / SLICE
}
