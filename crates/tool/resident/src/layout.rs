//! The layout that the allocator says its memory has: the symbol `heapledger_heap_v1`.
//!
//! The structure is that of `crates/hook/heap/src/layout.rs`, which documents its fields.

use crate::error::{HeapMapError, Result};
use crate::memory::{Memory, bytes, word};

/// The name of the symbol.
pub(crate) const SYMBOL: &[u8] = b"heapledger_heap_v1";
const MAGIC: &[u8; 8] = b"HLHEAPv1";
/// The bytes of the structure's first version.
const SIZE: usize = 16 + 4 * (11 + 8 + 4 + 4);

/// The layout, whose numbers were checked.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) root: u64,
    pub(crate) root_count: usize,
    pub(crate) leaf_count: usize,
    pub(crate) chunk_shift: u32,
    pub(crate) slice_shift: u32,
    pub(crate) page_size: usize,
    pub(crate) header_pages: u64,
    pub(crate) run_size: usize,
    pub(crate) owner_tags: u64,
    pub(crate) chunk_free: usize,
    pub(crate) chunk_dirty: usize,
    /// `owner`, `used`, `size`, `capacity`, `carved`, `class`, `slices`, `touched`.
    pub(crate) run: [usize; 8],
    pub(crate) huge_length: u64,
    pub(crate) heap_bins: u64,
    pub(crate) bin_size: u64,
    pub(crate) bin_current: u64,
    pub(crate) chunk_arena: usize,
    pub(crate) arena_id: u64,
    pub(crate) arena_label: u64,
    pub(crate) label_size: usize,
}

impl Layout {
    /// Reads the structure at an address. `None` if it is not one of this version.
    pub(crate) fn read(memory: &dyn Memory, address: u64) -> Result<Option<Layout>> {
        let mut buffer = [0; SIZE];
        memory.read(address, &mut buffer)?;
        if bytes(&buffer, 0) != Some(*MAGIC) {
            return Ok(None);
        }
        Layout::parse(&buffer).map(Some).map_err(|reason| HeapMapError::Corrupt { address, reason })
    }

    fn parse(from: &[u8; SIZE]) -> std::result::Result<Layout, &'static str> {
        let number = |index: usize| bytes(from, 16 + 4 * index).map_or(0, u32::from_le_bytes);
        let size = |index: usize| number(index) as usize;
        let layout = Layout {
            root: word(from, 8).unwrap_or(0),
            root_count: size(1),
            leaf_count: size(2),
            chunk_shift: number(3),
            slice_shift: number(4),
            page_size: size(5),
            header_pages: u64::from(number(6)),
            run_size: size(7),
            owner_tags: u64::from(number(8)),
            chunk_free: size(9),
            chunk_dirty: size(10),
            run: std::array::from_fn(|field| size(11 + field)),
            huge_length: u64::from(number(19)),
            heap_bins: u64::from(number(20)),
            bin_size: u64::from(number(21)),
            bin_current: u64::from(number(22)),
            chunk_arena: size(23),
            arena_id: u64::from(number(24)),
            arena_label: u64::from(number(25)),
            label_size: size(26),
        };
        layout.check(size(0)).map(|()| layout)
    }

    fn check(&self, size: usize) -> std::result::Result<(), &'static str> {
        let is = |is_right: bool, reason| if is_right { Ok(()) } else { Err(reason) };
        is(size >= SIZE, "the structure is too short")?;
        is((1..=1 << 16).contains(&self.root_count), "the number of leaves")?;
        is((1..=1 << 16).contains(&self.leaf_count), "the number of words of a leaf")?;
        is((16..=34).contains(&self.chunk_shift), "the size of a chunk")?;
        is(self.slice_shift >= 12 && self.slice_shift < self.chunk_shift, "the size of a slice")?;
        is(self.chunk_shift - self.slice_shift <= 6, "the number of slices of a chunk")?;
        is(self.page_size.is_power_of_two() && (4096..=1 << 16).contains(&self.page_size), "the size of a page")?;
        is((1..=64).contains(&self.header_pages), "the number of pages for metadata")?;
        is((32..=1024).contains(&self.run_size), "the size of a run's metadata")?;
        is(self.run_size * self.slices() <= self.page_size, "the size of all metadata")?;
        is((1..=1024).contains(&self.label_size), "the size of a label")?;
        let ends = self.run.iter().chain([&self.chunk_free, &self.chunk_dirty, &self.chunk_arena]);
        is(ends.into_iter().all(|offset| offset + 8 <= self.run_size), "an offset in the metadata")
    }

    /// Returns the number of slices of a chunk, the first one included.
    pub(crate) fn slices(&self) -> usize {
        1 << (self.chunk_shift - self.slice_shift)
    }

    /// Returns the size of a slice in bytes.
    pub(crate) fn slice_size(&self) -> u64 {
        1 << self.slice_shift
    }
}
