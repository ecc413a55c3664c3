//! A general-purpose allocator in the terms of mozjemalloc, whose common path takes no lock.
//!
//! - Memory comes in chunks of 4 MiB. A chunk is divided into slices of 64 KiB; its header
//!   has the metadata of all of them, so that none lies among the program's blocks.
//! - A run is a range of slices with blocks of one size class. Blocks over 64 KiB
//!   have a run each; blocks over 1 MiB are mappings of their own.
//! - A heap belongs to one thread, and a run to one heap. The thread takes blocks from a
//!   run's free list and gives them back to a second one; other threads give them back to a third,
//!   with one atomic exchange. When the first is empty, the second takes its place, then the
//!   third: everything that must be done now and then is done at that moment. Blocks above 512
//!   bytes are taken from the second list first.
//! - An arena has chunks, under a lock of its own. The main one returns memory to the system when
//!   more than 2 MiB and a sixteenth of what is used lies free; there is no thread for that. A
//!   program can create [others](arenas), in which each thread has a heap of its own, too.
//! - A radix tree knows the chunks and the huge blocks: addresses that the allocator did not
//!   return are noticed by it when they are not the thread's own.
//!
//! - Memory that the system refuses is asked for again, after everything that is free was returned,
//!   the embedder's handler was called, and, if that can help, some time has passed: see
//!   [`set_stall`].
//!
//! Wrong frees abort the program with a message on standard error if they are noticed. Noticed are:
//!
//! - a block of up to 512 bytes that is twice in the list of its own thread: with fewer than eight
//!   frees of its run between (four if it has more than 128 bytes), when the list is taken; with
//!   more, if the list is the one in sixteen that is checked as a whole (in a heap of over 4 MiB,
//!   fewer than two frees, or one, and one list in 64);
//! - a larger one: with at most one free of its run between, when it is allocated again; otherwise
//!   if the lists of its run are checked before that. They are when the run becomes the current one
//!   of its class, and once in 64 or 128 allocations from it (in a heap of over 4 MiB, only
//!   once in 256 or 512);
//! - a block that is twice in the list of other threads, when its thread takes that;
//! - a block that is twice in any of these lists, or in use, when its run is released, or when its
//!   free blocks are put in order, which happens to some runs without blocks in use;
//! - a block whose run was released and not used again, a huge block, and an address that the
//!   allocator does not have.
//!
//! A library that brings the allocator must not be unloaded: the C library calls it when threads
//! end and when the process forks. Link it with `-z nodelete`.
//!
//! For an address of others, the metadata that a chunk would have there is read first. If nothing
//! is mapped at that place, the program ends by SIGSEGV.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: heapledger_heap::HeapAllocator = heapledger_heap::HeapAllocator;
//!
//! let text = String::from("on the heap");
//! // SAFETY: the buffer of a string is a block of the global allocator, and stays allocated.
//! let usable = unsafe { heapledger_heap::usable_size(text.as_ptr()) };
//! assert!(usable >= text.capacity());
//! ```
#![no_std]
#![cfg_attr(miri, allow(dead_code, reason = "under Miri there are no forks and no refusals"))]

#[cfg(any(test, miri))]
extern crate std;

mod block;
mod membership;
mod notices;
mod remote;

// Loom has only what threads share without a lock; its atomics cannot be in statics.
#[cfg(not(all(test, loom)))]
mod api;
#[cfg(not(all(test, loom)))]
mod arch;
#[cfg(not(all(test, loom)))]
mod arena;
#[cfg(not(all(test, loom)))]
mod base;
#[cfg(not(all(test, loom)))]
mod bin;
#[cfg(not(all(test, loom)))]
mod c;
#[cfg(not(all(test, loom)))]
mod chunk;
#[cfg(not(all(test, loom)))]
use heapledger_core::size_classes as classes;
#[cfg(not(all(test, loom)))]
mod countdown;
#[cfg(not(all(test, loom)))]
mod detailed;
#[cfg(not(all(test, loom)))]
mod fatal;
#[cfg(not(all(test, loom)))]
mod filled;
#[cfg(not(all(test, loom)))]
mod from_heap;
#[cfg(not(all(test, loom)))]
mod geometry;
#[cfg(not(all(test, loom)))]
mod global;
#[cfg(not(all(test, loom)))]
mod heap;
#[cfg(not(all(test, loom)))]
mod huge;
#[cfg(not(all(test, loom)))]
mod keys;
#[cfg(not(all(test, loom)))]
mod layout;
#[cfg(not(all(test, loom)))]
mod limits;
#[cfg(not(all(test, loom)))]
mod locked;
#[cfg(not(all(test, loom)))]
mod map;
#[cfg(not(all(test, loom)))]
mod mapped_limit;
#[cfg(not(all(test, loom)))]
mod options;
#[cfg(not(all(test, loom)))]
#[cfg_attr(miri, path = "os/miri.rs")]
mod os;
#[cfg(not(all(test, loom)))]
mod page;
#[cfg(not(all(test, loom)))]
mod pointer;
#[cfg(not(all(test, loom)))]
mod random;
#[cfg(not(all(test, loom)))]
mod readers;
#[cfg(not(all(test, loom)))]
mod relaxed;
#[cfg(not(all(test, loom)))]
mod run;
#[cfg(not(all(test, loom)))]
mod sampled;
#[cfg(not(all(test, loom)))]
mod shortage;
#[cfg(not(all(test, loom)))]
mod stall;
#[cfg(not(all(test, loom)))]
mod statistics;
#[cfg(not(all(test, loom)))]
mod threads;
#[cfg(not(all(test, loom)))]
mod trim;
#[cfg(not(all(test, loom)))]
mod walk;
#[cfg(not(all(test, loom)))]
mod zeroed;

#[cfg(not(all(test, loom)))]
pub use api::{
    allocate, allocate_aligned, allocate_any_at_once, allocate_at_once, allocate_otherwise, allocate_zeroed, free,
    good_size, reallocate, restart_sampling, usable_size,
};
#[cfg(not(all(test, loom)))]
pub use c::{
    PtrInfo, Visit, WriteText, heapledger_arena_stats, heapledger_ptr_info, heapledger_stats, heapledger_stats_lite,
    heapledger_stats_print, heapledger_walk,
};
#[cfg(not(all(test, loom)))]
pub use detailed::{
    BINS, BinOperations, BinStatistics, DetailedStatistics, LiteStatistics, StatisticsFormat,
    detailed_arena_statistics, detailed_statistics, lite_statistics, write_statistics,
};
#[cfg(not(all(test, loom)))]
pub use from_heap::ALIGNMENT;
#[cfg(not(all(test, loom)))]
pub use global::HeapAllocator;

/// Arenas: memory for blocks that are kept apart. See docs/arenas.md.
#[cfg(not(all(test, loom)))]
pub mod arenas {
    pub use crate::arena::blocks::{
        allocate_aligned_in, allocate_in, allocate_in_at_once, allocate_in_otherwise, allocate_zeroed_in, arena_of,
        dispose, find_by_label, free_in, main_arena, reallocate_in,
    };
    pub use crate::arena::handle::{Arena, ArenaBuilder};
    pub use crate::arena::ids::ArenaId;
    pub use crate::arena::source::ChunkCallbacks;
    pub use crate::arena::statistics::{ArenaStatistics, arena_statistics};
    pub use crate::arena::thread_local::use_thread_local_arena;
}

/// Purges: when the memory of free pages goes back to the system. See docs/arenas.md.
#[cfg(not(all(test, loom)))]
pub mod purges {
    pub use crate::arena::purge::deferred::PurgeResult;
    pub use crate::arena::purge::hook::{PurgeEvent, PurgeHook};
    pub use crate::arena::purge::public::{
        enable_deferred_purge, purge_all, purge_excess, purge_now, set_dirty_decay, set_dirty_modifier, set_purge_hook,
    };
}
#[cfg(not(all(test, loom)))]
pub use layout::{HeapLayout, heapledger_heap_v1};
#[cfg(not(all(test, loom)))]
pub use limits::ShortageCause;
#[cfg(not(all(test, loom)))]
pub use options::{ALLOCATOR_OPTIONS, AllocatorOptions, AlreadyStarted, JUNK, POISON, Poison};
#[cfg(not(all(test, loom)))]
pub use page::page_size;
#[cfg(not(all(test, loom)))]
pub use pointer::{PointerInfo, PointerKind, pointer_info};
#[cfg(not(all(test, loom)))]
pub use random::reset_randomisation;
#[cfg(not(all(test, loom)))]
pub use shortage::{LowMemoryHandler, Shortages, set_low_memory_handler, set_stall, shortages};
#[cfg(not(all(test, loom)))]
pub use stall::StallSpecs;
#[cfg(not(all(test, loom)))]
pub use statistics::{Statistics, statistics};
#[cfg(not(all(test, loom)))]
pub use trim::trim;
#[cfg(not(all(test, loom)))]
pub use walk::{LiveBlock, walk};

#[cfg(all(test, not(loom)))]
mod tests;
