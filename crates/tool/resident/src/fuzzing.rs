//! The bodies of the fuzz targets: a process whose memory is hostile.

use std::time::Duration;

use crate::allocators::Search;
use crate::error::{HeapMapError, Result};
use crate::glibc::{GlibcHeap, Places};
use crate::heap::HeapMap;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::pages::PresentPages;
use crate::smaps;

/// Memory that repeats some bytes for ever, so that each address has something.
struct Hostile<'data>(&'data [u8]);

impl Memory for Hostile<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        if self.0.is_empty() || address % 7 == 6 {
            return Err(HeapMapError::Corrupt { address, reason: "nothing is there" });
        }
        let start = (address % self.0.len() as u64) as usize;
        buffer.iter_mut().zip(self.0.iter().cycle().skip(start)).for_each(|(to, from)| *to = *from);
        Ok(())
    }
}

/// Reads a heap from memory with any contents, whose layout is at address 0.
pub fn heap(data: &[u8]) {
    let memory = Hostile(data);
    let Ok(Some(mut layout)) = Layout::read(&memory, 0) else { return };
    // A fuzzer finds nothing more in large tables, but waits for them.
    layout.root_count = layout.root_count.min(16);
    layout.leaf_count = layout.leaf_count.min(64);
    layout.label_size = layout.label_size.min(64);
    if let Ok(map) = HeapMap::read(&memory, &layout) {
        let totals = map.totals();
        assert!(totals.runs + totals.dirty <= map.chunks.len() as u64 * map.chunk_size);
        assert!(map.bins().iter().all(|bin| bin.used <= bin.capacity));
        assert!(map.heaps() as usize <= map.runs().count());
    }
}

/// Reads a heap of glibc from memory with any contents.
pub fn glibc(data: &[u8]) {
    const BRK: u64 = 0x5500_0000_0000;
    const DATA: u64 = 0x7f00_0000_0000;
    const HEAP: u64 = 0x7f00_0400_0000;
    let memory = Hostile(data);
    let mut pages = PresentPages::default();
    let ranges = [BRK..BRK + 0x4000, DATA..DATA + 0x2000, HEAP..HEAP + 0x4000];
    ranges.iter().for_each(|range| pages.push(range.clone()));
    let [brk, data, heap] = ranges;
    let places = Places { brk, data: vec![data], anonymous: vec![heap] };
    if let Some(heap) = GlibcHeap::read(&memory, &pages, &places, &mut Duration::default()) {
        for arena in &heap.arenas {
            let resident =
                [arena.used, arena.cached, arena.fast, arena.free, arena.top, arena.bookkeeping, arena.unread];
            assert!(resident.iter().all(|piece| piece.resident <= piece.bytes), "{arena:?}");
        }
        let sums = heap.page_use;
        let kept = sums.empty.pages + sums.alone.pages + sums.sparse.pages;
        assert!(kept <= sums.all.pages && sums.all.used <= sums.all.bytes(), "{sums:?}");
    }
}

/// Reads the heaps of other allocators from memory with any contents. The first byte tells which of
/// the pages that tables may have are resident.
pub fn allocators(data: &[u8]) {
    const DATA: u64 = 0x5600_0000_0000;
    const OWN: u64 = 0x7e00_0000_0000;
    const HEAP: u64 = 0x7f40_0200_0000;
    let Some((&first, contents)) = data.split_first() else { return };
    let memory = Hostile(contents);
    let private = [OWN..OWN + (4 << 20), HEAP..HEAP + (32 << 20)];
    let mut pages = PresentPages::default();
    let skipped = u64::from(first) * 4096;
    for start in [DATA, OWN + skipped, HEAP + skipped] {
        pages.push(start..start + 0x4000);
    }
    let data = DATA..DATA + (4 << 20);
    let search = Search {
        memory: &memory,
        pages: &pages,
        data: &[data],
        private: &private,
        spaces: &private,
        is_doubtful: &Default::default(),
        by_page: first % 2 == 0,
    };
    for heap in search.heaps() {
        assert!(heap.ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{heap:?}");
        assert!(heap.total().resident <= pages.bytes_within(0..u64::MAX), "{heap:?}");
    }
}

/// Reads the lines of `/proc/PID/smaps`.
pub fn smaps(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mappings = smaps::parse(&text);
    assert!(mappings.iter().all(|mapping| mapping.size() > 0));
    smaps::sum(&mappings);
}
