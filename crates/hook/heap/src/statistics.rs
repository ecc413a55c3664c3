//! The memory that the allocator has, in numbers.

use crate::arena::ARENA;
use crate::geometry::{CHUNK, PAGE, SLICE};
use crate::huge::HUGE;

/// The memory of the process's arena in bytes, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// The chunks, which are mapped. A part of their memory was never touched.
    pub chunk_bytes: usize,
    /// The slices of chunks that runs have, including free blocks in them.
    pub run_bytes: usize,
    /// The pages of free slices of chunks that may have memory.
    pub dirty_bytes: usize,
    /// The mappings of huge blocks.
    pub huge_bytes: usize,
    /// The number of huge blocks.
    pub huge_blocks: usize,
    /// The structures of the allocator outside of chunks.
    pub bookkeeping_bytes: usize,
    /// The number of times that memory of free slices was returned to the system.
    pub purges: usize,
}

/// Returns the statistics. Takes two locks, each for some loads.
pub fn statistics() -> Statistics {
    let (huge_blocks, huge_bytes) = HUGE.with(|blocks| (blocks.count, blocks.bytes));
    ARENA.with(|arena| Statistics {
        chunk_bytes: arena.chunks * CHUNK,
        run_bytes: arena.slices_used * SLICE,
        dirty_bytes: arena.pages_dirty * PAGE,
        huge_bytes,
        huge_blocks,
        bookkeeping_bytes: arena.base_bytes,
        purges: arena.purges,
    })
}
