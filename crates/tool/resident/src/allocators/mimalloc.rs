//! The heap of mimalloc 2, and in `page_map` that of mimalloc 3.
//!
//! Memory is in segments, which begin at multiples of 32 MiB. The beginning of a segment describes
//! its slices of 64 KiB. A run of slices is a page, with blocks of one size, or free. So a segment
//! is known by its own description: its runs of slices have to fill it, and all segments of a
//! process have the same cookie. Sources: `include/mimalloc/types.h` and `src/segment.c` of
//! mimalloc 2.0.9, 2.1.9, 2.2.4 and 2.3.2, without the checks of its secure and debug builds.

mod heap_reader;
mod layout;
pub(super) mod page_map;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use super::{AllocatorHeap, CachedReader, Search};
use crate::glibc::Piece;

use self::heap_reader::{HeapReader, LISTED_MAX};
use self::layout::{Found, Layout, PageUse, Segment, VERSIONS};

/// The alignment of segments, and the size of one that has no huge block.
const SEGMENT: u64 = 32 << 20;
const SLICE: u64 = 64 << 10;
/// The most bytes around the description of a thread's heap that are taken for its own.
const BOOKKEEPING_MAX: u64 = 1 << 20;
/// The most places that are looked at.
const PLACES_MAX: usize = 1 << 20;

/// Returns the heap of mimalloc in a process.
pub(super) fn find(search: &Search<'_>, reader: &mut CachedReader<'_>) -> Vec<AllocatorHeap> {
    let heap = VERSIONS.iter().find_map(|layout| Heap::read(search, reader, layout));
    heap.or_else(|| page_map::find(search, reader)).into_iter().collect()
}

/// A read in progress.
struct Heap<'a, 'm> {
    common: HeapReader<'a, 'm>,
    layout: &'static Layout,
    /// The threads that own segments; 0 for segments that none owns.
    threads: BTreeSet<u64>,
    /// The descriptions of the heaps that pages belong to.
    heaps: BTreeSet<u64>,
    /// The pages in use: their ends and block sizes, by their beginnings.
    pages: BTreeMap<u64, (u64, u64)>,
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
            common: HeapReader::new(search, reader),
            layout,
            threads: BTreeSet::new(),
            heaps: BTreeSet::new(),
            pages: BTreeMap::new(),
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
        let Heap { mut common, threads, heaps, .. } = heap;
        for description in &heaps {
            common.heap.add_around(search, &mut common.by_page, *description, BOOKKEEPING_MAX);
        }
        common.heap.arenas = threads.len() as u64;
        // Threads keep no blocks outside of their pages.
        common.heap.caches = heaps.len() as u64;
        Some(common.finish())
    }

    fn add_segment(&mut self, start: u64, segment: &Segment) {
        let end = start + segment.slices * SLICE;
        self.common.heap.ranges.push(start..end);
        self.threads.insert(segment.thread);
        let mut at = start;
        for page in &segment.pages {
            let range = at..(at + u64::from(page.slices) * SLICE).min(end);
            at = range.end;
            if let Some(filler) = self.common.by_page.as_mut().filter(|_| range.start != start) {
                filler.group(range.clone(), segment.thread);
            }
            if range.start == start {
                self.common.add_own(range, 1);
            } else if page.blocks.size == 0 {
                self.common.heap.add_kept_or_returned(self.common.search, range);
            } else {
                self.add_page(range, page);
            }
        }
        if at < end {
            self.common.add_own(at..end, 0);
        }
    }

    /// Adds a segment that contradicts itself.
    fn add_unread(&mut self, range: Range<u64>) {
        let HeapReader { search, heap, .. } = &mut self.common;
        let is_alone = heap.ranges.iter().all(|known| known.end <= range.start || range.end <= known.start);
        if is_alone && search.is_in_space(&range) {
            heap.unread.add(range.end - range.start, search.resident(range.clone()));
            heap.ranges.push(range);
        }
    }

    fn add_page(&mut self, range: Range<u64>, page: &PageUse) {
        self.common.add_page(&range, &page.blocks);
        self.pages.insert(range.start, (range.end, page.blocks.size.min(range.end - range.start)));
        if page.heap != 0 {
            self.heaps.insert(page.heap);
        }
    }

    /// Moves the blocks that other threads have freed and that are in the lists of heaps: those of
    /// pages that were full.
    fn add_delayed(&mut self) {
        let HeapReader { search, reader, heap: sums, by_page, .. } = &mut self.common;
        let mut seen = HashSet::new();
        for heap in &self.heaps {
            let first = reader.word(heap.wrapping_add(self.layout.heap_delayed)).unwrap_or(0);
            reader.follow_list(first, |at| {
                let Some((_, &(end, size))) = self.pages.range(..=at).next_back() else { return false };
                if at >= end || !seen.insert(at) || seen.len() as u64 > LISTED_MAX {
                    return false;
                }
                let block = at..at.saturating_add(size);
                let piece = Piece { chunks: 1, bytes: size, resident: size.min(search.resident(block.clone())) };
                by_page.iter_mut().for_each(|filler| filler.remove(block.clone()));
                sums.used.subtract(piece);
                sums.cached.add_all(piece);
                true
            });
        }
    }

    /// Adds the memory of arenas, which are ranges reserved for segments, that has no segment.
    fn add_arenas(&mut self, segments: &[u64]) {
        let mut arenas = BTreeSet::new();
        let (search, reader, layout) = (self.common.search, &mut *self.common.reader, self.layout);
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
        self.common.heap.ranges.sort_by_key(|range| range.start);
        let known = self.common.heap.ranges.clone();
        let mut last = 0;
        for (start, end) in arenas {
            if start < last {
                continue;
            }
            let mut at = start;
            let first = known.partition_point(|range| range.end <= start);
            for range in known[first..].iter().take_while(|range| range.start < end) {
                self.common.add_free(at..range.start.max(at));
                at = at.max(range.end);
            }
            self.common.add_free(at.min(end)..end);
            last = end;
        }
        self.common.heap.ranges.sort_by_key(|range| range.start);
    }
}
