//! The memory that the allocator has, in numbers.

use crate::arena::registry;
use crate::base;
use crate::geometry::{CHUNK, PAGE, SLICE};
use crate::huge::HUGE;

/// The memory of all arenas of the process in bytes.
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

/// Returns the statistics. Takes two locks, and one of each arena, each for some loads. Each arena
/// is seen at one moment, but not all of them at the same.
pub fn statistics() -> Statistics {
    let (huge_blocks, huge_bytes) = HUGE.with(|blocks| (blocks.count, blocks.bytes));
    let mut sum = Statistics { huge_blocks, huge_bytes, bookkeeping_bytes: base::bytes(), ..Statistics::default() };
    registry::for_each(|arena| {
        arena.space.with(|space| {
            sum.chunk_bytes += space.chunks * CHUNK;
            sum.run_bytes += space.slices_used * SLICE;
            sum.dirty_bytes += space.pages_dirty * PAGE;
            sum.purges += space.purges;
        });
    });
    sum
}
