//! A chunk: 4 MiB, aligned, divided into slices. The first slice is the header, of which one page
//! is used: a line of metadata for the chunk and one for each other slice.

use core::cell::Cell;
use core::ops::Deref;
use core::ptr::{self, NonNull};

use crate::geometry::{CHUNK, PAGE, SLICE, SLICE_SHIFT};
use crate::os;
use crate::page::{self, page_size};
use crate::relaxed::RelaxedU64;
use crate::run::{RUN_SIZE, RunPtr};

/// The slices of a chunk that runs may use, as bits.
pub(crate) const ALL: u64 = !1;

/// The kinds of lists that a chunk may be in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    /// The chunks with free slices.
    Room = 0,
    /// The chunks with dirty slices.
    Dirty = 1,
}

/// The arena that has a chunk: this module only keeps its address.
#[derive(Debug)]
pub(crate) struct ChunkArena;

/// The metadata of a chunk. Everything is changed under the arena's lock. The arena is read without
/// it, and so is `is_guarded`: they do not change as long as the chunk is in the radix tree. So are
/// the free slices.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Chunk {
    /// The free slices.
    pub(crate) free: RelaxedU64,
    /// The free slices that have been used, so that they may have memory, and content.
    pub(crate) dirty: Cell<u64>,
    links: [[Cell<Option<ChunkPtr>>; 2]; 2],
    is_in: [Cell<bool>; 2],
    /// The list of chunks with room that it is in.
    pub(crate) level: Cell<u8>,
    /// True if pages beside the metadata, and one behind the chunk, are inaccessible. Set before
    /// readers without a lock can find the chunk.
    pub(crate) is_guarded: Cell<bool>,
    /// The second in which it got dirty slices, after having none, by `arena::clock`.
    pub(crate) dirty_since: Cell<u32>,
    arena: Cell<*const ChunkArena>,
}

const _: () = assert!(size_of::<Chunk>() <= RUN_SIZE, "it lies before the metadata of the slices");

/// The address of a chunk's metadata, which stays mapped while the address is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPtr(NonNull<Chunk>);

impl Deref for ChunkPtr {
    type Target = Chunk;

    fn deref(&self) -> &Chunk {
        // SAFETY: `as_ref` demands a valid `Chunk` that nobody has a unique reference to. The
        // address is that of mapped metadata, by the type's invariant; zeroed metadata is valid,
        // and all of its fields are cells, to which only shared references are made.
        unsafe { self.0.as_ref() }
    }
}

impl Chunk {
    /// The offset of the arena's address in bytes.
    pub(crate) const ARENA_OFFSET: u32 = core::mem::offset_of!(Chunk, arena) as u32;
}

impl ChunkPtr {
    /// Begins a chunk of an arena, whose slices are all free and clean. Its header is zeroed if the
    /// memory is not known to be.
    ///
    /// # Safety
    ///
    /// `start` is the address of [`CHUNK`] bytes of memory, aligned, that stay mapped while the
    /// chunk is used, and that nobody else uses. They are zero if `is_zero`.
    pub(crate) unsafe fn begin(start: *mut u8, is_zero: bool, arena: *const ChunkArena) -> ChunkPtr {
        // SAFETY: `of` demands a slice of a mapped chunk: see this function's `# Safety`.
        let chunk = ChunkPtr::of(unsafe { RunPtr::of(start) });
        if !is_zero {
            // SAFETY: `write_bytes` demands a page that may be written to: the header's is in the
            // first slice, and nobody else uses the chunk, by this function's `# Safety`.
            unsafe { chunk.0.as_ptr().cast::<u8>().write_bytes(0, PAGE) };
        }
        chunk.free.set(ALL);
        chunk.arena.set(arena);
        chunk
    }

    /// Returns the arena that has the chunk.
    pub(crate) fn arena(self) -> *const ChunkArena {
        self.arena.get()
    }

    /// Returns the chunk that begins at an address.
    ///
    /// # Safety
    ///
    /// It is the address of a chunk that stays mapped while the result is used.
    pub(crate) unsafe fn at(address: usize) -> ChunkPtr {
        // SAFETY: `RunPtr::of` demands the address of a slice of a mapped chunk, as the first one's
        // is, by this function's `# Safety`.
        ChunkPtr::of(unsafe { RunPtr::of(ptr::with_exposed_provenance_mut(address)) })
    }

    /// Makes the pages beside the metadata inaccessible: the rest of the first slice.
    pub(crate) fn guard(self) {
        let start = self.start();
        let front = page::down(self.0.as_ptr().addr() - start.addr());
        let behind = front + page_size();
        // SAFETY: `forbid` demands whole pages of ours that nobody uses: runs begin at the second
        // slice, and of the first one, only the page with the metadata is used. A slice is of whole
        // pages.
        unsafe {
            os::forbid(start, front);
            os::forbid(start.wrapping_add(behind), SLICE - behind);
        }
        self.is_guarded.set(true);
    }

    /// Returns the chunk that a run is in.
    pub(crate) fn of(run: RunPtr) -> ChunkPtr {
        const PAGE_OF_HEADER: usize = !0xFFF;
        let chunk = run.as_ptr().map_addr(|address| address & PAGE_OF_HEADER).cast();
        // SAFETY: `new_unchecked` demands an address other than 0: it is in a mapped chunk.
        ChunkPtr(unsafe { NonNull::new_unchecked(chunk) })
    }

    /// Returns the address at which the chunk begins.
    pub(crate) fn start(self) -> *mut u8 {
        self.0.as_ptr().map_addr(|address| address & !(CHUNK - 1)).cast()
    }

    /// Returns the address of a slice.
    pub(crate) fn slice(self, number: usize) -> *mut u8 {
        self.start().wrapping_add(number << SLICE_SHIFT)
    }

    /// Returns the run that begins at a slice.
    pub(crate) fn run(self, slice: usize) -> RunPtr {
        // SAFETY: a slice of a mapped chunk.
        unsafe { RunPtr::of(self.slice(slice)) }
    }
}

/// Returns `count` bits from bit `first` on.
pub(crate) fn bits(first: usize, count: usize) -> u64 {
    ((1 << count) - 1) << first
}

/// Returns the lowest of `count` bits in a row that are all set.
pub(crate) fn find(set: u64, count: usize) -> Option<usize> {
    let (mut rows, mut length) = (set, 1);
    while length < count {
        let step = length.min(count - length);
        rows &= rows >> step;
        length += step;
    }
    (rows != 0).then(|| rows.trailing_zeros() as usize)
}

/// The number of lists of chunks with room.
pub(crate) const LEVELS: usize = 6;

/// Returns the list that a chunk with these free slices belongs to: the logarithm of the longest
/// row of free slices, 4 at most, and 5 for a chunk that is free as a whole.
pub(crate) fn level_of(free: u64) -> Option<u8> {
    if free == ALL {
        return Some(LEVELS as u8 - 1);
    }
    let (mut rows, mut level) = (free, None);
    for longer in 0..=4_u8 {
        if rows == 0 {
            break;
        }
        level = Some(longer);
        rows &= rows >> (1 << longer);
    }
    level
}

/// Returns the lowest list whose chunks have `count` free slices in a row, if it has chunks.
pub(crate) fn level_for(count: usize) -> usize {
    count.next_power_of_two().trailing_zeros() as usize
}

/// A doubly linked list of chunks.
#[derive(Debug)]
pub(crate) struct ChunkList {
    link: Link,
    first: Option<ChunkPtr>,
    last: Option<ChunkPtr>,
}

impl ChunkList {
    pub(crate) const fn new(link: Link) -> ChunkList {
        ChunkList { link, first: None, last: None }
    }

    pub(crate) fn first(&self) -> Option<ChunkPtr> {
        self.first
    }

    pub(crate) fn last(&self) -> Option<ChunkPtr> {
        self.last
    }

    pub(crate) fn push_front(&mut self, chunk: ChunkPtr) {
        let [next, previous] = &chunk.links[self.link as usize];
        previous.set(None);
        next.set(self.first);
        match self.first {
            Some(second) => second.links[self.link as usize][1].set(Some(chunk)),
            None => self.last = Some(chunk),
        }
        self.first = Some(chunk);
        chunk.is_in[self.link as usize].set(true);
    }

    /// Removes a chunk, which is in this list.
    pub(crate) fn unlink(&mut self, chunk: ChunkPtr) {
        let (link, [next, previous]) = (self.link as usize, &chunk.links[self.link as usize]);
        match previous.get() {
            Some(before) => before.links[link][0].set(next.get()),
            None => self.first = next.get(),
        }
        match next.get() {
            Some(behind) => behind.links[link][1].set(previous.get()),
            None => self.last = previous.get(),
        }
        chunk.is_in[link].set(false);
    }

    /// True if the chunk is in a list of this kind.
    pub(crate) fn holds_one_of(link: Link, chunk: ChunkPtr) -> bool {
        chunk.is_in[link as usize].get()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
