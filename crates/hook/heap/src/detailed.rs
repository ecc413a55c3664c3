//! Statistics of all memory, by kind of use and by bin.
//!
//! They are taken from the metadata of chunks and runs at the moment of the question, by a walk
//! without locks. So the functions that allocate count nothing for them on the common path: also
//! the numbers of [operations](crate::arena::operations) follow from what refills count.

mod text;

use core::sync::atomic::Ordering;

pub use self::text::{StatisticsFormat, write_statistics};

use crate::arena::ids::ArenaId;
use crate::arena::operations::{self, Operations};
use crate::arena::{SharedArena, registry};
use crate::base;
use crate::chunk::{ChunkPtr, bits};
use crate::classes::{CLASSES, LARGE_MAX, SMALL_CLASSES, SMALL_MAX, bytes_of, capacity_of};
use crate::geometry::{CHUNK, PAGE, SLICE, SLICES};
use crate::huge::HUGE;
use crate::map::{self, Range};
use crate::page::{self, page_size};
use crate::run::Observed;
use crate::{options, os, readers, sampled};

/// The number of bins: the classes of up to 64 KiB.
pub const BINS: usize = SMALL_CLASSES;

/// The size of the metadata of a run in bytes.
const RUN_HEADER: usize = crate::run::RUN_SIZE;
/// The distance between the smallest classes, and their end, in bytes.
const QUANTUM: usize = 16;
const QUANTUM_MAX: usize = 128;

/// Statistics of the process's memory that the allocator has, in bytes unless another unit is said.
///
/// `mapped` is the sum of `allocated`, `waste`, `dirty`, `bookkeeping`, `bin_unused`, `fresh` and
/// `madvised`. If other threads allocate and free meanwhile, each run is counted at a moment of its
/// own, and the sum is right all the same. The slop of blocks, which is between their requested and
/// their usable size, is not known: the allocator does not store requested sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct DetailedStatistics {
    /// The size of this structure.
    pub size: usize,
    /// 1 if new blocks are filled with [`JUNK`](crate::JUNK).
    pub option_junk: usize,
    /// 1 if new blocks are filled with zeroes.
    pub option_zero: usize,
    /// 1 if the blocks of fresh memory are handed out in random order.
    pub option_random: usize,
    /// The bytes at the start of a freed block that are poisoned; the largest number for all.
    pub option_poison: usize,
    /// 1 if pages beside metadata are inaccessible.
    pub option_guards: usize,
    /// The number of arenas.
    pub arenas: usize,
    /// The distance between the sizes of the smallest bins.
    pub quantum: usize,
    /// The largest size of a bin that is a quantum above the one before.
    pub quantum_max: usize,
    /// The largest block that shares a run with others.
    pub small_max: usize,
    /// The largest block in a chunk.
    pub large_max: usize,
    /// The unit in which chunks are divided: runs are of whole slices.
    pub slice_size: usize,
    /// The size of a chunk.
    pub chunk_size: usize,
    /// The unit in which memory is mapped, protected and returned: that of the system, or a larger
    /// one, by the options.
    pub page_size: usize,
    /// The dirty bytes above which memory is returned to the system.
    pub dirty_max: usize,
    /// Memory that is mapped.
    pub mapped: usize,
    /// Blocks in use, with their slop.
    pub allocated: usize,
    /// The number of blocks in use.
    pub blocks: usize,
    /// Memory that no block can use: `waste_tails` and `waste_guards`.
    pub waste: usize,
    /// The ends of runs behind their last block, pages of runs that still have memory from earlier
    /// ones, and the rest of the pages of blocks that the heap checker has sampled.
    pub waste_tails: usize,
    /// Guard pages.
    pub waste_guards: usize,
    /// Free pages that may have memory, and a freed mapping of a huge block that is kept.
    pub dirty: usize,
    /// Pages that were never used, and have no memory.
    pub fresh: usize,
    /// Free pages whose memory was returned to the system.
    pub madvised: usize,
    /// The allocator's own structures: headers of chunks, heaps of threads, the radix tree; and the
    /// heap checker's.
    pub bookkeeping: usize,
    /// Free blocks in runs.
    pub bin_unused: usize,
    /// The part of `bookkeeping` that the metadata of runs takes.
    pub run_headers: usize,
    /// The part of `allocated` in huge blocks.
    pub huge: usize,
    /// The number of huge blocks.
    pub huge_blocks: usize,
    /// The number of chunks.
    pub chunks: usize,
    /// The number of times that memory of free pages was returned to the system.
    pub purges: usize,
    /// The bins.
    pub bins: [BinStatistics; BINS],
    /// The number of operations so far: 1 for an allocation, a free, and a reallocation that
    /// changes the size of a block of 64 KiB or more in place; 2 for a reallocation that moves a
    /// block; 0 for one that leaves it as it is. A block that a thread has freed counts at once,
    /// whichever thread that was. If other threads allocate meanwhile, those of a moment may be
    /// missing. Operations with blocks of the heap checker are not counted.
    pub operations: usize,
    /// The operations of the bins.
    pub bin_operations: [BinOperations; BINS],
    /// The unit of the system's memory.
    pub real_page_size: usize,
    /// 1 if the links of free blocks are keyed.
    pub option_keyed: usize,
}

/// The numbers of operations with the blocks of a bin so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct BinOperations {
    /// The blocks that were handed out, also for reallocations.
    pub allocations: usize,
    /// The blocks that were given back.
    pub frees: usize,
}

/// Statistics of the runs of one size, in bytes unless another unit is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct BinStatistics {
    /// The size of a block.
    pub size: usize,
    /// The number of runs.
    pub runs: usize,
    /// The number of runs that have free blocks, or room for more.
    pub runs_non_full: usize,
    /// The free blocks that were in use before, so that they may have memory: a part of
    /// [`DetailedStatistics::bin_unused`], which has those of larger sizes, too.
    pub unused: usize,
    /// All runs.
    pub total: usize,
    /// The size of a run.
    pub run_size: usize,
    /// The number of blocks of a run.
    pub run_blocks: usize,
    /// The number of blocks in use.
    pub blocks: usize,
}

/// Returns the statistics of all arenas together. Takes two locks of each arena one after the
/// other, for some loads, waits for its purge, and looks at all runs and their free blocks without
/// a lock.
pub fn detailed_statistics() -> DetailedStatistics {
    let (huge_blocks, huge, kept) = HUGE.with(|blocks| (blocks.count, blocks.bytes, blocks.kept_bytes()));
    let mut all = DetailedStatistics {
        bookkeeping: base::bytes() + map::bytes(),
        allocated: huge,
        blocks: huge_blocks,
        huge,
        huge_blocks,
        dirty: kept,
        waste_guards: if kept > 0 { os::guard() } else { 0 },
        ..settings()
    };
    let mut counted = Operations::NONE;
    // Before the arenas, so that one that ends meanwhile is not counted twice.
    operations::add_ended(&mut counted);
    registry::for_each(|arena| {
        // Under this lock, nobody disposes of the arena.
        arena.purging.with(|()| {
            let source = arena.is_live().then(|| arena.settings().source);
            // An arena that returns whole chunks only has no budget.
            if let Some(source) = source {
                let budgets = all.dirty_max;
                all.add_arena(arena, &mut counted);
                all.dirty_max = if source.can_decommit() { all.dirty_max } else { budgets };
            }
        });
    });
    all.add_chunks(|_| true, counted);
    all.add_sampler();
    all
}

/// Returns the statistics of one arena, whose bookkeeping is that of its chunks only. `None` if no
/// arena has the id. Costs as much as those of all arenas. `dirty_max` is the largest number if the
/// arena returns whole chunks only.
pub fn detailed_arena_statistics(arena: ArenaId) -> Option<DetailedStatistics> {
    let id = arena.to_raw();
    let arena = registry::find(id)?;
    let mut counted = Operations::NONE;
    let mut all = arena.purging.with(|()| {
        // Disposed of meanwhile, its description may be that of another arena.
        if arena.id() != id {
            return None;
        }
        let huge = arena.huge_bytes.load(Ordering::Relaxed);
        let huge_blocks = arena.huge_blocks.load(Ordering::Relaxed);
        let mut all = DetailedStatistics { allocated: huge, blocks: huge_blocks, huge, huge_blocks, ..settings() };
        all.add_arena(arena, &mut counted);
        Some(all)
    })?;
    all.add_chunks(|chunk| SharedArena::of(chunk).id() == id, counted);
    Some(all)
}

/// Returns statistics of nothing, with the options and the geometry.
fn settings() -> DetailedStatistics {
    let mut all = DetailedStatistics {
        option_junk: usize::from(options::fill() == Some(options::JUNK)),
        option_zero: usize::from(options::fill() == Some(0)),
        option_random: usize::from(options::is_random()),
        option_poison: options::poisoned(),
        option_guards: usize::from(options::has_guards()),
        page_size: page_size(),
        option_keyed: usize::from(options::has_keyed_lists()),
        real_page_size: page::system_size(),
        ..EMPTY
    };
    for (class, bin) in all.bins.iter_mut().enumerate() {
        (bin.size, bin.run_size, bin.run_blocks) = (bytes_of(class), SLICE, capacity_of(class));
    }
    all
}

const EMPTY: DetailedStatistics = DetailedStatistics {
    size: size_of::<DetailedStatistics>(),
    option_junk: 0,
    option_zero: 0,
    option_random: 0,
    option_poison: 0,
    option_guards: 0,
    arenas: 0,
    quantum: QUANTUM,
    quantum_max: QUANTUM_MAX,
    small_max: SMALL_MAX,
    large_max: LARGE_MAX,
    slice_size: SLICE,
    chunk_size: CHUNK,
    page_size: 0,
    dirty_max: 0,
    mapped: 0,
    allocated: 0,
    blocks: 0,
    waste: 0,
    waste_tails: 0,
    waste_guards: 0,
    dirty: 0,
    fresh: 0,
    madvised: 0,
    bookkeeping: 0,
    bin_unused: 0,
    run_headers: 0,
    huge: 0,
    huge_blocks: 0,
    chunks: 0,
    purges: 0,
    bins: [BinStatistics {
        size: 0,
        runs: 0,
        runs_non_full: 0,
        unused: 0,
        total: 0,
        run_size: 0,
        run_blocks: 0,
        blocks: 0,
    }; BINS],
    operations: 0,
    bin_operations: [BinOperations { allocations: 0, frees: 0 }; BINS],
    real_page_size: 0,
    option_keyed: 0,
};

/// A slice of a chunk at one moment.
struct Slice {
    /// The run that begins there.
    run: Option<Observed>,
    /// The pages that may have memory, if it has no run.
    pages: usize,
    /// True if the other pages had memory once.
    is_returned: bool,
}

impl DetailedStatistics {
    /// Adds the blocks of the sampler, which are in no arena.
    fn add_sampler(&mut self) {
        let Some(usage) = sampled::usage() else { return };
        self.mapped += usage.allocated + usage.fragmentation + usage.metadata;
        self.allocated += usage.allocated;
        self.blocks += usage.blocks;
        self.waste += usage.fragmentation;
        self.waste_tails += usage.fragmentation;
        self.bookkeeping += usage.metadata;
    }

    /// Adds what is known of an arena without a walk. The lock `purging` is held, so that nobody
    /// disposes of it meanwhile.
    fn add_arena(&mut self, arena: &SharedArena, counted: &mut Operations) {
        arena.add_operations(counted);
        if arena.settings().source.is_system() {
            self.waste_guards += arena.huge_blocks.load(Ordering::Relaxed) * os::guard();
        }
        let (purges, dirty_max) = arena.space.with(|space| (space.purges, arena.dirty_max(space)));
        self.purges += purges;
        self.dirty_max = self.dirty_max.saturating_add(dirty_max.saturating_mul(PAGE));
        self.arenas += 1;
    }

    /// Adds the chunks that a condition holds for, then the sums, with the operations in these
    /// chunks.
    fn add_chunks(&mut self, is_wanted: impl Fn(ChunkPtr) -> bool, mut counted: Operations) {
        let mut live = [0_u64; CLASSES];
        let mut next = map::next(0);
        while let Some((start, range)) = next {
            if range == Range::Chunk && readers::read(start, &is_wanted) == Some(true) {
                self.add_chunk(start, &mut counted, &mut live);
            }
            next = map::next(start + CHUNK);
        }
        self.waste = self.waste_tails + self.waste_guards;
        self.mapped = self.allocated + self.waste + self.dirty + self.bookkeeping + self.bin_unused;
        self.mapped += self.fresh + self.madvised;
        let mut operations = counted.huge;
        for (class, (allocations, live)) in counted.allocations.into_iter().zip(live).enumerate() {
            // Unless other threads work meanwhile, none of this is below 0.
            let frees = allocations.saturating_sub(live);
            operations += allocations + frees;
            if let Some(bin) = self.bin_operations.get_mut(class) {
                *bin = BinOperations { allocations: allocations as usize, frees: frees as usize };
            }
        }
        self.operations = operations.saturating_sub(counted.resized) as usize;
    }

    fn add_chunk(&mut self, start: usize, counted: &mut Operations, live: &mut [u64; CLASSES]) {
        let Some(is_guarded) = readers::read(start, |chunk| chunk.is_guarded.get()) else { return };
        let mut slice = 1;
        while slice <= SLICES {
            let seen = readers::read(start + slice * SLICE, |chunk| {
                let (run, is_free) = (chunk.run(slice), chunk.free.get() & bits(slice, 1) != 0);
                Slice {
                    run: if is_free { None } else { Observed::new(run) },
                    pages: run.touched().min(SLICE / PAGE),
                    is_returned: run.is_returned(),
                }
            });
            match seen {
                // A run cannot reach beyond its chunk, unless it changes just now.
                Some(Slice { run: Some(run), .. }) if slice + run.slices <= SLICES + 1 => {
                    self.add_run(&run);
                    live[run.class] += run.live() as u64;
                    let sum = &mut counted.allocations[run.class];
                    *sum = sum.saturating_sub(run.handed_out_next as u64);
                    slice += run.slices;
                    continue;
                }
                Some(Slice { run: None, pages, is_returned }) => {
                    self.dirty += pages * PAGE;
                    let rest = SLICE - pages * PAGE;
                    if is_returned { self.madvised += rest } else { self.fresh += rest }
                }
                Some(_) => self.dirty += SLICE,
                // The chunk was unmapped meanwhile.
                None if slice == 1 => return,
                None => self.madvised += SLICE,
            }
            slice += 1;
        }
        self.chunks += 1;
        self.bookkeeping += page_size();
        self.run_headers += RUN_HEADER * SLICES;
        let rest = SLICE - page_size();
        if is_guarded { self.waste_guards += rest + os::guard() } else { self.fresh += rest }
    }

    fn add_run(&mut self, run: &Observed) {
        let (live, blocks) = (run.live() * run.size, run.carved * run.size);
        self.allocated += live;
        self.blocks += run.live();
        self.bin_unused += blocks - live;
        let bytes = run.slices * SLICE;
        let committed = (run.pages * PAGE).clamp(blocks, bytes.max(blocks));
        // The pages with memory of a larger block that is free are not known.
        let committed = if run.slices > 1 { bytes } else { committed };
        self.waste_tails += committed - blocks;
        self.fresh += bytes - committed;
        if let Some(bin) = self.bins.get_mut(run.class) {
            bin.runs += 1;
            bin.blocks += run.live();
            bin.runs_non_full += usize::from(run.live() < run.capacity);
            bin.unused += blocks - live;
            bin.total += bytes;
        }
    }

    /// Returns the bytes that are in memory, or may be, beside blocks in use, for each 10,000 bytes
    /// of both: 0 to 10,000.
    pub fn overhead_in_10_000(&self) -> usize {
        let overhead = self.waste_tails + self.bookkeeping + self.dirty + self.bin_unused;
        (overhead.saturating_mul(10_000)).checked_div(self.allocated + overhead).unwrap_or(0)
    }
}

/// The totals that are known without a walk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct LiteStatistics {
    /// The size of this structure.
    pub size: usize,
    /// Memory that is mapped.
    pub mapped: usize,
    /// An upper bound of the blocks in use: runs with their free blocks, and huge blocks.
    pub allocated_max: usize,
    /// Free pages that may have memory.
    pub dirty: usize,
    /// About [`DetailedStatistics::operations`]: as many as if all blocks had been handed out that
    /// a thread has in its lists for the next allocations, and none had been freed that was not
    /// handed out again. So it differs by at most one for each free block of a run, and by 256 for
    /// each thread and size above 512 bytes.
    pub operations: usize,
}

/// Returns the totals, from any thread. Takes two locks, and two of each arena, each for some
/// loads: one for each thread that has a heap there.
pub fn lite_statistics() -> LiteStatistics {
    let now = crate::statistics();
    let sampled = sampled::usage().unwrap_or_default();
    LiteStatistics {
        size: size_of::<LiteStatistics>(),
        mapped: crate::mapped_limit::mapped() + sampled.allocated + sampled.fragmentation + sampled.metadata,
        allocated_max: now.run_bytes + now.huge_bytes + sampled.allocated,
        dirty: now.dirty_bytes,
        operations: operations::known() as usize,
    }
}
