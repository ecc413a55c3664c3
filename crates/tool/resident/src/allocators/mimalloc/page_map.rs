//! The heap of mimalloc 3.
//!
//! A page map has, for each slice of 64 KiB, the address of the description of the page that has
//! the slice. A page has blocks of one size. The map has two levels; the allocator's data have the
//! address of the first. Most pages are in arenas: ranges that begin with a description. Sources:
//! `include/mimalloc/types.h`, `include/mimalloc/internal.h` and `src/page-map.c` of mimalloc 3.1.5
//! and 3.3.2.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::by_page::{PageFiller, Slots};
use super::super::{
    Allocator, AllocatorHeap, CachedReader, LISTED_BY_PAGE_MAX, Search, TRIES, Tables, WORDS_MAX, words,
};
use super::SLICE;
use crate::glibc::Piece;

/// The entries of the first level, if addresses have 47 bits, and of a table of the second.
const TABLES: u64 = 1 << 18;
const ENTRIES: u64 = 1 << 13;
const TABLE_BYTES: u64 = ENTRIES * 8;
/// The most slices before that with the first block: those of a block that is aligned.
const SLICES_BEFORE: u64 = 1 << 14;
/// The most words that are tried as the address of the first level.
const TRIES_MAX: usize = 1 << 16;
/// The words of a first level that are looked at in a try.
const WORDS_AT_ONCE: usize = 16 * 512;
/// The most ranges of slices that have a page: of a heap of 256 GiB, if each has one slice.
const PAGES_MAX: usize = 1 << 22;
/// The most blocks of lists that are followed.
const LISTED_MAX: u64 = 1 << 22;
/// A page map is none of this layout if more than one of so many descriptions makes no sense.
const WRONG_MAX: u64 = 64;
/// The most slices of an arena, and the least.
const ARENA_SLICES: std::ops::RangeInclusive<u64> = 512..=1 << 22;

/// Returns the heap of mimalloc 3 in a process.
pub(in super::super) fn find(search: &Search<'_>, reader: &mut CachedReader<'_>) -> Option<AllocatorHeap> {
    let (mut map, mut tries, mut words_left) = (None, 0, WORDS_MAX);
    search.for_each_data(|start, bytes| {
        for (_, address) in words(start, bytes).filter(|(_, word)| *word != 0 && word % 8 == 0) {
            if map.is_none() && tries < TRIES_MAX && search.private_at(address).is_some() {
                tries += 1;
                map = Some(address).filter(|_| first_page(search, reader, address, &mut words_left).is_some());
            }
        }
    });
    // A page that was given back since the map was read has no description: all is read anew.
    let map = map?;
    let heap = (0..TRIES).find_map(|_| {
        reader.forget_all();
        Heap::read(search, reader, map)
    });
    if heap.is_none() {
        search.is_doubtful.set(true);
    }
    heap
}

/// Returns the first page of the page map at an address. `None` if there is no page map.
/// `words_left` are the words that are looked at.
pub(in super::super) fn first_page(
    search: &Search<'_>,
    reader: &mut CachedReader<'_>,
    map: u64,
    words_left: &mut u64,
) -> Option<Page> {
    let parts = search.pages.within(map..map.saturating_add(TABLES * 8));
    let places = parts.flat_map(|part| (part.start.next_multiple_of(8)..part.end).step_by(8));
    // The first table has an entry for null.
    for at in places.skip_while(|at| *at == map).take(WORDS_AT_ONCE) {
        *words_left = words_left.checked_sub(1)?;
        let table = match reader.word(at) {
            Some(0) => continue,
            Some(table) if table % 8 == 0 && search.private_at(table).is_some() => table,
            _ => return None,
        };
        let entries = search.pages.within(table..table.saturating_add(TABLE_BYTES));
        for entry in entries.flat_map(|part| (part.start.next_multiple_of(8)..part.end).step_by(8)) {
            *words_left = words_left.checked_sub(1)?;
            let Some(page) = reader.word(entry).filter(|page| *page != 0) else { continue };
            return Page::read(reader, page, (at - map) / 8 * ENTRIES + (entry - table) / 8);
        }
        return None;
    }
    None
}

/// A page: blocks of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Page {
    used: u64,
    capacity: u64,
    reserved: u64,
    block_size: u64,
    /// The address of the first block.
    start: u64,
    /// The two lists of free blocks of the thread that owns the page.
    free: [u64; 2],
    /// The list of blocks that other threads have freed.
    thread_free: u64,
    thread: u64,
}

impl Page {
    /// Reads a description, of which the first slice is known. `None` if it makes no sense.
    fn read(reader: &mut CachedReader<'_>, at: u64, slice: u64) -> Option<Page> {
        /// The lowest bits of the thread's number are flags.
        const FLAGS: u64 = 7;
        // The thread, a list, three numbers of 2 bytes, two lists, the size of a block, their
        // start.
        let [thread, free, counts, local_free, thread_free, block_size, start] = reader.words::<7>(at)?;
        let (used, capacity, reserved) = (counts & 0xffff, counts >> 16 & 0xffff, counts >> 32 & 0xffff);
        let slices = (start / SLICE).checked_sub(slice)?;
        let is_sound = used <= capacity && capacity <= reserved && reserved > 0 && block_size > 0;
        let page = Page {
            used,
            capacity,
            reserved,
            block_size,
            start,
            free: [free, local_free],
            thread_free: thread_free & !1,
            thread: thread & !FLAGS,
        };
        (is_sound && slices <= SLICES_BEFORE && block_size % 8 == 0).then_some(page)
    }
}

/// A read in progress.
struct Heap<'a, 'm> {
    search: &'a Search<'a>,
    reader: &'a mut CachedReader<'m>,
    heap: AllocatorHeap,
    by_page: Option<PageFiller<'a>>,
    threads: BTreeSet<u64>,
    right: u64,
    wrong: u64,
    listed: u64,
    /// The number of blocks of lists that were followed to fill pages.
    listed_by_page: u64,
}

impl<'a, 'm> Heap<'a, 'm> {
    fn read(search: &'a Search<'a>, reader: &'a mut CachedReader<'m>, map: u64) -> Option<AllocatorHeap> {
        let heap = AllocatorHeap::new(Allocator::Mimalloc);
        let mut heap = Heap {
            search,
            reader,
            heap,
            by_page: search.page_filler(),
            threads: BTreeSet::new(),
            right: 0,
            wrong: 0,
            listed: 0,
            listed_by_page: 0,
        };
        for (page, slices) in heap.pages(map)? {
            let range = slices.start * SLICE..slices.end * SLICE;
            match Page::read(heap.reader, page, slices.start).filter(|_| search.is_in_space(&range)) {
                Some(page) => heap.add(&page, range),
                None => heap.wrong += 1,
            }
        }
        if heap.right == 0 || heap.wrong * WRONG_MAX > heap.right + heap.wrong {
            return None;
        }
        heap.add_arenas();
        heap.heap.arenas = heap.threads.len() as u64;
        heap.heap.caches = heap.heap.arenas.max(1);
        heap.heap.pages = heap.by_page.map(PageFiller::finish);
        Some(heap.heap)
    }

    /// Returns the addresses of the descriptions of pages, with the slices of each. `None` if there
    /// are more than any heap has.
    fn pages(&mut self, map: u64) -> Option<Vec<(u64, Range<u64>)>> {
        let mut tables = Tables::default();
        let mut pages: Vec<(u64, Range<u64>)> = Vec::new();
        for part in self.search.pages.within(map..map.saturating_add(TABLES * 8)) {
            for at in (part.start.next_multiple_of(8)..part.end).step_by(8) {
                let Some(table) = self.reader.word(at).filter(|table| *table != 0) else { continue };
                if !tables.add(table, TABLE_BYTES) {
                    continue;
                }
                let first = (at - map) / 8 * ENTRIES;
                for part in self.search.pages.within(table..table.saturating_add(TABLE_BYTES)) {
                    for at in (part.start.next_multiple_of(8)..part.end).step_by(8) {
                        let slice = first + (at - table) / 8;
                        let Some(page) = self.reader.word(at).filter(|page| *page != 0 && slice != 0) else { continue };
                        let is_full = pages.len() == PAGES_MAX;
                        match pages.last_mut() {
                            Some((last, slices)) if *last == page && slices.end == slice => slices.end = slice + 1,
                            _ if is_full => return None,
                            _ => pages.push((page, slice..slice + 1)),
                        }
                    }
                }
            }
        }
        Some(pages)
    }

    fn add(&mut self, page: &Page, range: Range<u64>) {
        self.right += 1;
        if page.thread != 0 {
            self.threads.insert(page.thread);
        }
        self.fill(page, &range);
        let freed = self.count_list(page.thread_free, &range, page.used);
        let (mut left, mut left_resident) = (range.end - range.start, self.search.resident(range.clone()));
        let heap = &mut self.heap;
        // Blocks that were used lie side by side, so their memory is resident first.
        for (count, to) in [(page.used - freed, &mut heap.used), (freed, &mut heap.cached)] {
            let bytes = count.saturating_mul(page.block_size).min(left);
            let resident = bytes.min(left_resident);
            to.add_all(Piece { chunks: count, bytes, resident });
            (left, left_resident) = (left - bytes, left_resident - resident);
        }
        if left > 0 {
            heap.free.add_all(Piece { chunks: 1, bytes: left, resident: left_resident });
        }
        heap.ranges.push(range);
    }

    /// Fills the pages of a page with its blocks. Those in its three lists are free.
    fn fill(&mut self, page: &Page, range: &Range<u64>) {
        let Some(filler) = &mut self.by_page else { return };
        filler.group(range.clone(), page.thread);
        let start = page.start.clamp(range.start, range.end);
        if page.reserved <= 1 {
            if page.used > 0 {
                filler.add(start..start.saturating_add(page.block_size).min(range.end));
            }
            return;
        }
        let mut slots = Slots::new(start, page.block_size, page.capacity, range.end);
        for first in [page.free[0], page.free[1], page.thread_free] {
            let mut at = first;
            while self.listed_by_page < LISTED_BY_PAGE_MAX && slots.set_free(at) {
                self.listed_by_page += 1;
                let Some(next) = self.reader.word(at) else { break };
                at = next;
            }
        }
        filler.add_slots(&slots);
    }

    /// Returns the number of blocks in a list, of which all are in a range and no more than `most`.
    fn count_list(&mut self, first: u64, range: &Range<u64>, most: u64) -> u64 {
        let (mut at, mut count) = (first, 0);
        while at != 0 && count < most && range.contains(&at) && self.listed < LISTED_MAX {
            (count, self.listed) = (count + 1, self.listed + 1);
            let Some(next) = self.reader.word(at) else { break };
            at = next;
        }
        count
    }

    /// Adds the rest of arenas: their descriptions, and slices that have no page.
    fn add_arenas(&mut self) {
        let (search, reader) = (self.search, &mut *self.reader);
        let mut arenas = BTreeMap::new();
        search.for_each_data(|start, bytes| {
            for (_, address) in words(start, bytes).filter(|(_, word)| *word != 0 && word % SLICE == 0) {
                if let Some((slices, own)) = arena(reader, address) {
                    let end = address.saturating_add(slices * SLICE);
                    if search.is_in_space(&(address..end)) {
                        arenas.insert(address, (end, address + own * SLICE));
                    }
                }
            }
        });
        let known = self.heap.ranges.clone();
        let mut last = 0;
        for (start, (end, own_end)) in arenas {
            if start < last {
                continue;
            }
            let first = known.partition_point(|range| range.end <= start);
            let inside: Vec<&Range<u64>> = known[first..].iter().take_while(|range| range.start < end).collect();
            if inside.first().is_none_or(|first| first.start < own_end) {
                continue;
            }
            last = end;
            self.heap.bookkeeping.add(own_end - start, search.resident(start..own_end));
            self.by_page.iter_mut().for_each(|filler| filler.add_own(start..own_end));
            self.heap.ranges.push(start..own_end);
            let mut at = own_end;
            for range in inside {
                self.add_free(at..range.start.max(at));
                at = at.max(range.end);
            }
            self.add_free(at.min(end)..end);
        }
        self.heap.ranges.sort_by_key(|range| range.start);
    }

    fn add_free(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.heap.add_kept_or_returned(self.search, range.clone());
        self.heap.ranges.push(range);
    }
}

/// Returns the number of slices of the arena that begins at an address, and of those that describe
/// it. `None` if there is none.
fn arena(reader: &mut CachedReader<'_>, at: u64) -> Option<(u64, u64)> {
    // Where the memory is from (3 words), the owner, since 3.2 a number, and the slices.
    let [_, _, _, owner, first, second, third] = reader.words::<7>(at)?;
    let is_sound = |slices: u64, own: u64| owner != 0 && ARENA_SLICES.contains(&slices) && (1..slices).contains(&own);
    [(first, second), (second, third)].into_iter().find(|&(slices, own)| is_sound(slices, own))
}
