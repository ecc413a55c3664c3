//! Small heaps of each allocator that are written here word by word, and damaged ones.

#![expect(clippy::single_range_in_vec_init, reason = "lists of ranges are meant, of which some have one")]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::{Counted, Imitation};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Data of a program, and private memory.
const DATA: u64 = 0x5600_0000_0000;
const OWN: u64 = 0x7e00_0000_0000;
const THREAD: u64 = 0x7d00_0000_0000;
const HEAP: u64 = 0x7f40_0000_0000;

/// A process whose words are those that were written, and otherwise zeroes.
#[derive(Clone, Default)]
struct Image {
    memory: Imitation,
    data: Vec<Range<u64>>,
    private: Vec<Range<u64>>,
}

impl Image {
    fn write<const N: usize>(&mut self, address: u64, words: [u64; N]) {
        self.memory.write(address, words);
    }

    /// Makes the pages resident that have something, and those of some ranges.
    fn with_pages(mut self, ranges: &[Range<u64>]) -> Image {
        self.memory.set_pages(ranges);
        self
    }

    fn heaps(&self) -> Vec<AllocatorHeap> {
        self.read(false)
    }

    fn read(&self, by_page: bool) -> Vec<AllocatorHeap> {
        Search { by_page, ..self.search(&self.memory, &Cell::new(false)) }.heaps()
    }

    fn search<'a>(&'a self, memory: &'a dyn Memory, is_doubtful: &'a Cell<bool>) -> Search<'a> {
        let (pages, data, private) = (&self.memory.pages, &self.data[..], &self.private[..]);
        Search { memory, pages, data, private, spaces: private, is_doubtful, by_page: false }
    }

    /// Calls a function for the memory. Panics if it reads much more than there is: 128 MiB.
    fn in_limits(&self, look: impl FnOnce(&Search<'_>, &mut CachedReader<'_>)) {
        let (memory, is_doubtful) = (Counted::new(self.memory.clone(), 128 * MIB), Cell::new(false));
        look(&self.search(&memory, &is_doubtful), &mut CachedReader::new(&memory, &self.memory.pages));
    }
}

fn piece(chunks: u64, bytes: u64, resident: u64) -> Piece {
    Piece { chunks, bytes, resident }
}

/// Returns a heap of jemalloc with a slab of 256 blocks of 48 bytes of which 100 are free and two
/// in a cache, a large block, and free pages.
fn jemalloc() -> Image {
    const LEAF: u64 = OWN + MIB + 64;
    const EDATA: u64 = OWN + PAGE;
    let mut image = Image { data: vec![DATA..DATA + 3 * MIB], ..Image::default() };
    image.private = vec![THREAD..THREAD + 16 * PAGE, OWN..OWN + 4 * MIB, HEAP..HEAP + MIB];
    image.write(DATA + 8 + 8 * (HEAP >> 30), [LEAF]);
    // The block with the allocator's own memory, in which an arena leads to a cache.
    image.write(OWN, [4 * MIB, 0, 0, OWN + 4 * MIB, 0]);
    image.write(OWN + 0x800, [THREAD + 16]);
    let extents =
        [(0, 3, 3 << 20 | 1 << 12), (3, 5, 36 << 20), (8, 2, 1 << 17 | 232 << 20), (10, 4, 3 << 17 | 232 << 20)];
    for (number, (page, pages, bits)) in (0..).zip(extents) {
        let edata = EDATA + 128 * number;
        // Large blocks begin somewhere in their first page.
        let address = HEAP + page * PAGE + if page == 3 { 0x40 } else { 0 };
        image.write(edata, [bits | 1 << 13, address, pages * PAGE + number, 0, 0]);
        (page..page + pages).for_each(|page| image.write(LEAF + 8 * page, [edata | 1]));
    }
    image.write(EDATA, [3 << 20 | 1 << 12 | 100 << 28]);
    // Behind the words that the slab needs is something of a former use.
    image.write(EDATA + 64, [u64::MAX, (1 << 36) - 1, 0, 0, 0x7e00_0000_1000]);
    let (bins, stack) = (THREAD + PAGE + 8, THREAD + 2 * PAGE);
    image.write(THREAD, [0, 0, THREAD + 16, THREAD + 16, bins]);
    image.write(THREAD + PAGE, [THREAD]);
    for class in 0..40 {
        let cached: u64 = if class == 3 { 2 } else { 0 };
        let ends = (stack & 0xffff) << 16 | ((stack + 8 * cached) & 0xffff) << 32;
        image.write(bins + 24 * class, [stack, 0, ends]);
    }
    // Blocks 200 and 201 are in use by the marks of the slab.
    image.write(stack, [HEAP + 200 * 48, HEAP + 201 * 48]);
    image.with_pages(&[HEAP..HEAP + 8 * PAGE])
}

#[test]
fn a_heap_of_jemalloc() {
    let heaps = jemalloc().heaps();
    let [heap] = &heaps[..] else { panic!("{heaps:#?}") };
    let (small, large) = (156 * 48, 16 << 10);
    assert_eq!((heap.allocator, heap.arenas, heap.caches), (Allocator::Jemalloc, 1, 1));
    assert_eq!(heap.used, piece(155, small - 96 + large, small - 96 + large));
    assert_eq!(heap.cached, piece(2, 96, 96));
    assert_eq!(heap.free, piece(2, 8 * PAGE - small - large, 8 * PAGE - small - large));
    assert_eq!((heap.dirty, heap.returned), (piece(1, 2 * PAGE, 0), piece(1, 4 * PAGE, 0)));
    assert_eq!((heap.bookkeeping.bytes, heap.bookkeeping.resident), (4 * MIB, 3 * PAGE));
    assert_eq!(heap.ranges, [OWN..OWN + 4 * MIB, HEAP..HEAP + 14 * PAGE]);
}

/// Returns a segment of mimalloc 2.0.9 with a page of 64 bytes a block, of which three are in use,
/// and another thread has freed one of these.
fn mimalloc() -> Image {
    const BLOCKS: u64 = HEAP + (64 << 10);
    let mut image = Image { private: vec![HEAP..HEAP + 32 * MIB], ..Image::default() };
    image.write(HEAP + 208, [1, HEAP ^ 0xc00c, 512, 1, 0, 512, 7]);
    let page = |slices: u64, used: u64, size: u64| [slices, 8 << 32 | 8 << 16, 0, used | size << 32, 0];
    image.write(HEAP + 264, page(1, 0, 64 << 10));
    image.write(HEAP + 264 + 80, page(1, 3, 64));
    image.write(HEAP + 264 + 80 + 40, [(BLOCKS + 64) | 2, HEAP + 100 * PAGE]);
    image.write(HEAP + 264 + 160, page(510, 0, 0));
    image.write(BLOCKS, [1, 0, 0, 0, 0, 0, 0, 0, 0]);
    image.with_pages(&[])
}

#[test]
fn a_heap_of_mimalloc() {
    let heaps = mimalloc().heaps();
    let [heap] = &heaps[..] else { panic!("{heaps:#?}") };
    assert_eq!((heap.allocator, heap.arenas), (Allocator::Mimalloc, 1));
    assert_eq!((heap.used, heap.cached), (piece(2, 128, 128), piece(1, 64, 64)));
    assert_eq!(heap.free, piece(1, (64 << 10) - 192, PAGE - 192));
    assert_eq!(heap.returned, piece(1, 510 << 16, 0));
    assert_eq!(heap.total(), piece(6, 32 * MIB, 2 * PAGE));
    // A segment that was given up has a page that says it is in use.
    let mut given_up = mimalloc();
    given_up.write(HEAP + 208, [0]);
    let heaps = given_up.heaps();
    assert_eq!((heaps[0].used, heaps[0].dirty), (piece(0, 0, 0), piece(1, PAGE, PAGE)), "{heaps:#?}");
    // A segment whose runs of slices do not fill it is none.
    let mut damaged = mimalloc();
    damaged.write(HEAP + 264 + 160, [509]);
    assert_eq!(damaged.heaps(), []);
}

/// Returns a heap of mimalloc 3 with a page of 64 bytes a block, of which three are in use, and
/// another thread has freed one of these; and a page of two slices with one block.
fn mimalloc_3() -> Image {
    const MAP: u64 = OWN;
    const TABLE: u64 = OWN + 2 * MIB;
    const PAGES: u64 = OWN + 3 * MIB;
    const SLICE: u64 = 64 << 10;
    let mut image = Image { data: vec![DATA..DATA + PAGE], ..Image::default() };
    image.private = vec![OWN..OWN + 4 * MIB, HEAP..HEAP + 3 * SLICE];
    image.write(DATA + 64, [MAP]);
    let slice = HEAP / SLICE;
    image.write(MAP + 8 * (slice >> 13), [TABLE]);
    image.write(TABLE + 8 * (slice & 0x1fff), [PAGES, PAGES + 64, PAGES + 64]);
    image.write(PAGES, [THREAD | 2, HEAP + 64 * 3, 3 | 8 << 16 | 1024 << 32, 0, (HEAP + 64) | 1, 64, HEAP]);
    image.write(PAGES + 64, [THREAD | 2, 0, 1 | 1 << 16 | 1 << 32, 0, 1, 100_000, HEAP + SLICE]);
    (3..7).for_each(|block| image.write(HEAP + 64 * block, [HEAP + 64 * (block + 1)]));
    image.write(HEAP + 64 * 7, [0]);
    image.with_pages(&[HEAP + SLICE..HEAP + SLICE + PAGE])
}

#[test]
fn a_heap_of_mimalloc_3() {
    let heaps = mimalloc_3().heaps();
    let [heap] = &heaps[..] else { panic!("{heaps:#?}") };
    assert_eq!((heap.allocator, heap.arenas), (Allocator::Mimalloc, 1));
    assert_eq!((heap.used, heap.cached), (piece(3, 128 + 100_000, 128 + PAGE), piece(1, 64, 64)));
    assert_eq!(heap.free, piece(2, (3 << 16) - 192 - 100_000, PAGE - 192));
    assert_eq!(heap.ranges, [HEAP..HEAP + (64 << 10), HEAP + (64 << 10)..HEAP + (192 << 10)]);
}

/// Returns a heap of mimalloc 3 where other memory comes first that looks like a page map up to its
/// first page. The other tables of this map are zeroes: of a GiB that is resident.
fn mimalloc_3_behind_another() -> Image {
    const OTHER: u64 = 0x7a00_0000_0000;
    const ZEROES: u64 = 0x7b00_0000_0000;
    let mut image = mimalloc_3();
    image.private.insert(0, OTHER..OTHER + 4 * MIB);
    image.private.insert(1, ZEROES..ZEROES + (1 << 30));
    image.write(DATA, [OTHER]);
    let (table, page) = (OTHER + 2 * MIB, OTHER + 3 * MIB);
    image.write(OTHER + 8, [table]);
    (1..1 << 14).for_each(|number| image.write(OTHER + 8 + 8 * number, [ZEROES + (64 << 10) * (number - 1)]));
    image.write(table, [page]);
    image.write(page, [8, 0, 8 << 32 | 8 << 16, 0, 0, 64, (1 << 13) << 16]);
    let mut image = image.with_pages(&[HEAP + (64 << 10)..HEAP + (64 << 10) + PAGE]);
    let mut pages = PresentPages::default();
    let (before, behind) = (0..ZEROES, ZEROES + (1 << 30)..u64::MAX);
    image.memory.pages.within(before).for_each(|part| pages.push(part));
    pages.push(ZEROES..ZEROES + (1 << 30));
    image.memory.pages.within(behind).for_each(|part| pages.push(part));
    image.memory.pages = pages;
    image
}

#[test]
fn a_page_map_behind_other_memory_that_looks_like_one() {
    let expected = mimalloc_3().heaps();
    // The tables of zeroes would be 128 Mi words, of which half of the limit is looked at.
    for (words, is_found) in [(1 << 17, true), (1 << 10, false)] {
        mimalloc_3_behind_another().in_limits(|search, reader| {
            let mut words_left = words;
            let heap = mimalloc::page_map::find_within(search, reader, &mut words_left);
            assert_eq!(heap.as_slice(), if is_found { &expected[..] } else { &[] });
            assert!(words_left < words / 2 && search.is_doubtful.get() != is_found, "{words_left}");
        });
    }
}

/// Returns a heap of tcmalloc with a span of blocks of 16 bytes, of which ten are not in its list,
/// two of these in the cache of a thread; a large block; and free pages.
fn tcmalloc() -> Image {
    const LEAF: u64 = OWN + 8;
    const SPANS: u64 = OWN + 3 * MIB;
    const CACHE: u64 = OWN + 3 * MIB + 16 * PAGE;
    const ROOT: u64 = DATA + 0x808;
    let mut image = Image { data: vec![DATA..DATA + 4 * MIB], ..Image::default() };
    image.private = vec![OWN..OWN + 4 * MIB, HEAP..HEAP + MIB];
    image.write(ROOT + 8 * (HEAP >> 31), [LEAF]);
    let sizes: Vec<u64> = [0, 8].into_iter().chain((1..42).map(|unit| 16 * unit)).chain([256 << 10]).collect();
    for (pair, at) in sizes.chunks(2).zip((DATA + 2 * MIB..).step_by(8)) {
        image.write(at, [pair[0] | pair[1] << 32]);
    }
    let first = HEAP >> 13;
    for (number, (page, pages, bits)) in
        [(0, 1, 10 | 2 << 16), (1, 3, 1), (4, 2, 1 << 24), (6, 1, 2 << 24)].into_iter().enumerate()
    {
        let span = SPANS + 48 * number as u64;
        image.write(span, [first + page, pages, 0, 0, 0, bits]);
        image.write(LEAF + 8 * ((first + page) % (1 << 18)), [span]);
    }
    // Inside of a span is the address of a former one.
    image.write(LEAF + 8 * ((first + 2) % (1 << 18)), [SPANS]);
    image.write(DATA + 3 * MIB, [CACHE]);
    for (class, size) in (0..).zip(sizes) {
        image.write(CACHE + 32 * class, [0, 0, 0, size]);
    }
    image.write(CACHE + 64, [HEAP + 160, 2]);
    image.write(HEAP, [1]);
    image.write(HEAP + 160, [HEAP + 320]);
    image.with_pages(&[LEAF / PAGE * PAGE..LEAF / PAGE * PAGE + PAGE])
}

#[test]
fn a_heap_of_tcmalloc() {
    let heaps = tcmalloc().heaps();
    let [heap] = &heaps[..] else { panic!("{heaps:#?}") };
    assert_eq!((heap.allocator, heap.caches), (Allocator::Tcmalloc, 1));
    assert_eq!((heap.used, heap.cached), (piece(9, 128 + 3 * 8192, 128), piece(2, 32, 32)));
    assert_eq!(heap.free, piece(1, 8192 - 160, PAGE - 160));
    assert_eq!((heap.dirty, heap.returned), (piece(1, 2 * 8192, 0), piece(1, 8192, 0)));
    assert_eq!(heap.bookkeeping.bytes, 4 * MIB);
}

/// Returns a heap of musl with a group of slots of 1008 bytes in a mapping, of which one has a
/// group of slots of 32 bytes.
fn musl() -> Image {
    const AREA: u64 = OWN;
    const SECRET: u64 = 0x1234_5678_9abc_def0;
    let mut image = Image { data: vec![DATA..DATA + PAGE], ..Image::default() };
    image.private = vec![OWN..OWN + PAGE, HEAP..HEAP + PAGE];
    image.write(DATA + 64, [SECRET, 1, 0, 0, 0, 0, 0, AREA]);
    image.write(AREA, [SECRET, 0, 2]);
    let (outer, inner) = (AREA + 24, AREA + 64);
    // Four slots of 63 units in a page, of which the third is free.
    image.write(outer, [0, 0, HEAP, 0b0100, 3 | 19 << 6 | 1 << 12]);
    image.write(HEAP, [outer]);
    // In the second slot 31 slots of 2 units, of which three are free.
    let start = HEAP + 16 + 1008;
    image.write(inner, [0, 0, start, 0b11 | 0b100 << 32, 29 | 1 << 6]);
    image.write(start, [inner]);
    image.with_pages(&[])
}

#[test]
fn a_heap_of_musl() {
    let heaps = musl().heaps();
    let [heap] = &heaps[..] else { panic!("{heaps:#?}") };
    assert_eq!(heap.allocator, Allocator::Musl);
    let used = 2 * 1008 + 27 * 32;
    assert_eq!(heap.used, piece(29, used, used));
    assert_eq!(heap.bookkeeping, piece(3, 2 * 16 + PAGE, 2 * 16 + PAGE));
    assert_eq!(heap.total().bytes, 2 * PAGE);
    assert_eq!(heap.free.bytes, PAGE - 32 - used);
}

/// A root of which all words name one leaf, or leaves that share memory.
#[test]
fn tables_that_are_named_again_and_again() {
    for step in [0, 64] {
        let mut image = jemalloc();
        let leaf = OWN + MIB + 64;
        for number in (0..1 << 18).filter(|number| *number != HEAP >> 30) {
            image.write(DATA + 8 + 8 * number, [leaf + step * (number % 1024)]);
        }
        let image = image.with_pages(&[OWN..OWN + 4 * MIB]);
        image.in_limits(|search, reader| assert_eq!(jemalloc::Heap::read(search, reader, DATA + 8), None));
    }
    let mut image = tcmalloc();
    for number in (0..1 << 17).filter(|number| *number != HEAP >> 31) {
        image.write(DATA + 0x808 + 8 * number, [OWN + 8]);
    }
    let image = image.with_pages(&[OWN..OWN + 4 * MIB]);
    image.in_limits(|search, reader| assert!(tcmalloc::Heap::read(search, reader, DATA + 0x808).is_none()));
}

/// Returns the data and the page map of mimalloc 3, whose first level has the address of one table
/// in all words. This table has two pages in turn.
fn mimalloc_with_one_table() -> Image {
    const MAP: u64 = OWN;
    const TABLE: u64 = OWN + 2 * MIB;
    const PAGES: u64 = OWN + 3 * MIB;
    let mut image = Image { data: vec![DATA..DATA + PAGE], ..Image::default() };
    image.private = vec![OWN..OWN + 4 * MIB];
    image.write(DATA, [MAP]);
    (0..1 << 18).for_each(|number| image.write(MAP + 8 * number, [TABLE]));
    (0..1 << 13).for_each(|number| image.write(TABLE + 8 * number, [PAGES + 64 * (number % 2)]));
    for page in [PAGES, PAGES + 64] {
        image.write(page, [8, 0, 8 << 32 | 8 << 16, 0, 0, 64, (1 << 13) << 16]);
    }
    image.with_pages(&[])
}

/// The page map has 2^31 entries, each of which would be another page.
#[test]
fn a_page_map_with_one_table() {
    mimalloc_with_one_table().in_limits(|search, reader| {
        assert!(mimalloc::page_map::find(search, reader).is_none());
        assert!(search.is_doubtful.get());
    });
}

/// Each description without sense is read several times, since it may be changing.
#[test]
fn a_leaf_without_sense() {
    let mut image = jemalloc();
    (14..4096).for_each(|page| image.write(OWN + MIB + 64 + 8 * page, [OWN + 0x1800]));
    let image = image.with_pages(&[]);
    image.in_limits(|search, reader| assert_eq!(jemalloc::find(search, reader), []));
    let mut image = tcmalloc();
    (7..4096).for_each(|page| image.write(OWN + 8 + 8 * page, [OWN + 3 * MIB + 2048]));
    let image = image.with_pages(&[]);
    image.in_limits(|search, reader| assert_eq!(tcmalloc::find(search, reader), []));
}

/// Zeroes may be the beginning of a leaf: of all that are tried, only so many words are looked at.
#[test]
fn zeroes_that_may_be_leaves() {
    let image = Image { private: vec![OWN..OWN + 4 * MIB], ..Image::default() };
    let image = image.with_pages(&[OWN..OWN + 2 * MIB]);
    let doubtful = Cell::new(false);
    let (search, mut words_left) = (image.search(&image.memory, &doubtful), 20_000);
    let reader = &mut CachedReader::new(&image.memory, &image.memory.pages);
    for left in [20_000 - 8192, 20_000 - 2 * 8192, 0, 0] {
        assert_eq!(jemalloc::number_of_leaf(&search, reader, OWN, &mut words_left), None);
        assert_eq!(words_left, left);
    }
    words_left = 10_000;
    for left in [10_000 - 8192, 0] {
        assert_eq!(mimalloc::page_map::first_page(&search, reader, OWN, &mut words_left), None);
        assert_eq!(words_left, left);
    }
}

/// The list of a cache may change while it is read, so that it leads to blocks again.
#[test]
fn a_list_with_a_circle() {
    let mut image = tcmalloc();
    image.write(HEAP + 320, [HEAP + 160]);
    image.write(OWN + 3 * MIB + 16 * PAGE + 64, [HEAP + 160, 40_000]);
    let heaps = image.heaps();
    assert_eq!((heaps[0].used.chunks, heaps[0].cached), (9, piece(2, 32, 32)));
    assert_eq!(heaps[0].total().bytes, tcmalloc().heaps()[0].total().bytes);
    // The caches may have more than what was in use before.
    let mut heap = AllocatorHeap::new(Allocator::Tcmalloc);
    heap.used = piece(2, 64, 64);
    heap.move_to_cached(piece(3, 48, 80));
    assert_eq!((heap.used, heap.cached), (piece(0, 16, 0), piece(2, 48, 64)));
}

/// Returns the resident bytes in use on the pages of a heap: of blocks, and of the allocator.
fn filled(image: &Image, heap: &AllocatorHeap) -> [u64; 2] {
    let pages = heap.pages.as_ref().unwrap();
    let mut sums = [0; 2];
    for range in &heap.ranges {
        for (address, fill) in pages.fills.within(&image.memory.pages, range.clone()) {
            let is_own = pages.groups.iter().any(|(group, of)| *of == OWN_PAGES && group.contains(&address));
            sums[usize::from(is_own)] += u64::from(fill.used);
        }
    }
    sums
}

const OWN_PAGES: u64 = super::OWN;

#[test]
fn pages_have_the_blocks_that_were_counted() {
    // Free blocks of mimalloc and tcmalloc are in lists.
    const BLOCKS: u64 = HEAP + (64 << 10) + 128;
    let mut mimalloc = mimalloc();
    mimalloc.write(HEAP + 264 + 80 + 16, [BLOCKS + 3 * 64]);
    mimalloc.write(HEAP + 264 + 80 + 40, [(BLOCKS + 64) | 2]);
    (3..7).for_each(|block| mimalloc.write(BLOCKS + 64 * block, [BLOCKS + 64 * (block + 1)]));
    mimalloc.write(BLOCKS + 64 * 7, [0]);
    let mut tcmalloc = tcmalloc();
    let free: Vec<u64> = (8..256).filter(|block| ![10, 20].contains(block)).map(|block| HEAP + 16 * block).collect();
    tcmalloc.write(OWN + 3 * MIB + 32, [free[0]]);
    free.windows(2).for_each(|pair| tcmalloc.write(pair[0], [pair[1]]));
    // The second page of the span is not there: the list ends.
    tcmalloc.write(HEAP + 16 * 255, [HEAP + 16 * 256]);
    for image in [jemalloc(), mimalloc, mimalloc_3(), tcmalloc.clone(), musl()] {
        let (counted, by_page) = (image.heaps(), image.read(true));
        let [heap] = &by_page[..] else { panic!("{by_page:#?}") };
        let [blocks, own] = filled(&image, heap);
        assert_eq!(blocks, heap.used.resident, "{heap:#?}");
        assert!(own <= heap.bookkeeping.resident, "{heap:#?}");
        assert_eq!(AllocatorHeap { pages: None, ..heap.clone() }, counted[0]);
    }
    // Lists that make a circle, or lead out of their span, come to an end.
    for next in [HEAP + 16 * 9, HEAP + MIB] {
        tcmalloc.write(HEAP + 16 * 12, [next]);
        let by_page = tcmalloc.read(true);
        assert!(filled(&tcmalloc, &by_page[0])[0] > 128, "{by_page:#?}");
    }
}

/// Two allocators in one process are both found.
#[test]
fn a_process_without_a_heap_and_one_with_two() {
    assert_eq!(Image::default().heaps(), []);
    let (mut both, other) = (musl(), jemalloc());
    let moved = 0x10_0000_0000;
    let is_address = |word: u64| (OWN..HEAP + MIB).contains(&word);
    both.memory.words = both
        .memory
        .words
        .iter()
        .map(|(at, word)| (at + moved, if is_address(*word) { word + moved } else { *word }))
        .collect();
    let shift = |range: &Range<u64>| range.start + moved..range.end + moved;
    both.data = both.data.iter().map(shift).chain(other.data).collect();
    both.private = both.private.iter().map(shift).chain(other.private).collect();
    both.memory.words.extend(other.memory.words);
    both.private.sort_by_key(|range| range.start);
    both.data.sort_by_key(|range| range.start);
    let found = both.with_pages(&[]).heaps();
    let found: Vec<Allocator> = found.into_iter().map(|heap| heap.allocator).collect();
    assert_eq!(found, [Allocator::Jemalloc, Allocator::Musl]);
}

/// The fuzz target on some data.
#[test]
fn memory_that_repeats_itself() {
    let patterns: [&[u8]; 4] = [&[], &[0; 64], &[0x40, 0, 0, 0x02, 0x40, 0x7f, 0, 0], &[255; 9]];
    patterns.iter().for_each(|pattern| crate::fuzzing::allocators(&pattern.repeat(40)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Damaged descriptions give no heap, or one whose pieces make sense. Nothing panics.
    #[test]
    fn damaged_heaps(which in 0..5_usize, changes in vec((any::<prop::sample::Index>(), any::<u64>(), 0..64_u32), 1..12)) {
        let mut image = [jemalloc, mimalloc, tcmalloc, musl, mimalloc_3][which]();
        let places: Vec<u64> = image.memory.words.keys().copied().collect();
        for (place, word, shift) in changes {
            image.memory.words.insert(*place.get(&places), word >> shift);
        }
        for heap in image.read(true) {
            prop_assert!(heap.ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{heap:?}");
            prop_assert!(heap.ranges.iter().all(|range| range.start < range.end), "{heap:?}");
            let total = heap.total();
            prop_assert!(total.resident <= image.memory.pages.bytes_within(0..u64::MAX), "{heap:?}");
        }
    }
}
