//! The pages of the heap of a process.

use crate::account::ResidentMemory;
use crate::heap_pages::{HeapPage, HeapPages};

impl ResidentMemory {
    /// Returns the resident pages of the heap, if it is one whose blocks are known page by page:
    /// that of glibc's malloc, by arena. Blocks with a mapping of their own are not among them.
    /// Chunks in the caches of threads and in fastbins are free.
    ///
    /// Takes 16 bytes of memory for each page.
    pub fn heap_pages(&self) -> Option<HeapPages> {
        let glibc = self.glibc.as_ref()?;
        let mut heap = HeapPages::new("glibc's malloc", "arena");
        heap.groups = glibc.arenas.iter().map(|arena| arena.name()).collect();
        for fills in &glibc.fills {
            let pages = fills.fills.within(self.present_pages(), fills.known.clone());
            heap.pages.extend(pages.map(|(address, fill)| HeapPage {
                address,
                group: fills.arena as u32,
                used: fill.used,
                blocks: fill.chunks,
            }));
        }
        heap.pages.sort_by_key(|page| page.address);
        // Two heaps may share a page, if what is read is damaged.
        heap.pages.dedup_by_key(|page| page.address);
        Some(heap)
    }
}
