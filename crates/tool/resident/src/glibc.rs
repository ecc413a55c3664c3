//! The heap of glibc's malloc, walked from outside: its arenas, chunks and caches.
//!
//! No symbols are needed: the description of the main arena, `struct malloc_state`, is found by its
//! free lists, which point to themselves where they are empty. It leads to all other arenas.
//! Sources: glibc's `malloc/malloc.c` and `malloc/arena.c`, of the versions 2.26 to 2.41.

mod caches;
mod mapped;
mod segments;
mod state;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::Range;
use std::time::Duration;

use crate::fill::{Fills, PageFill};
use crate::heap_pages::{HeapPage, PageUse};
use crate::memory::Memory;
use crate::pages::PresentPages;
use crate::reader::WordReader;

use self::caches::Caches;
use self::segments::Plan;
use self::state::ArenaState;
use self::walk::{Extent, Walked};

/// The number of times that a heap is read anew because it has changed meanwhile.
const TRIES: usize = 5;

/// An amount of memory of a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// The number of chunks, or of blocks.
    pub chunks: u64,
    /// Their bytes. In glibc's heap, with the 8 bytes in front of each that belong to the
    /// allocator.
    pub bytes: u64,
    /// The bytes of these that are resident.
    pub resident: u64,
}

impl Piece {
    pub(crate) fn add(&mut self, bytes: u64, resident: u64) {
        self.add_all(Piece { chunks: 1, bytes, resident });
    }

    pub(crate) fn add_all(&mut self, other: Piece) {
        self.chunks = self.chunks.saturating_add(other.chunks);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.resident = self.resident.saturating_add(other.resident);
    }

    pub(crate) fn subtract(&mut self, other: Piece) {
        self.chunks = self.chunks.saturating_sub(other.chunks);
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.resident = self.resident.saturating_sub(other.resident);
    }
}

/// An arena of glibc's malloc.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GlibcArena {
    /// The address of its `struct malloc_state`.
    pub address: u64,
    /// True for the main arena, which has the brk heap.
    pub is_main: bool,
    /// The number of its heaps: pieces of address space of 64 MiB. The main arena has one.
    pub heaps: u32,
    /// The chunks in use.
    pub used: Piece,
    /// The freed chunks that threads keep for themselves (tcache).
    pub cached: Piece,
    /// The freed chunks that are kept apart by their size (fastbins).
    pub fast: Piece,
    /// All other freed chunks (bins).
    pub free: Piece,
    /// The end of the heap, from which new chunks are cut.
    pub top: Piece,
    /// Descriptions of the arena, its heaps and the caches of threads.
    pub bookkeeping: Piece,
    /// Memory that could not be walked, because it changed at the same time or is damaged.
    pub unread: Piece,
    /// The resident bytes that `malloc_trim(0)` would give back: whole pages of freed chunks in
    /// bins and, of the main arena, of its end. It may give back a little more, since it merges the
    /// chunks of fastbins with their neighbours first.
    pub trimmable: u64,
}

impl GlibcArena {
    /// Returns the bytes that the arena has from the system.
    pub fn system_bytes(&self) -> u64 {
        self.pieces().iter().map(|piece| piece.bytes).fold(0, u64::saturating_add)
    }

    /// Returns a name such as `the main arena` or `arena at 0x7f0004000030`.
    pub(crate) fn name(&self) -> String {
        if self.is_main { "the main arena".to_owned() } else { format!("arena at {:#x}", self.address) }
    }

    pub(crate) fn pieces(&self) -> [Piece; 7] {
        let GlibcArena { used, cached, fast, free, top, bookkeeping, unread, .. } = *self;
        [used, cached, fast, free, top, bookkeeping, unread]
    }
}

/// The memory of glibc's malloc.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GlibcHeap {
    /// The arenas; a main arena comes first.
    pub arenas: Vec<GlibcArena>,
    /// The blocks with a mapping of their own (`mmap`).
    pub mapped: Piece,
    /// The resident pages of the heaps, by what keeps them.
    pub page_use: PageUse,
    /// The number of threads whose caches were found. If it is 0, cached chunks count as used.
    pub caches: u64,
    /// The addresses of all that, ascending.
    pub(crate) ranges: Vec<Range<u64>>,
    /// The pages of the heaps, by arena and by address.
    pub(crate) fills: Vec<HeapFills>,
    /// The addresses of blocks with a mapping of their own, ascending.
    pub(crate) mapped_ranges: Vec<Range<u64>>,
}

/// The resident pages of a heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeapFills {
    /// The index of the arena.
    pub(crate) arena: usize,
    /// The addresses that were walked.
    pub(crate) known: Range<u64>,
    pub(crate) fills: Fills,
}

/// The parts of a process where the heap may be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// The brk heap; empty if there is none.
    pub(crate) brk: Range<u64>,
    /// Writable data of programs and libraries, where descriptions of main arenas may be.
    pub(crate) data: Vec<Range<u64>>,
    /// Private memory, ascending.
    pub(crate) anonymous: Vec<Range<u64>>,
}

impl GlibcHeap {
    /// Reads the heap of a process. `None` if it has none of glibc.
    ///
    /// Takes time in proportion to the resident pages that have the beginning of a chunk, which are
    /// read. Adds the processor time of threads that have helped to `helped`.
    pub(crate) fn read(
        memory: &dyn Memory,
        pages: &PresentPages,
        places: &Places,
        helped: &mut Duration,
    ) -> Option<GlibcHeap> {
        GlibcHeap::read_by(memory, pages, places, Plan::default(), helped)
    }

    fn read_by(
        memory: &dyn Memory,
        pages: &PresentPages,
        places: &Places,
        plan: Plan,
        helped: &mut Duration,
    ) -> Option<GlibcHeap> {
        let mut reader = WordReader::new(memory, pages);
        let states = state::find(memory, pages, &mut reader, places);
        if states.is_empty() {
            return None;
        }
        let mut heap = GlibcHeap::default();
        let mut walker = Walker { memory, pages, reader, places, plan };
        let walked = walker.heaps(&states, helped);
        let mut caches = Caches::default();
        for &candidate in walked.iter().flatten().flat_map(|walked| &walked.caches) {
            caches.add_candidate(candidate);
        }
        let ranges = walked.iter().flatten().map(|walked| walked.range.clone());
        heap.ranges = ranges.collect();
        heap.ranges.sort_by_key(|range| range.start);
        let cached = caches.read(&mut walker.reader, &heap.ranges);
        heap.caches = cached.owners.len() as u64;
        for (state, walked) in states.iter().zip(walked) {
            walker.add_arena(state, walked, &cached, &mut heap);
        }
        let (mapped, ranges) = mapped::find(&mut walker.reader, pages, &places.anonymous, &heap.ranges);
        heap.mapped = mapped;
        heap.ranges.extend(ranges.iter().cloned());
        heap.mapped_ranges = ranges;
        heap.ranges.sort_by_key(|range| range.start);
        Some(heap)
    }

    /// Returns the sums over all arenas.
    pub fn total(&self) -> GlibcArena {
        let mut total = GlibcArena::default();
        for arena in &self.arenas {
            total.heaps += arena.heaps;
            total.used.add_all(arena.used);
            total.cached.add_all(arena.cached);
            total.fast.add_all(arena.fast);
            total.free.add_all(arena.free);
            total.top.add_all(arena.top);
            total.bookkeeping.add_all(arena.bookkeeping);
            total.unread.add_all(arena.unread);
            total.trimmable = total.trimmable.saturating_add(arena.trimmable);
        }
        total
    }
}

/// A read in progress.
struct Walker<'m, 'p> {
    memory: &'m dyn Memory,
    pages: &'m PresentPages,
    reader: WordReader<'m>,
    places: &'p Places,
    plan: Plan,
}

impl Walker<'_, '_> {
    /// Walks the heaps of all arenas. Those of an arena that changes meanwhile are read anew.
    fn heaps(&mut self, states: &[ArenaState], helped: &mut Duration) -> Vec<Vec<Walked>> {
        let mut walked: Vec<Vec<Walked>> = vec![Vec::new(); states.len()];
        let mut unread: Vec<usize> = (0..states.len()).collect();
        for _ in 0..TRIES {
            self.reader.forget();
            let mut extents: Vec<(usize, Extent)> = Vec::new();
            for &arena in &unread {
                let state = states[arena].read_again(&mut self.reader);
                let heaps = state.extents(&mut self.reader, &self.places.brk);
                extents.extend(heaps.into_iter().map(|extent| (arena, extent)));
                walked[arena].clear();
            }
            let heaps = segments::walk_all(self.memory, self.pages, &extents, self.plan, helped);
            for ((arena, _), heap) in extents.iter().zip(heaps) {
                walked[*arena].push(heap);
            }
            unread.retain(|&arena| walked[arena].iter().any(|walked| walked.unread.bytes > 0));
            if unread.is_empty() {
                break;
            }
        }
        walked
    }

    /// Adds the sums of an arena whose heaps were walked.
    fn add_arena(&mut self, state: &ArenaState, walked: Vec<Walked>, cached: &caches::Cached, heap: &mut GlibcHeap) {
        let mut arena = GlibcArena {
            address: state.address,
            is_main: state.is_main,
            heaps: walked.len() as u32,
            ..GlibcArena::default()
        };
        let mut to_bookkeeping = Piece::default();
        let ranges: Vec<Range<u64>> = walked.iter().map(|walked| walked.range.start..walked.end).collect();
        let fast = caches::fast_chunks(&mut self.reader, state.top_field, &ranges);
        for &(chunk, size) in &fast {
            arena.fast.add(size, self.pages.bytes_within(chunk..chunk + size));
        }
        for mut walked in walked {
            arena.used.add_all(walked.used);
            arena.free.add_all(walked.free);
            arena.top.add_all(walked.top);
            arena.bookkeeping.add_all(walked.bookkeeping);
            arena.unread.add_all(walked.unread);
            arena.trimmable = arena.trimmable.saturating_add(walked.trimmable);
            let known = walked.range.start..walked.end;
            for (&chunk, &size) in cached.within(&known) {
                arena.cached.add(size, self.pages.bytes_within(chunk..chunk + size));
                walked.fills.remove(self.pages, chunk..chunk + size);
            }
            for &(chunk, size) in fast.iter().filter(|(chunk, _)| known.contains(chunk)) {
                walked.fills.remove(self.pages, chunk..chunk + size);
            }
            for &(chunk, size) in cached.owners.iter().filter(|(chunk, _)| known.contains(chunk)) {
                to_bookkeeping.add(size, self.pages.bytes_within(chunk..chunk + size));
            }
            for (address, fill) in walked.fills.within(self.pages, known.clone()) {
                let PageFill { used, chunks: blocks } = fill;
                heap.page_use.add(&HeapPage { address, group: 0, used, blocks });
            }
            heap.fills.push(HeapFills { arena: heap.arenas.len(), known, fills: walked.fills });
        }
        // The heap's own marks say that all of these are in use.
        [arena.cached, arena.fast, to_bookkeeping].into_iter().for_each(|piece| arena.used.subtract(piece));
        arena.bookkeeping.add_all(to_bookkeeping);
        heap.arenas.push(arena);
    }
}
