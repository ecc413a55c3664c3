//! The arena: the chunks of the process, under one lock.
//!
//! Heaps take runs of slices here and give them back, about once in a thousand small blocks. A
//! slice that is given back is *dirty*: pages of it have memory. Dirty slices are used first. If
//! their pages are more than the budget, the memory of the oldest is returned to the system, down
//! to half of the budget, so that the next slice that is given back does not cause a system call
//! again. The thread that exceeds the budget does it.

use core::ptr;

use crate::chunk::{ALL, ChunkList, ChunkPtr, LEVELS, Link, bits, find, level_for, level_of};
use crate::classes::slices_of;
use crate::geometry::{CHUNK, PAGE, SLICE, SLICES};
use crate::locked::Locked;
use crate::map::{self, Range};
use crate::os;
use crate::run::RunPtr;

/// The dirty pages that are kept in any case: 1 MiB.
const DIRTY_MIN: usize = (1 << 20) / PAGE;
/// The dirty pages that are kept beyond that for each slice that is used: a sixteenth. A large
/// program would otherwise return memory that it needs again at once.
const DIRTY_PER_SLICE: usize = SLICE / PAGE / 16;
/// The size in which the base allocator maps memory, in bytes.
const BASE: usize = 64 << 10;
/// The alignment of what the base allocator returns: a cache line.
const BASE_ALIGNMENT: usize = 64;

/// Everything that the lock protects.
#[derive(Debug)]
pub(crate) struct Arena {
    room: [ChunkList; LEVELS],
    dirty_chunks: ChunkList,
    /// The address below the newest chunk, where the next one is tried.
    hint: usize,
    pub(crate) chunks: usize,
    pub(crate) slices_used: usize,
    pub(crate) pages_dirty: usize,
    /// The rest of the base allocator's newest mapping.
    base: *mut u8,
    base_left: usize,
    /// The bytes that the base allocator has mapped.
    pub(crate) base_bytes: usize,
    /// The number of times that dirty slices were returned.
    pub(crate) purges: usize,
    /// The number of dirty pages that were returned, by purges and with whole chunks.
    pub(crate) pages_returned: usize,
}

/// The arena. It is locked last: nothing that is done with it takes another lock.
pub(crate) static ARENA: Locked<Arena> = Locked::new(Arena {
    room: [const { ChunkList::new(Link::Room) }; LEVELS],
    dirty_chunks: ChunkList::new(Link::Dirty),
    hint: 0,
    chunks: 0,
    slices_used: 0,
    pages_dirty: 0,
    base: ptr::null_mut(),
    base_left: 0,
    base_bytes: 0,
    purges: 0,
    pages_returned: 0,
});

/// Takes a run of `count` slices, which is the number of a class. If pages of it may have content,
/// the metadata of the first slice says so. `None` if there is no memory.
pub(crate) fn take(count: usize) -> Option<RunPtr> {
    ARENA.with(|arena| {
        let chunk = arena.chunk_with_room(count)?;
        let dirty = if count == 1 { find(chunk.dirty.get(), 1) } else { None };
        let first = dirty.or_else(|| find(chunk.free.get(), count))?;
        let touched = (first..first + count).map(|slice| chunk.run(slice).touched()).max();
        arena.use_slices(chunk, bits(first, count));
        chunk.run(first).set_touched(touched.unwrap_or(0));
        Some(chunk.run(first))
    })
}

/// Takes the slices behind a run of `old` slices, so that it has `new`. False if they are not free.
pub(crate) fn extend(run: RunPtr, old: usize, new: usize) -> bool {
    let chunk = ChunkPtr::of(run);
    let end = slice_of(run) + old;
    if end + (new - old) > SLICES + 1 {
        return false;
    }
    ARENA.with(|arena| {
        let more = bits(end, new - old);
        let is_free = chunk.free.get() & more == more;
        if is_free {
            arena.use_slices(chunk, more);
        }
        is_free
    })
}

/// Gives the slices of a run back, from number `from` of the run on.
pub(crate) fn give_back(run: RunPtr, from: usize, count: usize) {
    let (chunk, first) = (ChunkPtr::of(run), slice_of(run) + from);
    let pages = if count == 1 && from == 0 { run.pages() } else { SLICE / PAGE };
    let is_too_much = ARENA.with(|arena| {
        arena.slices_used -= count;
        for slice in first..first + count {
            chunk.run(slice).set_touched(pages);
            arena.pages_dirty += pages;
        }
        arena.free_slices(chunk, bits(first, count), true);
        arena.pages_dirty > arena.dirty_max()
    });
    if is_too_much {
        purge(|arena| arena.dirty_max() / 2);
    }
}

fn slice_of(run: RunPtr) -> usize {
    (run.start().addr() % CHUNK) / SLICE
}

/// Returns the memory of dirty slices to the system until there are no more than `limit` says.
pub(crate) fn purge(limit: impl Fn(&Arena) -> usize) {
    loop {
        // The slices count as used while the system takes their memory, without the lock.
        let Some((chunk, slices)) = ARENA.with(|arena| arena.take_dirty(limit(arena))) else { return };
        let (mut rest, mut refused) = (slices, 0);
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let count = (rest >> first).trailing_ones() as usize;
            // SAFETY: `discard` demands whole pages of ours without content: slices that are free,
            // and that nobody else takes because they count as used.
            if !unsafe { os::discard(chunk.slice(first), count * SLICE) } {
                refused |= bits(first, count);
            }
            rest &= !bits(first, count);
        }
        ARENA.with(|arena| {
            arena.purges += 1;
            arena.slices_used -= slices.count_ones() as usize;
            for slice in (1..=SLICES).filter(|slice| slices & bits(*slice, 1) != 0) {
                let pages = chunk.run(slice).touched();
                if refused & bits(slice, 1) != 0 {
                    arena.pages_dirty += pages;
                } else {
                    chunk.run(slice).set_touched(0);
                    arena.pages_returned += pages;
                }
            }
            if refused != 0 {
                arena.free_slices(chunk, refused, true);
            }
            if slices != refused {
                arena.free_slices(chunk, slices & !refused, false);
            }
        });
        if refused != 0 {
            return;
        }
    }
}

impl Arena {
    /// Returns the number of dirty pages above which memory is returned to the system.
    fn dirty_max(&self) -> usize {
        DIRTY_MIN + self.slices_used * DIRTY_PER_SLICE
    }

    fn chunk_with_room(&mut self, count: usize) -> Option<ChunkPtr> {
        let dirty = if count == 1 { self.dirty_chunks.first() } else { None };
        let levels = self.room.get(level_for(count)..).unwrap_or(&[]);
        dirty.or_else(|| levels.iter().find_map(ChunkList::first)).or_else(|| self.new_chunk())
    }

    fn new_chunk(&mut self) -> Option<ChunkPtr> {
        let start = os::map_aligned(CHUNK, CHUNK, self.hint);
        if start.is_null() {
            return None;
        }
        if !map::set(start.addr(), Some(Range::Chunk)) {
            // SAFETY: mapped just now, and nobody knows it.
            unsafe { os::unmap(start, CHUNK) };
            return None;
        }
        self.hint = start.addr().saturating_sub(CHUNK);
        self.chunks += 1;
        // SAFETY: `begin` demands an aligned chunk of zeroed memory; it is unmapped only by
        // `unmap_chunk`, when all of it is free.
        let chunk = unsafe { ChunkPtr::begin(start) };
        self.list(chunk);
        Some(chunk)
    }

    /// Returns the number of pages that may have memory in slices of a chunk.
    fn touched(chunk: ChunkPtr, slices: u64) -> usize {
        (1..=SLICES).filter(|slice| slices & bits(*slice, 1) != 0).map(|slice| chunk.run(slice).touched()).sum()
    }

    /// Marks free slices as used.
    fn use_slices(&mut self, chunk: ChunkPtr, slices: u64) {
        let dirty = chunk.dirty.get() & slices;
        if dirty != 0 {
            self.pages_dirty -= Arena::touched(chunk, dirty);
        }
        self.slices_used += slices.count_ones() as usize;
        chunk.dirty.set(chunk.dirty.get() & !slices);
        chunk.free.set(chunk.free.get() & !slices);
        self.list(chunk);
    }

    /// Marks slices as free. A chunk that is free as a whole is unmapped if there is another.
    fn free_slices(&mut self, chunk: ChunkPtr, slices: u64, are_dirty: bool) {
        chunk.free.set(chunk.free.get() | slices);
        if are_dirty {
            chunk.dirty.set(chunk.dirty.get() | slices);
        }
        self.list(chunk);
        let free = &self.room[LEVELS - 1];
        if chunk.free.get() == ALL && free.first() != free.last() {
            self.unmap_chunk(chunk);
        }
    }

    fn unmap_chunk(&mut self, chunk: ChunkPtr) {
        let pages = Arena::touched(chunk, chunk.dirty.get());
        self.pages_dirty -= pages;
        self.pages_returned += pages;
        chunk.dirty.set(0);
        chunk.free.set(0);
        self.list(chunk);
        let start = chunk.start();
        map::set(start.addr(), None);
        self.chunks -= 1;
        self.hint = start.addr();
        // SAFETY: `unmap` demands memory that nobody uses: every slice is free, and no list has the
        // chunk.
        unsafe { os::unmap(start, CHUNK) };
    }

    /// Takes the dirty slices of the chunk that has been dirty for longest, if there are more than
    /// `limit` dirty pages in all.
    fn take_dirty(&mut self, limit: usize) -> Option<(ChunkPtr, u64)> {
        let chunk = if self.pages_dirty > limit { self.dirty_chunks.last() } else { None }?;
        let slices = chunk.dirty.get();
        self.use_slices(chunk, slices);
        Some((chunk, slices))
    }

    /// Puts a chunk into the lists that its slices say.
    fn list(&mut self, chunk: ChunkPtr) {
        let is_dirty = chunk.dirty.get() != 0;
        if is_dirty != ChunkList::holds_one_of(Link::Dirty, chunk) {
            if is_dirty { self.dirty_chunks.push_front(chunk) } else { self.dirty_chunks.unlink(chunk) }
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

    /// Returns zeroed memory for the allocator's own structures, which is never freed. Null if
    /// there is none.
    pub(crate) fn base(&mut self, size: usize) -> *mut u8 {
        let size = size.next_multiple_of(BASE_ALIGNMENT);
        if size > self.base_left {
            let length = size.max(BASE).next_multiple_of(PAGE);
            let start = os::map(length);
            if start.is_null() {
                return start;
            }
            (self.base, self.base_left) = (start, length);
            self.base_bytes += length;
        }
        let start = self.base;
        self.base = start.wrapping_add(size);
        self.base_left -= size;
        start
    }
}

/// Returns the slices that a run of a class is given back as.
pub(crate) fn give_back_run(run: RunPtr) {
    let count = slices_of(run.class());
    run.end();
    give_back(run, 0, count);
}
