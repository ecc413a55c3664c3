//! A heap that is being read: the work that is the same for mimalloc 2 and mimalloc 3.

use std::ops::Range;

use super::super::by_page::{PageFiller, Slots};
use super::super::{Allocator, AllocatorHeap, CachedReader, Search};
use crate::glibc::Piece;

/// The most blocks of lists that are followed.
pub(super) const LISTED_MAX: u64 = 1 << 22;

/// The blocks of a page, all of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageBlocks {
    /// The number of blocks for which the page has room.
    pub(super) reserved: u64,
    /// The number of blocks that were ever cut.
    pub(super) capacity: u64,
    /// The number of blocks in use, those that other threads have freed included.
    pub(super) used: u64,
    /// The size of a block in bytes; 0 if the page is free.
    pub(super) size: u64,
    /// The address of the first block.
    pub(super) start: u64,
    /// The two lists of free blocks of the thread that owns the page.
    pub(super) free: [u64; 2],
    /// The list of blocks that other threads have freed, without flags.
    pub(super) thread_free: u64,
}

/// A read in progress.
pub(super) struct HeapReader<'a, 'm> {
    pub(super) search: &'a Search<'a>,
    pub(super) reader: &'a mut CachedReader<'m>,
    pub(super) heap: AllocatorHeap,
    pub(super) by_page: Option<PageFiller<'a>>,
    /// The number of blocks that were counted in lists so far.
    listed: u64,
}

impl<'a, 'm> HeapReader<'a, 'm> {
    pub(super) fn new(search: &'a Search<'a>, reader: &'a mut CachedReader<'m>) -> HeapReader<'a, 'm> {
        let heap = AllocatorHeap::new(Allocator::Mimalloc);
        HeapReader { search, reader, heap, by_page: search.page_filler(), listed: 0 }
    }

    /// Adds a page with blocks: those in use, those that other threads have freed, and the rest.
    /// The caller adds the addresses to the heap's.
    pub(super) fn add_page(&mut self, range: &Range<u64>, blocks: &PageBlocks) {
        self.fill(range, blocks);
        let freed = self.count_list(blocks.thread_free, range, blocks.used);
        let (mut left, mut left_resident) = (range.end - range.start, self.search.resident(range.clone()));
        let heap = &mut self.heap;
        // Blocks that were used lie side by side, so their memory is resident first.
        for (count, to) in [(blocks.used - freed, &mut heap.used), (freed, &mut heap.cached)] {
            let bytes = count.saturating_mul(blocks.size).min(left);
            let resident = bytes.min(left_resident);
            to.add_all(Piece { chunks: count, bytes, resident });
            (left, left_resident) = (left - bytes, left_resident - resident);
        }
        if left > 0 {
            heap.free.add_all(Piece { chunks: 1, bytes: left, resident: left_resident });
        }
    }

    /// Fills the pages of a page with its blocks. Those in its three lists are free.
    fn fill(&mut self, range: &Range<u64>, blocks: &PageBlocks) {
        let Some(filler) = &mut self.by_page else { return };
        let start = blocks.start.clamp(range.start, range.end);
        if blocks.reserved > 1 {
            let slots = Slots::new(start, blocks.size, blocks.capacity, range.end);
            let [free, local_free] = blocks.free;
            filler.add_slots(slots, &[free, local_free, blocks.thread_free], self.reader);
        } else if blocks.used > 0 {
            filler.add(start..start.saturating_add(blocks.size).min(range.end));
        }
    }

    /// Returns the number of blocks in a list, of which all are in a range and no more than `most`.
    fn count_list(&mut self, first: u64, range: &Range<u64>, most: u64) -> u64 {
        let (mut count, listed) = (0, &mut self.listed);
        self.reader.follow_list(first, |block| {
            let is_counted = block != 0 && count < most && range.contains(&block) && *listed < LISTED_MAX;
            if is_counted {
                (count, *listed) = (count + 1, *listed + 1);
            }
            is_counted
        });
        count
    }

    /// Adds the allocator's own memory.
    pub(super) fn add_own(&mut self, range: Range<u64>, chunks: u64) {
        let (bytes, resident) = (range.end - range.start, self.search.resident(range.clone()));
        self.heap.bookkeeping.add_all(Piece { chunks, bytes, resident });
        self.by_page.iter_mut().for_each(|filler| filler.add_own(range.clone()));
    }

    /// Adds a range of an arena that no page or segment has.
    pub(super) fn add_free(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.heap.add_kept_or_returned(self.search, range.clone());
            self.heap.ranges.push(range);
        }
    }

    /// Returns the heap, with its pages if they were asked for.
    pub(super) fn finish(mut self) -> AllocatorHeap {
        self.heap.pages = self.by_page.map(PageFiller::finish);
        self.heap
    }
}
