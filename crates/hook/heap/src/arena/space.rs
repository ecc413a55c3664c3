//! The space of an arena: its chunks, under one lock.
//!
//! A slice that was used and is free is *dirty*: pages of it have memory.

use core::ptr;

use super::{SharedArena, clock};
use crate::chunk::{ALL, ChunkList, ChunkPtr, LEVELS, Link, bits, level_for, level_of};
use crate::geometry::{CHUNK, PAGE, SLICE, SLICES};
use crate::map::{self, Range};
use crate::{options, os, readers};

/// Everything that the lock protects. It is locked before the base allocator only.
#[derive(Debug)]
pub(crate) struct Space {
    room: [ChunkList; LEVELS],
    /// The chunks with dirty slices. The last one has had some for longest.
    dirty_chunks: ChunkList,
    /// The address below the newest chunk, where the next one is tried.
    hint: usize,
    pub(crate) chunks: usize,
    pub(crate) slices_used: usize,
    pub(crate) pages_dirty: usize,
    /// The number of times that dirty slices were returned.
    pub(crate) purges: usize,
    /// The number of dirty pages that were returned, by purges and with whole chunks.
    pub(crate) pages_returned: usize,
}

impl Space {
    pub(crate) const fn new() -> Space {
        Space {
            room: [const { ChunkList::new(Link::Room) }; LEVELS],
            dirty_chunks: ChunkList::new(Link::Dirty),
            hint: 0,
            chunks: 0,
            slices_used: 0,
            pages_dirty: 0,
            purges: 0,
            pages_returned: 0,
        }
    }

    pub(crate) fn chunk_with_room(&mut self, arena: &'static SharedArena, count: usize) -> Option<ChunkPtr> {
        let dirty = if count == 1 { self.dirty_chunks.first() } else { None };
        let levels = self.room.get(level_for(count)..).unwrap_or(&[]);
        dirty.or_else(|| levels.iter().find_map(ChunkList::first)).or_else(|| self.new_chunk(arena))
    }

    fn new_chunk(&mut self, arena: &'static SharedArena) -> Option<ChunkPtr> {
        let source = &arena.settings().source;
        let start = if arena.reserve(CHUNK) { source.map(CHUNK, CHUNK, self.hint) } else { return None };
        if start.is_null() {
            arena.release(CHUNK);
            return None;
        }
        // SAFETY: `begin` demands an aligned chunk that is zero if the source is the system, and
        // that nobody else uses; it is unmapped only by `unmap_chunk`, when all of it is free.
        let chunk = unsafe { ChunkPtr::begin(start, source.is_system(), ptr::from_ref(arena).cast()) };
        if !source.is_system() {
            // So that nobody relies on its being zero:
            (1..=SLICES).for_each(|slice| chunk.run(slice).set_touched(SLICE / PAGE));
        }
        if source.is_system() && options::has_guards() {
            chunk.guard();
        }
        // From here on, readers without a lock find it: its header is complete.
        if !map::set(start.addr(), Some(Range::Chunk)) {
            arena.release(CHUNK);
            // SAFETY: mapped just now, and nobody knows it.
            unsafe { source.unmap(start, CHUNK) };
            return None;
        }
        self.hint = start.addr().saturating_sub(CHUNK);
        self.chunks += 1;
        self.list(chunk);
        Some(chunk)
    }

    /// Returns the number of pages that may have memory in slices of a chunk.
    fn touched(chunk: ChunkPtr, slices: u64) -> usize {
        (1..=SLICES).filter(|slice| slices & bits(*slice, 1) != 0).map(|slice| chunk.run(slice).touched()).sum()
    }

    /// Marks free slices as used. True if some were dirty.
    pub(crate) fn use_slices(&mut self, chunk: ChunkPtr, slices: u64) -> bool {
        let dirty = chunk.dirty.get() & slices;
        if dirty != 0 {
            self.pages_dirty -= Space::touched(chunk, dirty);
        }
        self.slices_used += slices.count_ones() as usize;
        chunk.dirty.set(chunk.dirty.get() & !slices);
        chunk.free.set(chunk.free.get() & !slices);
        self.list(chunk);
        dirty != 0
    }

    /// Marks free slices as dirty that are not yet so.
    pub(crate) fn mark_dirty(&mut self, chunk: ChunkPtr, slices: u64) {
        self.pages_dirty += Space::touched(chunk, slices);
        chunk.dirty.set(chunk.dirty.get() | slices);
        self.list(chunk);
    }

    /// Marks slices as free. A chunk that is free as a whole is unmapped if there is another.
    pub(crate) fn free_slices(&mut self, arena: &SharedArena, chunk: ChunkPtr, slices: u64, are_dirty: bool) {
        chunk.free.set(chunk.free.get() | slices);
        if are_dirty {
            chunk.dirty.set(chunk.dirty.get() | slices);
        }
        self.list(chunk);
        let free = &self.room[LEVELS - 1];
        if chunk.free.get() == ALL && free.first() != free.last() {
            self.unmap_chunk(arena, chunk);
        }
    }

    fn unmap_chunk(&mut self, arena: &SharedArena, chunk: ChunkPtr) {
        let pages = Space::touched(chunk, chunk.dirty.get());
        self.pages_dirty -= pages;
        self.pages_returned += pages;
        chunk.dirty.set(0);
        chunk.free.set(0);
        self.list(chunk);
        let start = chunk.start();
        map::set(start.addr(), None);
        let is_unread = readers::wait();
        self.chunks -= 1;
        self.hint = start.addr();
        let source = &arena.settings().source;
        if is_unread {
            // SAFETY: `unmap` demands memory that nobody uses: every slice is free, no list has the
            // chunk, and nobody reads its metadata.
            unsafe { source.unmap(start, CHUNK) };
        } else if source.is_system() {
            // SAFETY: `discard` demands whole pages of ours whose content is not needed: a reader
            // of the metadata may read anything.
            unsafe { os::discard(start, CHUNK) };
        }
        arena.release(CHUNK);
    }

    /// Unmaps the chunks that are free as a whole.
    pub(crate) fn unmap_free(&mut self, arena: &SharedArena) {
        while let Some(chunk) = self.room[LEVELS - 1].first() {
            self.unmap_chunk(arena, chunk);
        }
        self.hint = 0;
    }

    /// Takes the dirty slices of the chunk that has had some for longest, if a condition holds for
    /// the chunk.
    pub(crate) fn take_dirty(&mut self, is_due: &dyn Fn(&Space, ChunkPtr) -> bool) -> Option<(ChunkPtr, u64)> {
        let chunk = self.dirty_chunks.last().filter(|&chunk| is_due(self, chunk))?;
        let slices = chunk.dirty.get();
        self.use_slices(chunk, slices);
        Some((chunk, slices))
    }

    /// Gives slices back that [`Space::take_dirty`] took, of which the memory of those `refused`
    /// was not returned.
    pub(crate) fn end_purge(&mut self, arena: &SharedArena, chunk: ChunkPtr, slices: u64, refused: u64) {
        let is_system = arena.settings().source.is_system();
        self.purges += 1;
        self.slices_used -= slices.count_ones() as usize;
        for slice in (1..=SLICES).filter(|slice| slices & bits(*slice, 1) != 0) {
            let run = chunk.run(slice);
            let pages = run.touched();
            if refused & bits(slice, 1) != 0 {
                self.pages_dirty += pages;
                continue;
            }
            self.pages_returned += pages;
            if is_system { run.set_returned() } else { run.set_decommitted() }
        }
        if refused != 0 {
            self.free_slices(arena, chunk, refused, true);
        }
        if slices != refused {
            self.free_slices(arena, chunk, slices & !refused, false);
        }
    }

    /// Puts a chunk into the lists that its slices say.
    fn list(&mut self, chunk: ChunkPtr) {
        let is_dirty = chunk.dirty.get() != 0;
        if is_dirty != ChunkList::holds_one_of(Link::Dirty, chunk) {
            if is_dirty {
                chunk.dirty_since.set(clock::second());
                self.dirty_chunks.push_front(chunk);
            } else {
                self.dirty_chunks.unlink(chunk);
            }
        }
        let (old, new) = (usize::from(chunk.level.get()), level_of(chunk.free.get()));
        let is_in = ChunkList::holds_one_of(Link::Room, chunk);
        if is_in && new.map(usize::from) != Some(old) {
            self.room[old].unlink(chunk);
        }
        if let Some(new) = new.filter(|&new| !is_in || usize::from(new) != old) {
            chunk.level.set(new);
            self.room[usize::from(new)].push_front(chunk);
        }
    }
}
