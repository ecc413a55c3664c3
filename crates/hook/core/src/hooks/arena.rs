//! Arenas and purges, as observers are told of them.

use core::ffi::c_char;

use crate::context::Name;

/// An arena: a heap within the allocator's, with a label and an end of its own.
///
/// The structure stays valid until the arena has been disposed of; its label and name for ever.
#[derive(Debug)]
#[repr(C)]
pub struct Arena {
    /// Bytes of this structure.
    pub size: u32,
    /// The flags that the program passed.
    pub flags: u32,
    /// The number by which the program knows it; not 0.
    pub id: u64,
    /// The label: UTF-8 if the program kept to it, with a terminator; never null.
    pub label: *const c_char,
    /// The label as a name, for the recorder.
    pub name: &'static Name,
}

// SAFETY: `Sync` demands that shared use makes no data race. The structure is not written while it
// is shared, and `label` points to bytes that do not change.
unsafe impl Sync for Arena {}

/// A purge: the allocator gave unused pages back to the system. C's `heapledger_purge`, which the
/// allocator tells its own hook, too.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Purge {
    /// Bytes of this structure.
    pub size: u32,
    /// 0.
    pub flags: u32,
    /// The arena, by its number; 0 for the allocator as a whole.
    pub arena: u64,
    /// The arena's label, with a terminator; null if it has none. Valid during the call only.
    pub label: *const c_char,
    /// The reason of the purge, in a few words with a terminator; null if not known. Valid during
    /// the call only.
    pub caller: *const c_char,
    /// The number of pages that were given back.
    pub pages: u64,
    /// The number of system calls that this took.
    pub calls: u64,
    /// The number of chunks that the pages were in.
    pub chunks: u64,
    /// The beginning, in nanoseconds of the monotonic clock.
    pub start_ns: u64,
    /// The end, in nanoseconds of the monotonic clock.
    pub end_ns: u64,
}

/// The allocator's totals at one moment, in the terms of mozjemalloc. What an allocator does not
/// know is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Statistics {
    /// The number of arenas.
    pub arenas: u64,
    /// Bytes of address space that the allocator has mapped.
    pub mapped: u64,
    /// Bytes in live blocks.
    pub allocated: u64,
    /// Bytes with memory that are neither allocated nor counted below.
    pub waste: u64,
    /// Bytes of unused pages that have memory.
    pub dirty: u64,
    /// Bytes of unused pages that were never touched.
    pub fresh: u64,
    /// Bytes of unused pages whose memory was given back.
    pub madvised: u64,
    /// Bytes of the allocator's own structures.
    pub bookkeeping: u64,
    /// Bytes of free blocks in runs that have others.
    pub bin_unused: u64,
    /// The number of calls that changed the heap, as [`LightStatistics::operations`].
    pub operations: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The limit of an arena's dirty bytes.
    pub dirty_max: u64,
}

/// The totals of one bin: blocks of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BinStatistics {
    /// Bytes of each block.
    pub size: u64,
    /// The number of runs with a free block.
    pub runs_not_full: u64,
    /// The number of runs.
    pub runs: u64,
    /// Bytes of free blocks.
    pub bytes_unused: u64,
    /// Bytes of all blocks.
    pub bytes_total: u64,
    /// Bytes of a run.
    pub bytes_per_run: u64,
    /// The number of blocks in a run.
    pub blocks_per_run: u64,
}

/// The two totals that cost no walk over the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LightStatistics {
    /// Bytes in live blocks.
    pub allocated: u64,
    /// The number of operations: 1 for an allocation, a free, and a reallocation in place that
    /// changes the size class; 2 for one that moves the block.
    pub operations: u64,
}

/// The kind of memory at an address, as [`PointerInfo::kind`].
pub mod pointer {
    /// Nothing is known of it.
    pub const UNKNOWN: u32 = 0;
    /// It is in a live block.
    pub const LIVE: u32 = 1;
    /// It is in a block that was freed.
    pub const FREED_BLOCK: u32 = 2;
    /// It is in an unused page.
    pub const FREED_PAGE: u32 = 3;
}

/// The block or page around an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PointerInfo {
    /// One of the numbers in [`mod@pointer`].
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// The first address of the block or page; 0 if unknown.
    pub address: u64,
    /// Its bytes; 0 if unknown.
    pub bytes: u64,
    /// The arena; 0 if it is in none that has a number.
    pub arena: u64,
}

/// The answer of [`Functions::purge_now`](super::Functions::purge_now).
pub mod purge_now {
    /// No arena is waiting.
    pub const DONE: i32 = 0;
    /// An arena is waiting, and may be purged at once.
    pub const NEEDS_MORE: i32 = 1;
    /// An arena is waiting, but its pages have been reused just now.
    pub const WANTS_LATER: i32 = 2;
}
