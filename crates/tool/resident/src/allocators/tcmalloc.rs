//! The heap of gperftools' tcmalloc.
//!
//! A page map has the description (`Span`) of every run of pages of 8 KiB, in use or free. Its root
//! of 2^17 words is in the allocator's data. A leaf has a word for each page of 2 GiB. The words of
//! pages inside of a span may be those of a former one, so that only first pages are looked at.
//! Sources: `span.h`, `pagemap.h`, `page_heap.h`, `common.h`, `central_freelist.h` and
//! `thread_cache.h` of gperftools 2.10, for addresses of 48 bits.

mod lists;

use std::collections::BTreeSet;
use std::ops::Range;

use super::by_page::{PageFiller, Slots};
use super::{Allocator, AllocatorHeap, CachedReader, Search, TRIES, Tables, WRONG_TOLERATED, words};
use crate::glibc::Piece;

use self::lists::{Lists, SizeClasses};

/// The size of a page.
const PAGE: u64 = 8 << 10;
/// The entries of a leaf, and its size. It is about 2 GiB.
const ENTRIES: u64 = 1 << 18;
const LEAF_BYTES: u64 = ENTRIES * 8;
const LEAF_SPAN: u64 = ENTRIES * PAGE;
/// The entries of the root.
const LEAVES: u64 = 1 << 17;
/// The most words that are tried as those of a root.
const TRIES_MAX: usize = 1 << 16;
/// The most words of possible leaves that are looked at. A leaf is resident, and mostly zeroes.
const WORDS_MAX: u64 = 1 << 26;
/// A page map is none of this layout if more than one of so many descriptions makes no sense.
const WRONG_MAX: u64 = 64;
/// The most bytes around a description that are taken for others of its kind.
const BOOKKEEPING_MAX: u64 = 64 << 20;

/// Returns the heap of tcmalloc in a process.
pub(super) fn find(search: &Search<'_>, reader: &mut CachedReader<'_>) -> Vec<AllocatorHeap> {
    let (mut root, mut tries, mut words_left) = (None, 0, WORDS_MAX);
    search.for_each_data(|start, bytes| {
        for (at, leaf) in words(start, bytes) {
            if root.is_some() || leaf == 0 || leaf % 8 != 0 || tries >= TRIES_MAX || !is_leaf_inside(search, leaf) {
                continue;
            }
            tries += 1;
            let number = number_of_leaf(search, reader, leaf, &mut words_left);
            root = number.and_then(|number| at.checked_sub(8 * number));
        }
    });
    let heap = root.and_then(|root| Heap::read(search, reader, root));
    if root.is_some() && heap.is_none() {
        search.is_doubtful.set(true);
    }
    heap.into_iter().collect()
}

fn is_leaf_inside(search: &Search<'_>, leaf: u64) -> bool {
    search.private_at(leaf).is_some_and(|range| range.end - leaf >= LEAF_BYTES)
}

/// Returns the position in the root of the leaf at an address, by one of its first entries. `None`
/// if this is no leaf. `words_left` are the words that are looked at.
fn number_of_leaf(search: &Search<'_>, reader: &mut CachedReader<'_>, leaf: u64, words_left: &mut u64) -> Option<u64> {
    /// The entries that are looked at.
    const ENTRIES_MAX: usize = 4;
    let parts = search.pages.within(leaf..leaf + LEAF_BYTES);
    let places = parts.flat_map(|part| (part.start.next_multiple_of(8)..part.end).step_by(8));
    let mut entries = 0;
    for at in places {
        *words_left = words_left.checked_sub(1)?;
        let address = reader.word(at)?;
        if address == 0 {
            continue;
        }
        entries += 1;
        reader.forget(address);
        let span = Span::read(reader, address)?;
        let page = span.start / PAGE;
        if page % ENTRIES == (at - leaf) / 8 {
            return Some(page / ENTRIES).filter(|&number| number < LEAVES);
        }
        if entries >= ENTRIES_MAX {
            break;
        }
    }
    None
}

/// A run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
    /// The number of blocks that are not in the span's own list.
    used: u64,
    /// The class of its blocks; 0 if it is one block, or free.
    class: u64,
    /// Its list: none if it is in use, free pages, or pages that were given back.
    location: u64,
    /// The first block that is in the span's own list.
    free: u64,
}

impl Span {
    /// Reads a description. `None` if it makes no sense.
    fn read(reader: &mut CachedReader<'_>, at: u64) -> Option<Span> {
        const PAGES_MAX: u64 = 1 << 34;
        // The first page and the number of pages, two links, a list of blocks, and fields of bits.
        let [page, pages, _, _, free, bits] = reader.words::<6>(at)?;
        let (used, class, location) = (bits & 0xffff, bits >> 16 & 0xff, bits >> 24 & 3);
        let end = page.checked_add(pages).filter(|&end| end <= PAGES_MAX)?;
        let is_sound = page > 0 && pages > 0 && location < 3;
        is_sound.then_some(Span { start: page * PAGE, end: end * PAGE, used, class, location, free })
    }
}

/// A read in progress.
pub(super) struct Heap<'a, 'm> {
    search: &'a Search<'a>,
    reader: &'a mut CachedReader<'m>,
    classes: SizeClasses,
    heap: AllocatorHeap,
    by_page: Option<PageFiller<'a>>,
    right: u64,
    wrong: u64,
    /// The end of the span read last.
    end: u64,
    /// Addresses of descriptions, by 64 KiB.
    descriptions: BTreeSet<u64>,
}

impl<'a, 'm> Heap<'a, 'm> {
    /// Reads the heap whose page map is at an address. `None` if it makes no sense.
    pub(super) fn read(search: &'a Search<'a>, reader: &'a mut CachedReader<'m>, root: u64) -> Option<AllocatorHeap> {
        let classes = SizeClasses::find(search)?;
        let mut heap = Heap {
            search,
            reader,
            classes,
            heap: AllocatorHeap::new(Allocator::Tcmalloc),
            by_page: search.page_filler(),
            right: 0,
            wrong: 0,
            end: 0,
            descriptions: BTreeSet::new(),
        };
        let mut leaves = Tables::default();
        for number in 0..LEAVES {
            let leaf = heap.reader.word(root + 8 * number).unwrap_or(0);
            if leaf == 0 {
                continue;
            }
            if !is_leaf_inside(search, leaf) || !leaves.add(leaf, LEAF_BYTES) {
                return None;
            }
            heap.descriptions.insert(leaf >> 16);
            heap.read_leaf(number * LEAF_SPAN, leaf)?;
        }
        if heap.right == 0 || heap.is_wrong() {
            return None;
        }
        Some(heap.finish())
    }

    /// True if too many descriptions make no sense.
    fn is_wrong(&self) -> bool {
        self.wrong * WRONG_MAX > self.right + self.wrong
    }

    /// Reads the spans that a leaf has, whose first address is given. `None` if too many of them
    /// make no sense.
    fn read_leaf(&mut self, first: u64, leaf: u64) -> Option<()> {
        let parts: Vec<Range<u64>> = self.search.pages.within(leaf..leaf + LEAF_BYTES).collect();
        for part in parts {
            for at in (part.start.next_multiple_of(8)..part.end).step_by(8) {
                let page = first + (at - leaf) / 8 * PAGE;
                if page < self.end {
                    continue;
                }
                if self.reader.word(at).is_none_or(|address| address == 0) {
                    continue;
                }
                match self.span_of(page, at) {
                    Some((address, span)) => {
                        self.right += 1;
                        self.descriptions.insert(address >> 16);
                        self.add(span);
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

    /// Returns the description that the entry at a place has of a span that begins with a page.
    /// Another thread may just change both.
    fn span_of(&mut self, page: u64, place: u64) -> Option<(u64, Span)> {
        for _ in 0..TRIES {
            let address = self.reader.word(place)?;
            let span = Span::read(self.reader, address).filter(|span| span.start == page);
            if let Some(span) = span.filter(|span| self.search.is_in_space(&(span.start..span.end))) {
                return Some((address, span));
            }
            [place, address].into_iter().for_each(|at| self.reader.forget(at));
        }
        None
    }

    fn add(&mut self, span: Span) {
        self.end = span.end;
        self.fill(span);
        let (bytes, resident) = (span.end - span.start, self.search.resident(span.start..span.end));
        let whole = Piece { chunks: 1, bytes, resident };
        let heap = &mut self.heap;
        match (span.location, span.class) {
            (1, _) => heap.dirty.add_all(whole),
            (2, _) => heap.returned.add_all(whole),
            (_, 0) => heap.used.add_all(whole),
            (_, class) => match self.classes.size(class) {
                Some(size) if span.used * size <= bytes => {
                    let used = span.used * size;
                    // Blocks are cut from the beginning of a span to its end, and used in this
                    // order.
                    let used_resident = used.min(resident);
                    heap.used.add_all(Piece { chunks: span.used, bytes: used, resident: used_resident });
                    if used < bytes {
                        let resident = resident - used_resident;
                        heap.free.add_all(Piece { chunks: 1, bytes: bytes - used, resident });
                    }
                }
                _ => heap.unread.add_all(whole),
            },
        }
        match heap.ranges.last_mut() {
            Some(last) if last.end == span.start => last.end = span.end,
            _ => heap.ranges.push(span.start..span.end),
        }
    }

    /// Fills the pages of a span with its blocks. Those in its own list are free.
    fn fill(&mut self, span: Span) {
        let Some(filler) = &mut self.by_page else { return };
        filler.group(span.start..span.end, 0);
        match (span.location, self.classes.size(span.class)) {
            (1 | 2, _) => {}
            (_, Some(size)) => {
                let slots = Slots::new(span.start, size, u64::MAX, span.end);
                filler.add_slots(slots, &[span.free], self.reader);
            }
            (_, None) if span.class == 0 => filler.add(span.start..span.end),
            (_, None) => {}
        }
    }

    /// Adds the caches, and the memory around the descriptions.
    fn finish(mut self) -> AllocatorHeap {
        let lists = Lists::read(self.search, self.reader, &self.classes);
        let mut cached = Piece::default();
        for (&address, &size) in &lists.blocks {
            if super::range_at(&self.heap.ranges, address).is_some() {
                let resident = self.search.resident(address..address.saturating_add(size));
                cached.add_all(Piece { chunks: 1, bytes: size, resident });
                self.by_page.iter_mut().for_each(|filler| filler.remove(address..address.saturating_add(size)));
            }
        }
        self.heap.move_to_cached(cached);
        self.heap.caches = lists.threads;
        self.heap.arenas = 1;
        self.descriptions.extend(lists.caches.iter().map(|address| address >> 16));
        for place in self.descriptions.iter().map(|place| place << 16) {
            self.heap.add_around(self.search, &mut self.by_page, place, BOOKKEEPING_MAX);
        }
        self.heap.pages = self.by_page.map(PageFiller::finish);
        self.heap
    }
}
