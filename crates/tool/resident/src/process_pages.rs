//! The pages of the heaps of a process.

use std::ops::Range;

use crate::account::ResidentMemory;
use crate::allocators::Allocator;
use crate::allocators::{AllocatorHeap, AllocatorPages, GroupNumbers, OWN};
use crate::fill::PageFill;
use crate::glibc::GlibcHeap;
use crate::heap::{HeapMap, Run, Slice};
use crate::heap_pages::{HeapPage, HeapPages};
use crate::pages::{PAGE, PresentPages};

/// The name of the group of the descriptions of other allocators than glibc's.
const DESCRIPTIONS: &str = "the allocator's own memory";

impl ResidentMemory {
    /// Returns the resident pages of all heaps that are known, by arena: of glibc's malloc, with
    /// blocks that have a mapping of their own; of Heapledger's allocator; and, if the process was
    /// read [by page](ResidentMemory::of_process_by_page), of jemalloc, mimalloc, tcmalloc and
    /// musl. `None` if there is no heap.
    ///
    /// Freed blocks in the caches of threads are free. In runs of Heapledger's allocator, the bytes
    /// in use are spread over the pages that were ever used, since it is not known which blocks
    /// are. Takes 16 bytes of memory for each page.
    pub fn heap_pages(&self) -> Option<HeapPages> {
        let names = self.allocator_names(|heap| heap.pages.is_some());
        let has_one = names.len() == 1;
        let mut filling =
            Filling { present: self.present_pages(), has_one, groups: GroupNumbers::default(), pages: Vec::new() };
        self.own_heap.iter().for_each(|map| filling.add_heapledger(map));
        for (number, heap) in self.allocators.iter().enumerate() {
            heap.pages.iter().for_each(|pages| filling.add_allocator(number, heap, pages));
        }
        self.glibc.iter().filter(|heap| has_pages(heap)).for_each(|glibc| filling.add_glibc(glibc));
        if names.is_empty() {
            return None;
        }
        let mut heap = HeapPages::new(listed(&names), "arena");
        heap.apart = filling.groups.numbers_of(|(_, arena)| [OWN, NO_ARENA].contains(arena));
        (heap.groups, heap.pages) = (filling.groups.names, filling.pages);
        heap.pages.sort_by_key(|page| page.address);
        // Two heaps may share a page, if what is read is damaged.
        heap.pages.dedup_by_key(|page| page.address);
        Some(heap)
    }

    /// Returns the resident pages of all known heaps, and of other private memory that has live
    /// blocks, by what is live on each. `live` are pages in any order. All others are in the group
    /// `rest`, and empty. The caller sets the names of groups.
    ///
    /// Takes 48 bytes of memory for each page.
    pub fn live_heap_pages(&self, live: &[LiveRange], rest: u32, grouping: &str) -> HeapPages {
        let names = self.allocator_names(|_| true);
        let allocator = if names.is_empty() { "private memory".to_owned() } else { listed(&names) };
        let mut heap = HeapPages::new(allocator, grouping);
        heap.apart = vec![rest];
        let present = self.present_pages();
        let addresses = |range: Range<u64>| present.within(range).flat_map(|part| part.step_by(PAGE as usize));
        for LiveRange { addresses: range, used, blocks, group } in live {
            let page = HeapPage { address: 0, group: *group, used: *used, blocks: *blocks };
            heap.pages.extend(addresses(range.clone()).map(|address| HeapPage { address, ..page }));
        }
        for range in self.heap_ranges() {
            let page = HeapPage { address: 0, group: rest, used: 0, blocks: 0 };
            heap.pages.extend(addresses(range).map(|address| HeapPage { address, ..page }));
        }
        // The live ones come first, and so remain.
        heap.pages.sort_by_key(|page| page.address);
        heap.pages.dedup_by_key(|page| page.address);
        heap
    }

    /// Returns the names of the allocators that have a heap, of others those that are wanted.
    fn allocator_names(&self, is_wanted: impl Fn(&AllocatorHeap) -> bool) -> Vec<&'static str> {
        let mut names = Vec::new();
        names.extend(self.own_heap.iter().filter(|map| !is_empty(map)).map(|_| "Heapledger's allocator"));
        names.extend(self.allocators.iter().filter(|heap| is_wanted(heap)).map(|heap| heap.allocator.name()));
        names.extend(self.glibc.iter().filter(|heap| has_pages(heap)).map(|_| "glibc's malloc"));
        names.dedup();
        names
    }
}

/// Addresses whose pages have live blocks, all in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRange {
    /// Whole pages.
    pub addresses: Range<u64>,
    /// The live bytes on each page, at most 4096.
    pub used: u16,
    /// The number of live blocks on each page.
    pub blocks: u16,
    /// The group of the pages.
    pub group: u32,
}

fn is_empty(map: &HeapMap) -> bool {
    map.chunks.is_empty() && map.huge.is_empty()
}

/// True if glibc's malloc is used: a program with another allocator has it, too, and mostly without
/// a page.
fn has_pages(heap: &GlibcHeap) -> bool {
    heap.page_use.all.pages > 0 || heap.mapped.resident > 0
}

/// Returns a list in words, such as `jemalloc and glibc's malloc`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [name] => (*name).to_owned(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    }
}

/// Groups by the number of the heap (an index, or one of glibc or Heapledger's) and of the arena.
type Key = (usize, u64);
const GLIBC: usize = usize::MAX;
const HEAPLEDGER: usize = usize::MAX - 1;
/// The group of glibc's blocks with a mapping of their own, and that of memory without an arena.
const MAPPED: u64 = u64::MAX - 1;
const NO_ARENA: u64 = u64::MAX - 2;

/// The pages of a process so far.
struct Filling<'a> {
    present: &'a PresentPages,
    /// True if there is one allocator: then groups need not name it.
    has_one: bool,
    groups: GroupNumbers<Key>,
    pages: Vec<HeapPage>,
}

impl Filling<'_> {
    /// Returns the number of a group. `name` is its name without the allocator.
    fn group(&mut self, key: Key, allocator: &str, name: impl FnOnce() -> String) -> u32 {
        let has_one = self.has_one;
        self.groups.number(key, || if has_one { name() } else { format!("{allocator}, {}", name()) })
    }

    /// Adds the resident pages of some addresses, each with the same use.
    fn add(&mut self, range: Range<u64>, group: u32, used: u16, blocks: u16) {
        let pages = self.present.within(range).flat_map(|part| part.step_by(PAGE as usize));
        self.pages.extend(pages.map(|address| HeapPage { address, group, used, blocks }));
    }

    fn add_glibc(&mut self, glibc: &GlibcHeap) {
        const NAME: &str = "glibc's malloc";
        // Arenas without a page keep their place among the rows.
        for (arena, of) in glibc.arenas.iter().enumerate() {
            self.group((GLIBC, arena as u64), NAME, || of.name());
        }
        for fills in &glibc.fills {
            let group = self.group((GLIBC, fills.arena as u64), NAME, String::new);
            let pages = fills.fills.within(self.present, fills.known.clone());
            self.pages.extend(pages.map(|(address, fill)| page_of(address, group, fill)));
        }
        for range in &glibc.mapped_ranges {
            let group = self.group((GLIBC, MAPPED), NAME, || "blocks with mappings of their own".to_owned());
            self.add(range.clone(), group, PAGE as u16, 1);
        }
    }

    fn add_allocator(&mut self, number: usize, heap: &AllocatorHeap, pages: &AllocatorPages) {
        let name = heap.allocator.name();
        let mut groups = pages.groups.iter().peekable();
        for range in &heap.ranges {
            for (address, fill) in pages.fills.within(self.present, range.clone()) {
                while groups.next_if(|(group, _)| group.end <= address).is_some() {}
                let arena = groups.peek().filter(|(group, _)| group.contains(&address)).map_or(NO_ARENA, |(_, of)| *of);
                let group = self.group((number, arena), name, || arena_name(heap.allocator, arena));
                self.pages.push(page_of(address, group, fill));
            }
        }
    }

    fn add_heapledger(&mut self, map: &HeapMap) {
        const NAME: &str = "Heapledger's allocator";
        for chunk in &map.chunks {
            let Some(end) = chunk.address.checked_add(map.chunk_size) else { continue };
            let own = self.group((HEAPLEDGER, OWN), NAME, || DESCRIPTIONS.to_owned());
            let group =
                self.group((HEAPLEDGER, chunk.arena.into()), NAME, || match map.arenas.get(chunk.arena as usize) {
                    Some(arena) if !arena.label.is_empty() => format!("arena {:#x} \"{}\"", arena.id, arena.label),
                    Some(arena) if arena.id != 0 => format!("arena {:#x}", arena.id),
                    _ => "the main arena".to_owned(),
                });
            let mut at = chunk.address.saturating_add(map.slice_size).min(end);
            self.add(chunk.address..at, own, PAGE as u16, 1);
            for slice in &chunk.slices {
                let slices = match slice {
                    Slice::Free(_) => 1,
                    Slice::Run(run) => u64::from(run.slices.max(1)),
                };
                let range = at..at.saturating_add(slices.saturating_mul(map.slice_size)).min(end);
                at = range.end;
                match slice {
                    Slice::Free(_) => self.add(range, group, 0, 0),
                    Slice::Run(run) => self.add_run(range, group, run),
                }
            }
            self.add(at..end, group, 0, 0);
        }
        for huge in &map.huge {
            let group = self.group((HEAPLEDGER, MAPPED), NAME, || "blocks with mappings of their own".to_owned());
            let end = huge.address.checked_add(huge.bytes).and_then(|end| end.checked_next_multiple_of(PAGE));
            self.add(huge.address..end.unwrap_or(huge.address), group, PAGE as u16, 1);
        }
    }

    /// Adds a run, whose bytes in use are spread evenly over the blocks that were ever used.
    fn add_run(&mut self, range: Range<u64>, group: u32, run: &Run) {
        let size = u64::from(run.block_size);
        let touched = (u64::from(run.touched).max(u64::from(run.used)) * size).min(range.end - range.start);
        let touched_end = range.start + touched;
        let in_use = (u64::from(run.used) * size).min(touched);
        let pages: Vec<u64> = self.present.within(range).flat_map(|part| part.step_by(PAGE as usize)).collect();
        for address in pages {
            let bytes = touched_end.clamp(address, address + PAGE) - address;
            let used = (bytes * in_use).checked_div(touched).unwrap_or(0);
            let blocks = if used > 0 { used.div_ceil(size.max(1)) } else { 0 };
            self.pages.push(HeapPage { address, group, used: used as u16, blocks: blocks as u16 });
        }
    }
}

fn page_of(address: u64, group: u32, fill: PageFill) -> HeapPage {
    HeapPage { address, group, used: fill.used, blocks: fill.chunks }
}

/// Returns the name of an arena of an allocator: of tcmalloc and musl there is one.
fn arena_name(allocator: Allocator, arena: u64) -> String {
    match (allocator, arena) {
        (_, OWN) => DESCRIPTIONS.to_owned(),
        (_, NO_ARENA) => "free, of no arena".to_owned(),
        (Allocator::Jemalloc, arena) => format!("arena {arena}"),
        (Allocator::Mimalloc, 0) => "of no thread".to_owned(),
        (Allocator::Mimalloc, thread) => format!("thread at {thread:#x}"),
        _ => "blocks, and free pages".to_owned(),
    }
}
