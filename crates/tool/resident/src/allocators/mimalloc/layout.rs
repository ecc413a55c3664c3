//! The fields of segments and pages in the versions of mimalloc 2.

use super::super::{CachedReader, TRIES};
use super::SLICE;
use super::heap_reader::PageBlocks;

/// The slices of a segment without a huge block.
const SLICES: u64 = 512;
/// The most slices that describe a segment, and the most slices of one with a huge block.
const INFO_SLICES_MAX: u64 = 16;
const SLICES_MAX: u64 = 1 << 31;
/// The size of a block for which another field has the size, in versions before 2.1.9.
const HUGE_BLOCK: u64 = 2 << 30;
/// The offset of the first small block in its page, in versions before 2.1.9.
const SMALL_OFFSET: u64 = 128;
/// The words of a page's description.
const PAGE_WORDS: usize = 10;

/// The offsets in bytes of some versions.
#[derive(Debug)]
pub(super) struct Layout {
    /// The fields of a segment: the number of pages in use, a number that depends on the address,
    /// the number of slices (followed by that of those for the description, the kind, the number of
    /// entries and the thread), and the first page.
    used: u64,
    cookie: u64,
    slices: u64,
    pages: u64,
    /// The size of a page's description.
    page_size: u64,
    /// True if the word at 24 of a page has the number of blocks in use and their size, of 4 bytes
    /// each. Otherwise, they are in the words at 32 and 40.
    is_short: bool,
    /// The field of a page with the list of blocks that other threads have freed, in front of the
    /// heap.
    thread_free: usize,
    /// The field of a heap with the list of blocks of full pages that other threads have freed.
    pub(super) heap_delayed: u64,
}

/// The layouts: of 2.0.9, and of 2.1.9 to 2.3.2.
pub(super) static VERSIONS: [Layout; 2] = [
    Layout {
        used: 208,
        cookie: 216,
        slices: 224,
        pages: 264,
        page_size: 80,
        is_short: true,
        thread_free: 40,
        heap_delayed: 2840,
    },
    Layout {
        used: 216,
        cookie: 224,
        slices: 248,
        pages: 288,
        page_size: 96,
        is_short: false,
        thread_free: 56,
        heap_delayed: 8,
    },
];

/// The description of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) cookie: u64,
    pub(super) slices: u64,
    /// The thread that has it; 0 if none has.
    pub(super) thread: u64,
    /// The runs of slices, which begin with those of the description.
    pub(super) pages: Vec<PageUse>,
}

/// The result of a look at an address.
pub(super) enum Found {
    Segment(Segment),
    /// The beginning of a segment whose runs of slices do not fill it.
    Contradiction {
        /// The number that depends on the address.
        cookie: u64,
    },
    Nothing,
}

/// A page, or a free run of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageUse {
    pub(super) slices: u32,
    /// The address of the description of the heap that has it.
    pub(super) heap: u64,
    pub(super) blocks: PageBlocks,
}

impl Layout {
    /// Reads the segment at an address, several times if it makes no sense, because it may just be
    /// changing.
    pub(super) fn segment_that_may_change(&self, reader: &mut CachedReader<'_>, start: u64) -> Found {
        for _ in 0..TRIES {
            if let Some(segment) = self.segment(reader, start) {
                return Found::Segment(segment);
            }
            if reader.word(start + self.slices) != Some(SLICES) {
                return Found::Nothing;
            }
            let end = start + self.pages + SLICES * self.page_size;
            (start..end).step_by(4096).for_each(|at| reader.forget(at));
        }
        match reader.word(start + self.cookie) {
            Some(cookie) => Found::Contradiction { cookie },
            None => Found::Nothing,
        }
    }

    /// Reads the segment at an address.
    fn segment(&self, reader: &mut CachedReader<'_>, start: u64) -> Option<Segment> {
        let [slices, info_slices, kind, entries, thread] = reader.words::<5>(start + self.slices)?;
        let (is_huge, entries) = ((kind & 0xffff_ffff) == 1, entries);
        let is_sound = kind & 0xffff_ffff <= 1
            && (1..=INFO_SLICES_MAX).contains(&info_slices)
            && (is_huge || slices == SLICES)
            && (info_slices + 1..=SLICES_MAX).contains(&slices)
            && entries == slices.min(SLICES);
        if !is_sound {
            return None;
        }
        let cookie = reader.word(start + self.cookie)?;
        let mut pages = self.pages(reader, start, slices, entries)?;
        let used = reader.word(start + self.used)?;
        if used == 0 {
            // A segment that was given up, and is kept for the next.
            pages.iter_mut().skip(1).for_each(|page| page.blocks.size = 0);
        }
        let counted = pages.iter().skip(1).filter(|page| page.blocks.size > 0).count() as u64;
        let is_whole = u64::from(pages.first()?.slices) == info_slices && used == counted;
        is_whole.then_some(Segment { cookie, slices, thread, pages })
    }

    /// Reads the runs of slices. `None` if they do not fill the segment.
    fn pages(&self, reader: &mut CachedReader<'_>, start: u64, slices: u64, entries: u64) -> Option<Vec<PageUse>> {
        let (mut pages, mut index) = (Vec::new(), 0);
        while index < entries {
            let mut page =
                self.page(&reader.words::<PAGE_WORDS>(start + self.pages + index * self.page_size)?, slices)?;
            if self.is_short {
                // Small blocks do not begin with the page, so that they are in other cache lines.
                let offset = if (8..=1024).contains(&page.blocks.size) { SMALL_OFFSET } else { 0 };
                page.blocks.start = start + index * SLICE + offset;
            }
            index += u64::from(page.slices);
            pages.push(page);
        }
        (index == slices).then_some(pages)
    }

    fn page(&self, words: &[u64; PAGE_WORDS], slices: u64) -> Option<PageUse> {
        let (count, offset) = (words[0] as u32, words[0] >> 32);
        let reserved = words[1] >> 32 & 0xffff;
        let (used, block_size) = match self.is_short {
            true => (words[3] & 0xffff_ffff, words[3] >> 32),
            false => (words[4] & 0xffff, words[5]),
        };
        if count == 0 || offset != 0 || u64::from(count) > slices {
            return None;
        }
        let bytes = u64::from(count) * SLICE;
        // The only block of its page may be so large that its size is elsewhere.
        let block_size = if self.is_short && block_size == HUGE_BLOCK { bytes } else { block_size };
        let (thread_free, heap) = (words[self.thread_free / 8], words[self.thread_free / 8 + 1]);
        let capacity = words[1] >> 16 & 0xffff;
        let [start, local_free] = if self.is_short { [0, words[4]] } else { [words[6], words[3]] };
        let fits = block_size == 0 || block_size <= bytes && used.saturating_mul(block_size) <= bytes;
        let free = [words[2], local_free];
        // The lowest bits of a list that other threads change are flags.
        let thread_free = thread_free & !3;
        let blocks = PageBlocks { reserved, capacity, used, size: block_size, start, free, thread_free };
        fits.then_some(PageUse { slices: count, heap, blocks })
    }

    /// Returns the addresses of the arena whose description is at an address, if that makes sense.
    /// Only versions since 2.1 have arenas without being asked for.
    pub(super) fn arena(&self, reader: &mut CachedReader<'_>, at: u64) -> Option<(u64, u64)> {
        const BLOCK: u64 = super::SEGMENT;
        const BLOCKS_MAX: u64 = 1 << 20;
        if self.is_short {
            return None;
        }
        // The number, where the memory is from (3 words), start, blocks, and words of bits for
        // them.
        let [_, _, _, _, start, blocks, fields] = reader.words::<7>(at)?;
        let is_sound = start != 0
            && start.is_multiple_of(BLOCK)
            && (1..=BLOCKS_MAX).contains(&blocks)
            && fields == blocks.div_ceil(64);
        Some((start, start.checked_add(blocks.checked_mul(BLOCK)?)?)).filter(|_| is_sound)
    }
}
