//! The heap of mimalloc 3.
//!
//! A page map has, for each slice of 64 KiB, the address of the description of the page that has
//! the slice. A page has blocks of one size. The map has two levels; the allocator's data have the
//! address of the first. Most pages are in arenas: ranges that begin with a description. Sources:
//! `include/mimalloc/types.h`, `include/mimalloc/internal.h` and `src/page-map.c` of mimalloc 3.1.5
//! and 3.3.2.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use super::super::{AllocatorHeap, CachedReader, Search, TRIES, Tables, WORDS_MAX, WRONG_TOLERATED, words};
use super::SLICE;
use super::heap_reader::{HeapReader, PageBlocks};

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
const PAGES_MAX: u64 = 1 << 22;
/// A page map is none of this layout if more than one of so many descriptions makes no sense.
const WRONG_MAX: u64 = 64;
/// The words that a description without sense counts for: so many are read at once.
const WORDS_OF_WRONG: u64 = 2048;
/// The most slices of an arena, and the least.
const ARENA_SLICES: std::ops::RangeInclusive<u64> = 512..=1 << 22;

/// Returns the heap of mimalloc 3 in a process.
///
/// The first page of a map may make sense by chance. If the other pages do not, further addresses
/// are tried, until all tries have looked at [`WORDS_MAX`] words without a page.
pub(in super::super) fn find(search: &Search<'_>, reader: &mut CachedReader<'_>) -> Option<AllocatorHeap> {
    find_within(search, reader, &mut { WORDS_MAX })
}

/// Does the same with another limit, of which `words_left` are left at the end.
pub(in super::super) fn find_within(
    search: &Search<'_>,
    reader: &mut CachedReader<'_>,
    words_left: &mut u64,
) -> Option<AllocatorHeap> {
    let (mut heap, mut tried, mut is_doubtful) = (None, HashSet::new(), false);
    search.for_each_data(|start, bytes| {
        for (_, address) in words(start, bytes).filter(|(_, word)| *word != 0 && word % 8 == 0) {
            let may_be = heap.is_none() && *words_left > 0 && tried.len() < TRIES_MAX;
            if may_be && search.private_at(address).is_some() && tried.insert(address) {
                let is_map = first_page(search, reader, address, words_left).is_some();
                heap = Some(address).filter(|_| is_map).and_then(|map| read(search, reader, map, words_left));
                is_doubtful |= is_map;
            }
        }
    });
    if heap.is_none() && is_doubtful {
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
    blocks: PageBlocks,
    /// The thread that owns the page; 0 if none does.
    thread: u64,
}

impl Page {
    /// Reads a description, of which the first slice is known. `None` if it makes no sense.
    fn read(reader: &mut CachedReader<'_>, at: u64, slice: u64) -> Option<Page> {
        /// The lowest bits of the thread's number are flags.
        const FLAGS: u64 = 7;
        // The thread, a list, three numbers of 2 bytes, two lists, the size of a block, their
        // start.
        let [thread, free, counts, local_free, thread_free, size, start] = reader.words::<7>(at)?;
        let (used, capacity, reserved) = (counts & 0xffff, counts >> 16 & 0xffff, counts >> 32 & 0xffff);
        let slices = (start / SLICE).checked_sub(slice)?;
        let is_sound = used <= capacity && capacity <= reserved && reserved > 0 && size > 0;
        let (free, thread_free) = ([free, local_free], thread_free & !1);
        let blocks = PageBlocks { reserved, capacity, used, size, start, free, thread_free };
        let page = Page { blocks, thread: thread & !FLAGS };
        (is_sound && slices <= SLICES_BEFORE && size % 8 == 0).then_some(page)
    }
}

/// Reads the heap of a page map. `None` if it makes no sense; then `words_left` are fewer. A map
/// has half of them at most, so that large memory that looks like one does not hide the next.
fn read(search: &Search<'_>, reader: &mut CachedReader<'_>, map: u64, words_left: &mut u64) -> Option<AllocatorHeap> {
    let words_max = *words_left / 2;
    for _ in 0..TRIES {
        // A page that was given back since the map was read has no description: all is read anew.
        reader.forget_all();
        let mut heap = Heap::new(search, reader, words_max);
        if heap.read(map).is_some() {
            return Some(heap.finish());
        }
        let words = heap.words.saturating_add(heap.wrong * WORDS_OF_WRONG);
        *words_left = words_left.saturating_sub(words);
        // Changes make some pages wrong, but not most of them, and no other words.
        if heap.right == 0 || heap.right < heap.wrong || heap.words > words_max {
            break;
        }
    }
    None
}

/// A read in progress.
struct Heap<'a, 'm> {
    common: HeapReader<'a, 'm>,
    threads: BTreeSet<u64>,
    /// The numbers of pages whose description makes sense, and of others.
    right: u64,
    wrong: u64,
    /// The words of the map that lead to no page, and the most of them.
    words: u64,
    words_max: u64,
}

impl<'a, 'm> Heap<'a, 'm> {
    fn new(search: &'a Search<'a>, reader: &'a mut CachedReader<'m>, words_max: u64) -> Heap<'a, 'm> {
        let common = HeapReader::new(search, reader);
        Heap { common, threads: BTreeSet::new(), right: 0, wrong: 0, words: 0, words_max }
    }

    /// Reads all pages. `None` if too many of them make no sense, if there are more than any heap
    /// has, or if too many words lead to none.
    fn read(&mut self, map: u64) -> Option<()> {
        let search = self.common.search;
        let mut tables = Tables::default();
        // The description and the slices of the page that the last entry was of.
        let mut last = (0, 0..0);
        for part in search.pages.within(map..map.saturating_add(TABLES * 8)) {
            for at in (part.start.next_multiple_of(8)..part.end).step_by(8) {
                let table = self.common.reader.word(at).unwrap_or(0);
                if table == 0 || !tables.add(table, TABLE_BYTES) {
                    self.add_word()?;
                    continue;
                }
                let first = (at - map) / 8 * ENTRIES;
                for part in search.pages.within(table..table.saturating_add(TABLE_BYTES)) {
                    for at in (part.start.next_multiple_of(8)..part.end).step_by(8) {
                        let slice = first + (at - table) / 8;
                        let page = self.common.reader.word(at).unwrap_or(0);
                        if page == 0 || slice == 0 {
                            self.add_word()?;
                        } else if last.0 == page && last.1.end == slice {
                            last.1.end = slice + 1;
                        } else {
                            let (page, slices) = std::mem::replace(&mut last, (page, slice..slice + 1));
                            self.add_slices(page, slices)?;
                        }
                    }
                }
            }
        }
        self.add_slices(last.0, last.1)?;
        (self.right > 0 && !self.is_wrong()).then_some(())
    }

    /// Counts a word that leads to no page. `None` if there are too many.
    fn add_word(&mut self) -> Option<()> {
        self.words += 1;
        (self.words <= self.words_max).then_some(())
    }

    /// True if too many descriptions make no sense.
    fn is_wrong(&self) -> bool {
        self.wrong * WRONG_MAX > self.right + self.wrong
    }

    /// Adds the slices of a page whose description is at an address. `None` if too many make no
    /// sense.
    fn add_slices(&mut self, page: u64, slices: Range<u64>) -> Option<()> {
        if slices.is_empty() {
            return Some(());
        }
        let range = slices.start * SLICE..slices.end * SLICE;
        let is_there = self.common.search.is_in_space(&range);
        match Page::read(self.common.reader, page, slices.start).filter(|_| is_there) {
            Some(page) => self.add(&page, range),
            None => self.wrong += 1,
        }
        // A cluster of pages may be wrong if the map changes.
        let is_other_memory = self.wrong > WRONG_TOLERATED && self.wrong > self.right;
        (!is_other_memory && self.right + self.wrong <= PAGES_MAX).then_some(())
    }

    fn add(&mut self, page: &Page, range: Range<u64>) {
        self.right += 1;
        if page.thread != 0 {
            self.threads.insert(page.thread);
        }
        self.common.by_page.iter_mut().for_each(|filler| filler.group(range.clone(), page.thread));
        self.common.add_page(&range, &page.blocks);
        self.common.heap.ranges.push(range);
    }

    /// Adds the arenas, and returns the heap.
    fn finish(mut self) -> AllocatorHeap {
        self.add_arenas();
        let mut heap = self.common.finish();
        heap.arenas = self.threads.len() as u64;
        heap.caches = heap.arenas.max(1);
        heap
    }

    /// Adds the rest of arenas: their descriptions, and slices that have no page.
    fn add_arenas(&mut self) {
        let (search, reader) = (self.common.search, &mut *self.common.reader);
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
        let known = self.common.heap.ranges.clone();
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
            self.common.add_own(start..own_end, 1);
            self.common.heap.ranges.push(start..own_end);
            let mut at = own_end;
            for range in inside {
                self.common.add_free(at..range.start.max(at));
                at = at.max(range.end);
            }
            self.common.add_free(at.min(end)..end);
        }
        self.common.heap.ranges.sort_by_key(|range| range.start);
    }
}

/// Returns the number of slices of the arena that begins at an address, and of those that describe
/// it. `None` if there is none.
fn arena(reader: &mut CachedReader<'_>, at: u64) -> Option<(u64, u64)> {
    // The origin of the memory (3 words), the owner, since 3.2 a number, and the slices.
    let [_, _, _, owner, first, second, third] = reader.words::<7>(at)?;
    let is_sound = |slices: u64, own: u64| owner != 0 && ARENA_SLICES.contains(&slices) && (1..slices).contains(&own);
    [(first, second), (second, third)].into_iter().find(|&(slices, own)| is_sound(slices, own))
}
