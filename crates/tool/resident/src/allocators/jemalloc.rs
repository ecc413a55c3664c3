//! The heap of jemalloc 5.3.
//!
//! A radix tree (`rtree`) has the description (`edata_t`) of every extent: of those that are in use
//! and of the free ones. Its root of 2^18 words is in the allocator's data. A leaf has a word for
//! each page of 1 GiB. The descriptions, leaves and arenas are in blocks of their own (`base`).
//! Sources: `rtree.h`, `edata.h`, `base.h`, `cache_bin.h` and `tcache_structs.h` of jemalloc 5.3.0,
//! for addresses of 48 bits and pages of 4 KiB.

mod base;
mod edata;
mod sizes;

use std::collections::BTreeSet;
use std::ops::Range;

use super::by_page::PageFiller;
use super::{Allocator, AllocatorHeap, CachedReader, Search, TRIES, Tables, WORDS_MAX, WRONG_TOLERATED, words};
use crate::glibc::Piece;
use crate::pages::PAGE;

use self::edata::{Edata, State};

/// The entries of the root, and of a leaf.
const ENTRIES: u64 = 1 << 18;
const NODE_BYTES: u64 = ENTRIES * 8;
/// The addresses that a leaf is about.
const LEAF_SPAN: u64 = ENTRIES * PAGE;
/// The bits of an entry of a leaf that are the address of the description.
const EDATA_BITS: u64 = 0x0000_ffff_ffff_ff80;
/// The most trees of a process, and the most words that are tried as one's.
const TREES_MAX: usize = 16;
const TRIES_MAX: usize = 1 << 16;
/// A tree is none of this layout if more than one of so many descriptions makes no sense.
const WRONG_MAX: u64 = 64;

/// Returns the heaps of jemalloc in a process: a program and a library may have one each.
pub(super) fn find(search: &Search<'_>, reader: &mut CachedReader<'_>) -> Vec<AllocatorHeap> {
    let (mut roots, mut tries, mut words_left) = (BTreeSet::new(), 0, WORDS_MAX);
    search.for_each_data(|start, bytes| {
        for (at, leaf) in words(start, bytes) {
            let is_known =
                |roots: &BTreeSet<u64>| roots.range(..=at).next_back().is_some_and(|root| at - root < NODE_BYTES);
            let may_be_leaf = leaf != 0 && leaf % 64 == 0 && tries < TRIES_MAX && roots.len() < TREES_MAX;
            if !may_be_leaf || !is_leaf_inside(search, leaf) || is_known(&roots) {
                continue;
            }
            tries += 1;
            if let Some(number) = number_of_leaf(search, reader, leaf, &mut words_left) {
                roots.extend(at.checked_sub(8 * number).filter(|root| root % 8 == 0));
            }
        }
    });
    let heaps: Vec<AllocatorHeap> = roots.iter().filter_map(|&root| Heap::read(search, reader, root)).collect();
    if heaps.len() < roots.len() {
        search.is_doubtful.set(true);
    }
    heaps
}

/// True if there is private memory that has room for a leaf at an address.
fn is_leaf_inside(search: &Search<'_>, leaf: u64) -> bool {
    search.private_at(leaf).is_some_and(|range| range.end - leaf >= NODE_BYTES)
}

/// Returns the position in the root of the leaf at an address, by the first of its entries. `None`
/// if this is no leaf. `words_left` are the words that are looked at.
pub(super) fn number_of_leaf(
    search: &Search<'_>,
    reader: &mut CachedReader<'_>,
    leaf: u64,
    words_left: &mut u64,
) -> Option<u64> {
    /// The words that are looked at: those of 16 pages.
    const WORDS: usize = 16 * 512;
    let parts = search.pages.within(leaf..leaf + NODE_BYTES);
    let places = parts.flat_map(|part| (part.start.next_multiple_of(8)..part.end).step_by(8));
    for at in places.take(WORDS) {
        *words_left = words_left.checked_sub(1)?;
        // Entries of pages that are in no extent may have a class, but no address.
        let address = reader.word(at)? & EDATA_BITS;
        if address == 0 {
            continue;
        }
        let edata = Edata::read(reader, address)?;
        let number = edata.range.start / LEAF_SPAN;
        // The extent may go on in the next leaf.
        let page = |number: u64| number * LEAF_SPAN + (at - leaf) / 8 * PAGE;
        return (number..=number + 1).find(|&number| edata.range.contains(&page(number)) && number < ENTRIES);
    }
    None
}

/// A read in progress.
pub(super) struct Heap<'a, 'm> {
    search: &'a Search<'a>,
    reader: &'a mut CachedReader<'m>,
    heap: AllocatorHeap,
    by_page: Option<PageFiller<'a>>,
    arenas: BTreeSet<u32>,
    /// The descriptions that made sense, and those that did not.
    right: u64,
    wrong: u64,
    /// The end of the extent read last.
    end: u64,
    /// The addresses of 2 MiB that have descriptions or leaves.
    base_places: BTreeSet<u64>,
}

impl<'a, 'm> Heap<'a, 'm> {
    /// Reads the heap whose root is at an address. `None` if it makes no sense.
    pub(super) fn read(search: &'a Search<'a>, reader: &'a mut CachedReader<'m>, root: u64) -> Option<AllocatorHeap> {
        let mut heap = Heap {
            search,
            reader,
            heap: AllocatorHeap::new(Allocator::Jemalloc),
            by_page: search.page_filler(),
            arenas: BTreeSet::new(),
            right: 0,
            wrong: 0,
            end: 0,
            base_places: BTreeSet::new(),
        };
        let mut children = Vec::new();
        for (at, bytes) in resident_parts(search, root..root.checked_add(NODE_BYTES)?) {
            children.extend(words(at, &bytes).filter(|(_, leaf)| *leaf != 0));
        }
        let mut leaves = Tables::default();
        for (at, leaf) in children {
            if leaf % 64 != 0 || !is_leaf_inside(search, leaf) || !leaves.add(leaf, NODE_BYTES) {
                return None;
            }
            heap.base_places.insert(leaf / base::ALIGNMENT);
            heap.read_leaf((at - root) / 8 * LEAF_SPAN, leaf)?;
        }
        if heap.right == 0 || heap.is_wrong() {
            return None;
        }
        heap.finish()
    }

    /// True if too many descriptions make no sense.
    fn is_wrong(&self) -> bool {
        self.wrong * WRONG_MAX > self.right + self.wrong
    }

    /// Reads the extents that a leaf has, whose first address is given. `None` if too many of them
    /// make no sense.
    fn read_leaf(&mut self, first: u64, leaf: u64) -> Option<()> {
        for (at, bytes) in resident_parts(self.search, leaf..leaf + NODE_BYTES) {
            let entries = words(at, &bytes).filter(|(_, entry)| entry & EDATA_BITS != 0);
            for (at, entry) in entries {
                let page = first + (at - leaf) / 8 * PAGE;
                // Another page of the extent read last.
                if page < self.end {
                    continue;
                }
                match self.edata_of(page, at, entry & EDATA_BITS) {
                    Some((address, edata)) => {
                        self.right += 1;
                        self.base_places.insert(address / base::ALIGNMENT);
                        self.add(&edata);
                    }
                    None => self.wrong += 1,
                }
                if self.wrong > WRONG_TOLERATED && self.is_wrong() {
                    return None;
                }
            }
        }
        Some(())
    }

    /// Returns the description that the entry at a place has of an extent that begins with a page.
    /// Another thread may just change both.
    fn edata_of(&mut self, page: u64, place: u64, mut address: u64) -> Option<(u64, Edata)> {
        for _ in 0..TRIES {
            let edata = Edata::read(self.reader, address).filter(|edata| edata.range.start == page);
            // Addresses that were given back may be out of access.
            if let Some(edata) = edata.filter(|edata| self.search.is_in_space(&edata.range)) {
                return Some((address, edata));
            }
            [place, address].into_iter().for_each(|at| self.reader.forget(at));
            address = self.reader.word(place)? & EDATA_BITS;
        }
        None
    }

    fn add(&mut self, edata: &Edata) {
        let range = edata.range.clone();
        self.end = range.end;
        let (bytes, resident) = (range.end - range.start, self.search.resident(range.clone()));
        let whole = Piece { chunks: 1, bytes, resident };
        if let Some(filler) = &mut self.by_page {
            filler.group(range.clone(), edata.arena.into());
            edata.for_each_used(|block| filler.add(block));
        }
        let heap = &mut self.heap;
        match edata.state {
            State::Active => {
                self.arenas.insert(edata.arena);
                let used = edata.used(resident, |range| self.search.resident(range));
                let rest = Piece { chunks: 1, bytes: bytes - used.bytes, resident: resident - used.resident };
                heap.used.add_all(used);
                if rest.bytes > 0 {
                    heap.free.add_all(rest);
                }
            }
            State::Dirty | State::Changing => heap.dirty.add_all(whole),
            State::Muzzy => heap.lazy.add_all(whole),
            State::Retained => heap.returned.add_all(whole),
        }
        match heap.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => heap.ranges.push(range),
        }
    }

    /// Adds the blocks with the allocator's own memory, and the caches of threads.
    fn finish(mut self) -> Option<AllocatorHeap> {
        let blocks = base::blocks(self.search, self.reader, &self.base_places, &self.heap.ranges);
        let caches = base::caches(self.search, self.reader, &blocks);
        let is_own = |address: u64| {
            let ranges = &self.heap.ranges;
            ranges
                .get(ranges.partition_point(|range| range.end <= address))
                .is_some_and(|range| range.contains(&address))
        };
        let mut cached = Piece::default();
        for (&address, &size) in caches.blocks.iter().filter(|(address, _)| is_own(**address)) {
            cached.add(size, self.search.resident(address..address + size));
            self.by_page.iter_mut().for_each(|filler| filler.remove(address..address + size));
        }
        self.heap.move_to_cached(cached);
        self.heap.caches = caches.count;
        for block in blocks {
            let (bytes, resident) = (block.end - block.start, self.search.resident(block.clone()));
            self.heap.bookkeeping.add(bytes, resident);
            self.by_page.iter_mut().for_each(|filler| filler.add_own(block.clone()));
            self.heap.ranges.push(block);
        }
        self.heap.ranges.sort_by_key(|range| range.start);
        // Blocks with the allocator's own memory have no descriptions in the tree.
        let is_disjoint = self.heap.ranges.windows(2).all(|pair| pair[0].end <= pair[1].start);
        self.heap.arenas = self.arenas.len() as u64;
        self.heap.pages = self.by_page.map(PageFiller::finish);
        is_disjoint.then_some(self.heap)
    }
}

/// Returns the contents of the resident pages of a range, all at once: callers give 2 MiB at most.
fn resident_parts(search: &Search<'_>, range: Range<u64>) -> Vec<(u64, Vec<u8>)> {
    let mut parts = Vec::new();
    for part in search.pages.within(range) {
        let start = part.start.next_multiple_of(8);
        let mut bytes = vec![0; part.end.saturating_sub(start) as usize];
        if search.memory.read(start, &mut bytes).is_ok() {
            parts.push((start, bytes));
        }
    }
    parts
}
