//! A heap of glibc 2.36 that is written here word by word, and hostile ones.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::testing::Imitation;

const MAIN: u64 = 0x7f00_0000_1000;
const BRK: u64 = 0x5500_0000_0000;
const BRK_END: u64 = BRK + 0x2_1000;
/// The first heap of the second arena, whose description is behind its `heap_info`.
const HEAP: u64 = 0x7e00_0400_0000;
const HEAP_SIZE: u64 = 0x3000;
const MMAP: u64 = 0x7f10_0000_0000;

impl Imitation {
    /// Writes a chunk, and the word of the next with its own mark.
    fn chunk(&mut self, address: u64, size: u64, is_used: bool) -> u64 {
        let flags = self.words.get(&(address + 8)).copied().unwrap_or(1) & 7;
        self.write(address + 8, [size | flags]);
        self.write(address + size + 8, [u64::from(is_used)]);
        address + size
    }

    /// Writes the description of an arena whose bins are all empty.
    fn state(&mut self, address: u64, top: u64, next: u64) {
        let field = address + 96;
        self.write(field, [top, 0]);
        (0..127).for_each(|bin| self.write(field + 16 + 16 * bin, [field + 16 * bin; 2]));
        self.write(field + 16 + 8 * 254 + 16, [next]);
    }
}

/// A process with a heap.
struct Example {
    memory: Imitation,
    /// The address of the first used chunk of the main arena.
    used: u64,
}

/// Returns a link of a list of freed chunks, as it is since 2.32.
fn mixed(at: u64, link: u64) -> u64 {
    at >> 12 ^ link
}

/// Returns a main arena with chunks of each sort, another one, and a block with a mapping of its
/// own, behind which there is other memory.
fn example() -> Example {
    let mut memory = Imitation::default();
    let ranges = [BRK..BRK_END, HEAP..HEAP + HEAP_SIZE, MAIN..MAIN + 0x2000, MMAP..MMAP + 0x3000];
    ranges.into_iter().for_each(|range| memory.pages.push(range));
    let cache = BRK;
    let used = memory.chunk(cache, 0x290, true);
    let cached = memory.chunk(used, 0x40, true);
    let cached_too = memory.chunk(cached, 0x40, true);
    let fast = memory.chunk(cached_too, 0x40, true);
    let free = memory.chunk(fast, 0x20, true);
    let behind = memory.chunk(free, 0x600, false);
    let top = memory.chunk(behind, 0x400, true);
    memory.write(top + 8, [(BRK_END - top) | 1]);
    // Two chunks of 64 bytes in the third bin of the cache.
    memory.write(cache + 16, [2 << 32]);
    memory.write(cache + 16 + 128 + 8 * 2, [cached + 16]);
    memory.write(cached + 16, [mixed(cached + 16, cached_too + 16)]);
    memory.write(cached_too + 16, [mixed(cached_too + 16, 0)]);
    memory.state(MAIN, top, HEAP + 0x30);
    memory.write(MAIN + 16, [fast]);
    memory.write(fast + 16, [mixed(fast + 16, 0)]);

    let first = (HEAP + 0x30 + 2200).next_multiple_of(16);
    let second_top = memory.chunk(first, 0x500, true);
    memory.write(second_top + 8, [(HEAP + HEAP_SIZE - second_top) | 1]);
    memory.write(HEAP, [HEAP + 0x30, 0, HEAP_SIZE, HEAP_SIZE]);
    memory.state(HEAP + 0x30, second_top, MAIN);

    memory.write(MMAP, [0, 0x2000 | 2]);
    memory.write(MMAP + 0x2000, [7, 0x1000 | 2]);
    Example { memory, used }
}

fn places() -> Places {
    let anonymous = vec![HEAP..HEAP + HEAP_SIZE, MMAP..MMAP + 0x3000];
    Places { brk: BRK..BRK_END, data: std::iter::once(MAIN..MAIN + 0x2000).collect(), anonymous }
}

fn read(memory: &Imitation) -> Option<GlibcHeap> {
    GlibcHeap::read(memory, &memory.pages, &places(), &mut Duration::default())
}

/// Reads a heap by several threads, in segments of a page or two.
fn read_in_segments(memory: &Imitation, places: &Places) -> Option<GlibcHeap> {
    GlibcHeap::read_by(memory, &memory.pages, places, Plan { threads: 3, segment: 0x1800 }, &mut Duration::default())
}

/// Returns the bytes in use on all pages of all heaps.
fn filled(heap: &GlibcHeap, memory: &Imitation) -> u64 {
    let pages = |heap: &HeapFills| heap.fills.within(&memory.pages, heap.known.clone()).collect::<Vec<_>>();
    heap.fills.iter().flat_map(pages).map(|(_, fill)| u64::from(fill.used)).sum()
}

/// In a statically linked program, the break has moved for that before the first allocation.
#[test]
fn thread_local_storage_in_front_of_the_heap() {
    let Example { mut memory, .. } = example();
    memory.write(BRK - 0x350 + 8, [MAIN + 96, 0x1_0000, 0x7fff_0000]);
    memory.write(BRK - 0x200 + 8, [0x21]);
    memory.pages = PresentPages::default();
    let ranges = [BRK - 0x1000..BRK_END, HEAP..HEAP + HEAP_SIZE, MAIN..MAIN + 0x2000, MMAP..MMAP + 0x3000];
    ranges.into_iter().for_each(|range| memory.pages.push(range));
    let places = Places { brk: BRK - 0x1000..BRK_END, ..places() };
    let heap = GlibcHeap::read(&memory, &memory.pages, &places, &mut Duration::default()).expect("a heap");
    let main = &heap.arenas[0];
    assert_eq!((main.system_bytes(), main.unread.bytes, main.used.chunks), (BRK_END - BRK, 0, 2), "{main:?}");
}

#[test]
fn each_chunk_is_what_it_is() {
    let heap = read(&example().memory).expect("a heap");
    assert_eq!((heap.arenas.len(), heap.caches), (2, 1));
    let [main, second] = &heap.arenas[..] else { panic!("{heap:?}") };
    assert_eq!((main.is_main, main.address, main.heaps), (true, MAIN, 1));
    let sums = |piece: Piece| (piece.chunks, piece.bytes);
    assert_eq!(sums(main.used), (2, 0x440), "{main:?}");
    assert_eq!(sums(main.cached), (2, 0x80));
    assert_eq!(sums(main.fast), (1, 0x20));
    assert_eq!(sums(main.free), (1, 0x600));
    assert_eq!(sums(main.bookkeeping), (1, 0x290));
    assert_eq!((main.system_bytes(), main.unread.bytes), (BRK_END - BRK, 0));
    assert_eq!((second.is_main, second.address, second.heaps), (false, HEAP + 0x30, 1));
    assert_eq!(sums(second.used), (1, 0x500));
    assert_eq!((second.system_bytes(), sums(second.bookkeeping).1), (HEAP_SIZE, 0x8d0));
    assert_eq!(sums(heap.mapped), (1, 0x2000));
    // All pages of the end count but the one with its beginning; the freed chunk has no whole page.
    assert_eq!((main.trimmable, second.trimmable), (0x2_0000, 0));
    // All of it is resident.
    let total = heap.total();
    assert_eq!(filled(&heap, &example().memory), total.used.bytes + total.bookkeeping.bytes);
    assert!(total.pieces().iter().all(|piece| piece.resident == piece.bytes), "{total:?}");
}

#[test]
fn pages_that_are_not_there_are_not_read() {
    let mut example = example();
    let mut pages = PresentPages::default();
    // The end of the brk heap is gone, but not the header of the chunk at the end.
    for range in example.memory.pages.within(0..u64::MAX).collect::<Vec<_>>() {
        let end = if range.start == BRK { BRK + 0x2000 } else { range.end };
        pages.push(range.start..end);
    }
    example.memory.pages = pages;
    let heap = read(&example.memory).expect("a heap");
    let main = &heap.arenas[0];
    assert_eq!((main.system_bytes(), main.unread.bytes), (BRK_END - BRK, 0));
    assert_eq!(main.pieces().iter().map(|piece| piece.resident).sum::<u64>(), 0x2000);
}

#[test]
fn what_is_behind_a_broken_chunk_is_unread() {
    let mut example = example();
    example.memory.write(example.used + 8, [0x41_4141]);
    let heap = read(&example.memory).expect("a heap");
    let main = &heap.arenas[0];
    assert_eq!(main.unread.bytes, BRK_END - example.used);
    assert_eq!((main.system_bytes(), main.unread.resident), (BRK_END - BRK, BRK_END - example.used));
}

/// The kernel's list is older than the heap: what it has is walked, and the rest is not read.
#[test]
fn a_heap_that_has_grown_since() {
    let example = example();
    let places = Places { brk: BRK..BRK + 0x1000, ..places() };
    let mut memory = example.memory.clone();
    let mut pages = PresentPages::default();
    for range in memory.pages.within(0..u64::MAX).collect::<Vec<_>>() {
        let end = if range.start == BRK { BRK + 0x1000 } else { range.end };
        pages.push(range.start..end);
    }
    memory.pages = pages;
    let heap = GlibcHeap::read(&memory, &memory.pages, &places, &mut Duration::default()).expect("a heap");
    let main = &heap.arenas[0];
    assert_eq!(main.system_bytes(), 0x1000);
    assert!(main.unread.bytes > 0 && main.free.bytes == 0x600, "{main:?}");
}

#[test]
fn lists_that_make_no_sense_are_left_out() {
    let mut example = example();
    // The list of the fastbin goes on to nowhere.
    example.memory.write(example.used + 0xc0 + 16, [0x1234_5670]);
    // The cache has another number of chunks.
    example.memory.write(BRK + 16, [3 << 32]);
    let heap = read(&example.memory).expect("a heap");
    let main = &heap.arenas[0];
    assert_eq!((heap.caches, main.fast, main.cached), (0, Piece::default(), Piece::default()));
    assert_eq!(main.system_bytes(), BRK_END - BRK);
}

#[test]
fn without_bins_there_is_no_heap() {
    let mut example = example();
    (0..110).for_each(|bin| example.memory.write(MAIN + 96 + 16 + 16 * bin, [0, 0]));
    assert_eq!(read(&example.memory), None);
}

/// The size of a chunk in units of 16 bytes, true if it is in use, and the words of its contents:
/// they may look like chunks.
type Sample = (u64, bool, Vec<u64>);

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let size = prop_oneof![8 => 2_u64..40, 1 => 40_u64..2000];
    let words = vec(prop_oneof![Just(0x21_u64), Just(0x31), Just(0x40), Just(0), any::<u64>()], 0..30);
    vec((size, any::<bool>(), words), 1..150)
}

/// Returns a brk heap with such chunks, of which no two neighbours are free.
fn heap_of(samples: &[Sample]) -> (Imitation, Places, [Piece; 2]) {
    let mut memory = Imitation::default();
    let (mut at, mut was_used, mut sums) = (BRK, true, [Piece::default(); 2]);
    memory.write(BRK + 8, [1]);
    for (units, is_used, words) in samples {
        let (size, is_used) = (units * 16, *is_used || !was_used);
        let room = size / 8 - 2;
        (0..room).zip(words).for_each(|(word, &value)| memory.write(at + 16 + 8 * word, [value]));
        let next = memory.chunk(at, size, is_used);
        if !is_used {
            memory.write(next, [size]);
        }
        sums[usize::from(is_used)].add(size, size);
        (at, was_used) = (next, is_used);
    }
    let end = (at + 0x40).next_multiple_of(0x1000);
    memory.write(at + 8, [(end - at) | u64::from(was_used)]);
    memory.pages.push(BRK..end);
    memory.pages.push(MAIN..MAIN + 0x2000);
    memory.state(MAIN, at, MAIN);
    let data = std::iter::once(MAIN..MAIN + 0x2000).collect();
    (memory, Places { brk: BRK..end, data, anonymous: Vec::new() }, sums)
}

/// The caller can account for the work of all threads.
#[test]
fn helpers_say_how_long_they_worked() {
    let Example { memory, .. } = example();
    let read = |threads| {
        let mut helped = Duration::ZERO;
        let plan = Plan { threads, segment: 0x1800 };
        GlibcHeap::read_by(&memory, &memory.pages, &places(), plan, &mut helped).expect("a heap");
        helped
    };
    assert!(read(3) > Duration::ZERO);
    assert_eq!(read(1), Duration::ZERO);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A heap that is divided has the same sums as one that is walked at once, though the contents
    /// of blocks look like chunks.
    #[test]
    fn segments_add_up_to_the_heap(samples in samples()) {
        let (memory, places, [free, used]) = heap_of(&samples);
        let one = Plan { threads: 1, segment: 0 };
        let heap = GlibcHeap::read_by(&memory, &memory.pages, &places, one, &mut Duration::default()).expect("a heap");
        prop_assert_eq!((heap.arenas[0].free, heap.arenas[0].used), (free, used));
        prop_assert_eq!(filled(&heap, &memory), used.bytes);
        let divided = read_in_segments(&memory, &places).expect("a heap");
        prop_assert_eq!(&divided, &heap);
    }

    /// The chunk at the end of the heap is known though it has moved up or down since the arena
    /// was looked at.
    #[test]
    fn a_top_that_has_moved_is_found(samples in samples(), old in 0_u64..1 << 16) {
        let (memory, places, _) = heap_of(&samples);
        let heap = GlibcHeap::read(&memory, &memory.pages, &places, &mut Duration::default()).expect("a heap");
        let old = BRK + (old * 16) % (places.brk.end - BRK);
        let extent = Extent { range: places.brk.clone(), first: BRK, top: Some(old), is_brk: true };
        let mut reader = WordReader::new(&memory, &memory.pages);
        let walked = walk::walk(&mut reader, &memory.pages, &extent, (BRK, places.brk.end));
        let arena = &heap.arenas[0];
        prop_assert_eq!((walked.top, walked.used, walked.unread.bytes), (arena.top, arena.used, 0));
    }
}

proptest! {
    /// A sound heap in which some words are wrong: the sums still are those of its memory.
    #[test]
    fn hostile_memory_does_no_harm(changes in vec((0_usize..1000, prop_oneof![
        any::<u64>(), 0_u64..0x1000, BRK..BRK_END, HEAP..HEAP + HEAP_SIZE
    ]), 0..20)) {
        let Example { mut memory, .. } = example();
        let addresses: Vec<u64> = memory.words.keys().copied().collect();
        for (at, word) in changes {
            memory.write(addresses[at % addresses.len()], [word]);
        }
        let heap = read(&memory);
        prop_assert_eq!(&read_in_segments(&memory, &places()), &heap);
        if let Some(heap) = heap {
            for arena in &heap.arenas {
                prop_assert!(arena.pieces().iter().all(|piece| piece.resident <= piece.bytes), "{arena:?}");
            }
        }
    }

    /// Memory that repeats some bytes, among them addresses of the heap.
    #[test]
    fn any_memory_does_no_harm(words in vec(prop_oneof![
        any::<u64>(), 0_u64..0x1000, BRK..BRK + 0x4000, MAIN - 0x1000..MAIN + 0x1000
    ], 0..600)) {
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        crate::fuzzing::glibc(&data);
        crate::fuzzing::smaps(&data);
    }
}
