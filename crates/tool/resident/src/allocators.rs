//! The heaps of other allocators than glibc's and Heapledger's, read from outside.
//!
//! No symbols are needed. Each allocator keeps a table of all its memory, which is found in the
//! writable data of the loaded files by its shape, and is then checked against itself: every
//! description of a piece of memory has to be where the table says. A layout that does not fit,
//! such as that of another version, is no heap at all.

mod by_page;
mod cache;
mod jemalloc;
mod mimalloc;
mod musl;
pub(crate) mod names;
mod tcmalloc;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

use crate::glibc::Piece;
use crate::memory::Memory;
use crate::pages::PresentPages;

pub(crate) use self::by_page::{AllocatorPages, GroupNumbers, OWN};

use self::by_page::PageFiller;
use self::cache::CachedReader;

/// The number of times that a description is read which makes no sense: it may just be changing.
const TRIES: usize = 6;

/// The number of descriptions without sense after which their share is looked at while a heap is
/// read: each is read several times.
const WRONG_TOLERATED: u64 = 1 << 7;
/// The most words that are looked at in search of a table of one allocator. Tables are mostly
/// zeroes, and so is other memory.
const WORDS_MAX: u64 = 1 << 24;

/// An allocator whose heap is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Allocator {
    /// jemalloc 5.3.
    Jemalloc,
    /// mimalloc 2 and 3.
    Mimalloc,
    /// The tcmalloc of gperftools.
    Tcmalloc,
    /// musl's malloc since 1.2.1.
    Musl,
}

impl Allocator {
    /// All of them.
    pub const ALL: [Allocator; 4] = [Allocator::Jemalloc, Allocator::Mimalloc, Allocator::Tcmalloc, Allocator::Musl];

    /// Returns the name in texts, such as `jemalloc`.
    pub fn name(self) -> &'static str {
        match self {
            Allocator::Jemalloc => "jemalloc",
            Allocator::Mimalloc => "mimalloc",
            Allocator::Tcmalloc => "tcmalloc",
            Allocator::Musl => "musl's malloc",
        }
    }
}

/// The heap of an allocator. All pieces are disjoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocatorHeap {
    /// The allocator.
    pub allocator: Allocator,
    /// The number of arenas, or of heaps of threads, that have memory.
    pub arenas: u64,
    /// The number of threads whose caches were found. If it is 0, cached blocks count as used.
    pub caches: u64,
    /// The blocks in use, by their usable sizes.
    pub used: Piece,
    /// The freed blocks that threads keep for themselves, and those that the allocator keeps for
    /// all of them in lists (counted by blocks).
    pub cached: Piece,
    /// The rest of the memory that is divided into blocks, and the padding of large blocks (counted
    /// by runs of blocks: slabs, pages or groups).
    pub free: Piece,
    /// Free pages that were used, and that the allocator keeps.
    pub dirty: Piece,
    /// Free pages that the system may take when it needs memory (`MADV_FREE`).
    pub lazy: Piece,
    /// Free addresses whose pages were given back to the system, or were never used.
    pub returned: Piece,
    /// The allocator's own descriptions.
    pub bookkeeping: Piece,
    /// Memory whose description makes no sense, because it changed at the same time or is damaged.
    pub unread: Piece,
    /// The addresses of all that, ascending and disjoint.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Its pages, if they were asked for.
    pub(crate) pages: Option<AllocatorPages>,
}

impl AllocatorHeap {
    fn new(allocator: Allocator) -> AllocatorHeap {
        let nothing = Piece::default();
        AllocatorHeap {
            allocator,
            arenas: 0,
            caches: 0,
            used: nothing,
            cached: nothing,
            free: nothing,
            dirty: nothing,
            lazy: nothing,
            returned: nothing,
            bookkeeping: nothing,
            unread: nothing,
            ranges: Vec::new(),
            pages: None,
        }
    }

    /// Returns the sum of the pieces in bytes, and how many of them are resident.
    pub fn total(&self) -> Piece {
        let mut total = Piece::default();
        let AllocatorHeap { used, cached, free, dirty, lazy, returned, bookkeeping, unread, .. } = *self;
        [used, cached, free, dirty, lazy, returned, bookkeeping, unread].into_iter().for_each(|p| total.add_all(p));
        total
    }

    /// Adds the private memory around a description to the bookkeeping, up to what is known, if
    /// that is at most `most` bytes.
    fn add_around(&mut self, search: &Search<'_>, by_page: &mut Option<PageFiller<'_>>, address: u64, most: u64) {
        let Some(mapping) = search.private_at(address) else { return };
        let next = self.ranges.partition_point(|range| range.end <= address);
        let start = next.checked_sub(1).map_or(0, |before| self.ranges[before].end).max(mapping.start);
        let end = self.ranges.get(next).map_or(u64::MAX, |range| range.start).min(mapping.end);
        if start <= address && address < end && end - start <= most {
            self.bookkeeping.add(end - start, search.resident(start..end));
            by_page.iter_mut().for_each(|filler| filler.add_own(start..end));
            self.ranges.insert(next, start..end);
        }
    }

    /// Adds a free range: the resident bytes are kept, and the rest was given back or never used.
    fn add_kept_or_returned(&mut self, search: &Search<'_>, range: Range<u64>) {
        let resident = search.resident(range.clone());
        let rest = range.end - range.start - resident;
        if resident > 0 {
            self.dirty.add(resident, resident);
        }
        if rest > 0 {
            self.returned.add(rest, 0);
        }
    }

    /// Moves blocks that are in a cache from those in use, of which there may be fewer: the caches
    /// are read later.
    fn move_to_cached(&mut self, cached: Piece) {
        let Piece { chunks, bytes, resident } = self.used;
        let cached = Piece {
            chunks: cached.chunks.min(chunks),
            bytes: cached.bytes.min(bytes),
            resident: cached.resident.min(resident),
        };
        self.used.subtract(cached);
        self.cached.add_all(cached);
    }
}

/// The parts of a process where heaps may be.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    pub(crate) memory: &'a dyn Memory,
    pub(crate) pages: &'a PresentPages,
    /// Writable data of programs and libraries, those that begin as zeroes included; ascending.
    pub(crate) data: &'a [Range<u64>],
    /// Writable private memory, ascending.
    pub(crate) private: &'a [Range<u64>],
    /// Private memory, also that may not be accessed; ascending, and no two ranges touch.
    pub(crate) spaces: &'a [Range<u64>],
    /// Set if a heap was found that contradicts itself: it was changing, or the lists of mappings
    /// and pages are too old.
    pub(crate) is_doubtful: &'a Cell<bool>,
    /// Set if the pages are to be filled with blocks. Then lists of free blocks are followed.
    pub(crate) by_page: bool,
}

impl<'a> Search<'a> {
    /// Returns the heaps of all allocators that are known.
    ///
    /// Takes time in proportion to the resident data of the program, and to the pages that have
    /// descriptions of the heaps.
    pub(crate) fn heaps(&self) -> Vec<AllocatorHeap> {
        let reader = &mut CachedReader::new(self.memory, self.pages);
        let mut heaps = jemalloc::find(self, reader);
        heaps.extend(mimalloc::find(self, reader));
        heaps.extend(tcmalloc::find(self, reader));
        heaps.extend(musl::find(self, reader));
        // Two layouts that claim the same memory contradict each other.
        let mut claimed: Vec<Range<u64>> = Vec::new();
        heaps.retain(|heap| {
            let overlaps = |range: &Range<u64>| {
                let next = claimed.get(claimed.partition_point(|other| other.end <= range.start));
                next.is_some_and(|next| next.start < range.end)
            };
            let is_alone = !heap.ranges.iter().any(overlaps);
            if is_alone {
                claimed.extend(heap.ranges.iter().cloned());
                claimed.sort_by_key(|range| range.start);
            }
            is_alone
        });
        heaps
    }

    /// Returns a filler of pages, if the pages are asked for.
    fn page_filler(&self) -> Option<PageFiller<'a>> {
        self.by_page.then(|| PageFiller::new(self.pages))
    }

    /// Returns the mapping of private memory that has an address.
    fn private_at(&self, address: u64) -> Option<&Range<u64>> {
        range_at(self.private, address)
    }

    /// True if all of a range is private memory, some of which may not be accessed.
    fn is_in_space(&self, range: &Range<u64>) -> bool {
        range_at(self.spaces, range.start).is_some_and(|space| range.end <= space.end)
    }

    /// Returns the resident bytes of a range.
    fn resident(&self, range: Range<u64>) -> u64 {
        self.pages.bytes_within(range)
    }

    /// Calls a function with the address and the contents of each part of the data that is
    /// resident, up to a limit of all bytes.
    fn for_each_data(&self, mut visit: impl FnMut(u64, &[u8])) {
        /// The most bytes that are searched, and the most that are read at once.
        const DATA_MAX: u64 = 256 << 20;
        const AT_ONCE: u64 = 1 << 20;
        let (mut searched, mut bytes) = (0_u64, Vec::new());
        for part in self.data.iter().flat_map(|data| self.pages.within(data.clone())) {
            let mut at = part.start;
            while at < part.end && searched < DATA_MAX {
                let length = (part.end - at).min(AT_ONCE);
                bytes.resize(length as usize, 0);
                if self.memory.read(at, &mut bytes).is_ok() {
                    visit(at, &bytes);
                }
                searched += length;
                at += length;
            }
        }
    }
}

/// Tables of one size, none of which shares memory with another one: all of them together are read
/// in time in proportion to their resident memory.
#[derive(Debug, Default)]
struct Tables(BTreeSet<u64>);

impl Tables {
    /// Adds a table of some bytes. False if it shares memory with one that was added before.
    fn add(&mut self, table: u64, bytes: u64) -> bool {
        let is_alone = self.0.range(table.saturating_sub(bytes - 1)..table.saturating_add(bytes)).next().is_none();
        is_alone && self.0.insert(table)
    }
}

/// Returns the range that has an address.
fn range_at(ranges: &[Range<u64>], address: u64) -> Option<&Range<u64>> {
    let next = ranges.get(ranges.partition_point(|range| range.end <= address))?;
    next.contains(&address).then_some(next)
}

/// Returns the words of 8 bytes with their addresses.
fn words(address: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or([0; 8])));
    (address..).step_by(8).zip(words)
}
