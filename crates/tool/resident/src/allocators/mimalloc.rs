//! The heap of mimalloc 2, and in `page_map` that of mimalloc 3.
//!
//! Memory is in segments, which begin at multiples of 32 MiB. The beginning of a segment describes
//! its slices of 64 KiB. A run of slices is a page, with blocks of one size, or free. So a segment
//! is known by its own description: its runs of slices have to fill it, and all segments of a
//! process have the same cookie. Sources: `include/mimalloc/types.h` and `src/segment.c` of
//! mimalloc 2.0.9, 2.1.9, 2.2.4 and 2.3.2, without the checks of its secure and debug builds.

mod layout;
pub(super) mod page_map;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use super::by_page::{PageFiller, Slots};
use super::{Allocator, AllocatorHeap, CachedReader, LISTED_BY_PAGE_MAX, Search};
use crate::glibc::Piece;

use self::layout::{Found, Layout, PageUse, Segment, VERSIONS};

/// The alignment of segments, and the size of one that has no huge block.
const SEGMENT: u64 = 32 << 20;
const SLICE: u64 = 64 << 10;
/// The most bytes around the description of a thread's heap that are taken for its own.
const BOOKKEEPING_MAX: u64 = 1 << 20;
/// The most places that are looked at.
const PLACES_MAX: usize = 1 << 20;
/// The most blocks of lists that are followed.
const LISTED_MAX: usize = 1 << 22;

/// Returns the heap of mimalloc in a process.
pub(super) fn find(search: &Search<'_>, reader: &mut CachedReader<'_>) -> Vec<AllocatorHeap> {
    let heap = VERSIONS.iter().find_map(|layout| Heap::read(search, reader, layout));
    heap.or_else(|| page_map::find(search, reader)).into_iter().collect()
}

/// A read in progress.
struct Heap<'a, 'm> {
    search: &'a Search<'a>,
    reader: &'a mut CachedReader<'m>,
    layout: &'static Layout,
    heap: AllocatorHeap,
    by_page: Option<PageFiller<'a>>,
    /// The threads that own segments; 0 for segments that none owns.
    threads: BTreeSet<u64>,
    /// The descriptions of the heaps that pages belong to.
    heaps: BTreeSet<u64>,
    /// The pages in use: their ends and block sizes, by their beginnings.
    pages: BTreeMap<u64, (u64, u64)>,
    /// The number of blocks in lists so far.
    listed: usize,
    /// The number of those that were followed to fill pages.
    listed_by_page: u64,
}

impl<'a, 'm> Heap<'a, 'm> {
    /// Reads the heap. `None` if there are no segments of this layout.
    fn read(
        search: &'a Search<'a>,
        reader: &'a mut CachedReader<'m>,
        layout: &'static Layout,
    ) -> Option<AllocatorHeap> {
        let starts = search
            .private
            .iter()
            .flat_map(|range| (range.start.next_multiple_of(SEGMENT)..range.end).step_by(SEGMENT as usize));
        let mut segments: BTreeMap<u64, Vec<(u64, Segment)>> = BTreeMap::new();
        let mut doubtful: Vec<(u64, u64)> = Vec::new();
        let mut end = 0;
        for start in starts.take(PLACES_MAX) {
            // A segment with a huge block is longer.
            if start < end {
                continue;
            }
            let segment = match layout.segment_that_may_change(reader, start) {
                Found::Segment(segment) => segment,
                Found::Contradiction { cookie } => {
                    doubtful.push((start, cookie));
                    continue;
                }
                Found::Nothing => continue,
            };
            let range = start..start.saturating_add(segment.slices.saturating_mul(SLICE));
            // Slices that are not in use may be out of access.
            if search.is_in_space(&range) {
                end = range.end;
                segments.entry(segment.cookie ^ start).or_default().push((start, segment));
            } else {
                doubtful.push((start, segment.cookie));
            }
        }
        // Other memory that looks like a segment by chance has another cookie.
        let (key, segments) = segments.into_iter().max_by_key(|(_, segments)| segments.len())?;
        doubtful.retain(|(start, cookie)| cookie ^ start == key);
        let mut heap = Heap {
            search,
            reader,
            layout,
            heap: AllocatorHeap::new(Allocator::Mimalloc),
            by_page: search.page_filler(),
            threads: BTreeSet::new(),
            heaps: BTreeSet::new(),
            pages: BTreeMap::new(),
            listed: 0,
            listed_by_page: 0,
        };
        for (start, segment) in &segments {
            heap.add_segment(*start, segment);
        }
        for (start, _) in doubtful {
            search.is_doubtful.set(true);
            heap.add_unread(start..start + SEGMENT);
        }
        heap.add_delayed();
        heap.add_arenas(&segments.iter().map(|(start, _)| *start).collect::<Vec<_>>());
        for description in &heap.heaps {
            heap.heap.add_around(search, &mut heap.by_page, *description, BOOKKEEPING_MAX);
        }
        heap.heap.pages = heap.by_page.map(PageFiller::finish);
        heap.heap.arenas = heap.threads.len() as u64;
        // Threads keep no blocks outside of their pages.
        heap.heap.caches = heap.heaps.len() as u64;
        Some(heap.heap)
    }

    fn add_segment(&mut self, start: u64, segment: &Segment) {
        let end = start + segment.slices * SLICE;
        self.heap.ranges.push(start..end);
        self.threads.insert(segment.thread);
        let mut at = start;
        for page in &segment.pages {
            let range = at..(at + u64::from(page.slices) * SLICE).min(end);
            at = range.end;
            let resident = self.search.resident(range.clone());
            let whole = Piece { chunks: 1, bytes: range.end - range.start, resident };
            if let Some(filler) = self.by_page.as_mut().filter(|_| range.start != start) {
                filler.group(range.clone(), segment.thread);
            }
            if range.start == start {
                self.by_page.iter_mut().for_each(|filler| filler.add_own(range.clone()));
                self.heap.bookkeeping.add_all(whole);
            } else if page.block_size == 0 {
                self.heap.add_kept_or_returned(self.search, range);
            } else {
                self.add_page(range, page, resident);
            }
        }
        if at < end {
            let resident = self.search.resident(at..end);
            self.heap.bookkeeping.add_all(Piece { chunks: 0, bytes: end - at, resident });
            self.by_page.iter_mut().for_each(|filler| filler.add_own(at..end));
        }
    }

    /// Adds a segment that contradicts itself.
    fn add_unread(&mut self, range: Range<u64>) {
        let is_alone = self.heap.ranges.iter().all(|known| known.end <= range.start || range.end <= known.start);
        if is_alone && self.search.is_in_space(&range) {
            self.heap.unread.add(range.end - range.start, self.search.resident(range.clone()));
            self.heap.ranges.push(range);
        }
    }

    /// Adds a page with blocks: those in use, those that other threads have freed, and the rest.
    fn add_page(&mut self, range: Range<u64>, page: &PageUse, resident: u64) {
        self.fill(&range, page);
        let bytes = range.end - range.start;
        let freed = self.count_list(page.thread_free & !3, &range, page.used);
        let size = if page.used == 1 && page.reserved <= 1 { page.block_size.min(bytes) } else { page.block_size };
        let used = Piece { chunks: page.used - freed, bytes: (page.used - freed).saturating_mul(size), resident: 0 };
        let cached = Piece { chunks: freed, bytes: freed.saturating_mul(size), resident: 0 };
        let (mut left, mut left_resident) = (bytes, resident);
        // Blocks that were used lie side by side, so their memory is resident first.
        for (piece, to) in [(used, &mut self.heap.used), (cached, &mut self.heap.cached)] {
            let bytes = piece.bytes.min(left);
            let resident = bytes.min(left_resident);
            to.add_all(Piece { bytes, resident, ..piece });
            (left, left_resident) = (left - bytes, left_resident - resident);
        }
        if left > 0 {
            self.heap.free.add_all(Piece { chunks: 1, bytes: left, resident: left_resident });
        }
        self.pages.insert(range.start, (range.end, size));
        if page.heap != 0 {
            self.heaps.insert(page.heap);
        }
    }

    /// Fills the pages of a page with its blocks. Those in its three lists are free.
    fn fill(&mut self, range: &Range<u64>, page: &PageUse) {
        let Some(filler) = &mut self.by_page else { return };
        if page.reserved <= 1 {
            let end = page.start.saturating_add(page.block_size).min(range.end);
            if page.used > 0 {
                filler.add(page.start.max(range.start)..end);
            }
            return;
        }
        let start = page.start.clamp(range.start, range.end);
        let mut slots = Slots::new(start, page.block_size, page.capacity, range.end);
        for first in [page.free, page.local_free, page.thread_free & !3] {
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

    /// Moves the blocks that other threads have freed and that are in the lists of heaps: those of
    /// pages that were full.
    fn add_delayed(&mut self) {
        let mut seen = HashSet::new();
        for heap in &self.heaps {
            let mut at = self.reader.word(heap.wrapping_add(self.layout.heap_delayed)).unwrap_or(0);
            while let Some((_, &(end, size))) = self.pages.range(..=at).next_back() {
                if at >= end || !seen.insert(at) || seen.len() > LISTED_MAX {
                    break;
                }
                let resident = size.min(self.search.resident(at..at.saturating_add(size)));
                let piece = Piece { chunks: 1, bytes: size, resident };
                self.by_page.iter_mut().for_each(|filler| filler.remove(at..at.saturating_add(size)));
                self.heap.used.subtract(piece);
                self.heap.cached.add_all(piece);
                let Some(next) = self.reader.word(at) else { break };
                at = next;
            }
        }
    }

    /// Adds the memory of arenas, which are ranges reserved for segments, that has no segment.
    fn add_arenas(&mut self, segments: &[u64]) {
        let mut arenas = BTreeSet::new();
        let (search, reader, layout) = (self.search, &mut *self.reader, self.layout);
        search.for_each_data(|start, bytes| {
            for (_, address) in super::words(start, bytes).filter(|(_, word)| word % 8 == 0 && *word != 0) {
                if search.private_at(address).is_none() && super::range_at(search.data, address).is_none() {
                    continue;
                }
                let Some((start, end)) = layout.arena(reader, address) else { continue };
                if search.is_in_space(&(start..end)) && segments.iter().any(|segment| (start..end).contains(segment)) {
                    arenas.insert((start, end));
                }
            }
        });
        self.heap.ranges.sort_by_key(|range| range.start);
        let known = self.heap.ranges.clone();
        let mut last = 0;
        for (start, end) in arenas {
            if start < last {
                continue;
            }
            let mut at = start;
            let first = known.partition_point(|range| range.end <= start);
            for range in known[first..].iter().take_while(|range| range.start < end) {
                self.add_free_arena(at..range.start.max(at));
                at = at.max(range.end);
            }
            self.add_free_arena(at.min(end)..end);
            last = end;
        }
        self.heap.ranges.sort_by_key(|range| range.start);
    }

    fn add_free_arena(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.heap.add_kept_or_returned(self.search, range.clone());
            self.heap.ranges.push(range);
        }
    }
}
