//! Reports from Heapledger's own allocator.

use std::mem;

use heapledger_core::weak_address;
use heapledger_report_format::{Report, Unit};

use super::add;

/// The number of bins.
const BINS: usize = 68;

/// `heapledger_allocator_stats` of `include/heapledger/allocator.h`, in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Statistics {
    size: usize,
    options: [usize; 5],
    arenas: usize,
    /// Sizes from `quantum` to `slice_size`.
    sizes: [usize; 5],
    chunk_size: usize,
    page_size: usize,
    dirty_max: usize,
    pub(super) mapped: usize,
    pub(super) allocated: usize,
    blocks: usize,
    waste: usize,
    waste_tails: usize,
    waste_guards: usize,
    dirty: usize,
    fresh: usize,
    madvised: usize,
    bookkeeping: usize,
    bin_unused: usize,
    run_headers: usize,
    huge: usize,
    huge_blocks: usize,
    chunks: usize,
    purges: usize,
    bins: [Bin; BINS],
}

/// `heapledger_allocator_bin`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Bin {
    size: usize,
    runs: usize,
    runs_non_full: usize,
    unused: usize,
    total: usize,
    run_size: usize,
    run_blocks: usize,
    blocks: usize,
}

/// Returns the allocator's statistics. `None` if the process does not use it, or uses one that
/// says less.
pub(super) fn statistics() -> Option<Statistics> {
    let address = weak_address!("heapledger_stats");
    if address == 0 {
        return None;
    }
    // SAFETY: `zeroed` demands that zeroes are a valid value: all fields are numbers. `transmute`
    // demands the address of a function of this type, as allocator.h declares the one of this name;
    // the structure says its size, by which the function knows what it may write.
    unsafe {
        let mut now: Statistics = mem::zeroed();
        now.size = size_of::<Statistics>();
        let error = mem::transmute::<usize, unsafe extern "C" fn(*mut Statistics) -> i32>(address)(&raw mut now);
        (error == 0 && now.size == size_of::<Statistics>()).then_some(now)
    }
}

/// True if the functions by which glibc tells about its heap are those of this allocator's preload
/// library.
pub(super) fn answers_for_glibc() -> bool {
    weak_address!("heapledger_stats") != 0 && weak_address!("malloc_good_size") != 0
}

impl Statistics {
    pub(super) fn report(&self, reports: &mut Vec<Report>) {
        for bin in self.bins.iter().filter(|bin| bin.runs > 0) {
            let path = format!("heap/committed/bin-unused/bin-{}", bin.size);
            let description = "Free blocks of this size that were in use before.";
            add(reports, &path, Unit::Bytes, bin.unused as u64, description);
        }
        const WASTE: &str =
            "Ends of runs that are too small for a block, and of the pages of the heap checker's blocks.";
        const BOOKKEEPING: &str = "The allocator's own structures, and the heap checker's table of slots.";
        let small: usize = self.bins.iter().map(|bin| bin.unused).sum();
        let parts = [
            ("heap/committed/allocated", self.allocated, "Blocks that the program has, with their slop."),
            ("heap/committed/bin-unused/larger", self.bin_unused.saturating_sub(small), "Free blocks of over 64 KiB."),
            ("heap/committed/waste", self.waste_tails, WASTE),
            ("heap/committed/bookkeeping", self.bookkeeping, BOOKKEEPING),
            ("heap/committed/unused-pages/dirty", self.dirty, "Free pages that may have memory."),
            ("heap/decommitted/unused-pages/fresh", self.fresh, "Pages that were never used, and have no memory."),
            ("heap/decommitted/unused-pages/madvised", self.madvised, "Free pages whose memory was returned."),
            ("heap/decommitted/guards", self.waste_guards, "Inaccessible pages beside the allocator's structures."),
            ("heap-chunksize", self.chunk_size, "The size of a chunk, in which the allocator gets memory."),
        ];
        for (path, bytes, description) in parts {
            add(reports, path, Unit::Bytes, bytes as u64, description);
        }
        let overhead = self.waste_tails + self.bookkeeping + self.dirty + self.bin_unused;
        let fraction = overhead as u64 * 10_000 / (self.allocated + overhead).max(1) as u64;
        let description = "The part of the committed heap that is not in blocks.";
        add(reports, "heap-overhead-fraction", Unit::Percentage, fraction, description);
    }
}
