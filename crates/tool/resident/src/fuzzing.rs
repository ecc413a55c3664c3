//! The body of the fuzz target: a process whose memory is hostile.

use crate::error::{HeapMapError, Result};
use crate::heap::HeapMap;
use crate::layout::Layout;
use crate::memory::Memory;

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
