//! The layout of the allocator's memory, for readers outside of the process.
//!
//! `heapledger heap-map PID` finds the symbol in the program's files, and reads the rest from the
//! process's memory. Numbers are those of this build, so that a reader needs no copy of them.

use crate::arena::{LABEL_MAX, SharedArena};
use crate::chunk::Chunk;
use crate::geometry::{CHUNK_SHIFT, PAGE, SLICE, SLICE_SHIFT};
use crate::heap::Heap;
use crate::huge::Huge;
use crate::map::{self, Root};
use crate::run::{RUN_SIZE, Run, RunPtr, TAGS};

/// The version of [`HeapLayout`] is in its magic number and in the symbol's name.
const MAGIC: [u8; 8] = *b"HLHEAPv1";

/// The structure that the symbol `heapledger_heap_v1` is. Fields are only appended.
///
/// The root of the radix tree has `root_count` addresses of leaves, or 0. A leaf has `leaf_count`
/// words of 8 bytes, one for each range of the address space of `1 << chunk_shift` bytes: 0, 1 for
/// a chunk, or the address of the description of the huge block that begins there.
///
/// A chunk is divided into slices. The metadata of all is in one page of the first one, whose
/// number is that of the chunk (its address shifted by `chunk_shift`) modulo `header_pages`: first
/// `run_size` bytes for the chunk, then as many for each other slice. A run begins at a slice that
/// is not free and whose `run_owner`, without the bits of `owner_tags`, is not 0: it is the
/// address of a heap. A heap has a bin for each class. If the run is the `bin_current` of its
/// class's bin, its `run_used` is 1 more than the number of its blocks in use.
#[derive(Debug)]
#[repr(C)]
pub struct HeapLayout {
    magic: [u8; 8],
    root: &'static Root,
    /// The size of this structure in bytes.
    size: u32,
    root_count: u32,
    leaf_count: u32,
    chunk_shift: u32,
    slice_shift: u32,
    /// The unit of 4 KiB in which memory is counted, whatever the system's pages are.
    page_size: u32,
    header_pages: u32,
    run_size: u32,
    owner_tags: u32,
    /// Offsets in the metadata of a chunk, in bytes: 8 bytes of bits, one for each slice.
    chunk_free: u32,
    chunk_dirty: u32,
    /// Offsets in the metadata of a run: of `owner` (8 bytes), `used`, `size` (4), `capacity`,
    /// `carved` (2), `class`, `slices` and `touched` (1). The pages that `touched` counts are its
    /// lowest 5 bits.
    run: [u32; 8],
    /// Offset of the length (8 bytes) in the description of a huge block.
    huge_length: u32,
    /// Offset of the bins in a heap, the size of a bin, and the offset of the current run in it. A
    /// bin is the address of its current run here: what else there is for a class is elsewhere.
    heap_bins: u32,
    bin_size: u32,
    bin_current: u32,
    /// Offset of the address of the arena in the metadata of a chunk, and in the arena: of its id
    /// (8 bytes, 0 for the main arena at first) and its label, which ends with a null byte.
    chunk_arena: u32,
    arena_id: u32,
    arena_label: u32,
    label_size: u32,
}

/// The layout of this process's allocator.
#[allow(non_upper_case_globals, reason = "it is the name of a symbol")]
#[used]
#[unsafe(no_mangle)]
pub static heapledger_heap_v1: HeapLayout = HeapLayout {
    magic: MAGIC,
    root: map::ROOT_REFERENCE,
    size: size_of::<HeapLayout>() as u32,
    root_count: map::ROOT_COUNT as u32,
    leaf_count: map::LEAF_COUNT as u32,
    chunk_shift: CHUNK_SHIFT as u32,
    slice_shift: SLICE_SHIFT as u32,
    page_size: PAGE as u32,
    header_pages: (SLICE / PAGE) as u32,
    run_size: RUN_SIZE as u32,
    owner_tags: TAGS as u32,
    chunk_free: core::mem::offset_of!(Chunk, free) as u32,
    chunk_dirty: core::mem::offset_of!(Chunk, dirty) as u32,
    run: Run::offsets(),
    huge_length: Huge::LENGTH_OFFSET,
    heap_bins: Heap::CURRENT_OFFSET,
    bin_size: size_of::<RunPtr>() as u32,
    bin_current: 0,
    chunk_arena: Chunk::ARENA_OFFSET,
    arena_id: SharedArena::ID_OFFSET,
    arena_label: SharedArena::LABEL_OFFSET,
    label_size: LABEL_MAX as u32 + 1,
};
