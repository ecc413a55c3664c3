//! The memory of an arena, in numbers.

use core::sync::atomic::Ordering;

use super::ids::ArenaId;
use super::registry;
use crate::geometry::{CHUNK, PAGE, SLICE};

/// The memory of one arena in bytes, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaStatistics {
    /// The chunks and the huge blocks, which are mapped. The arena's limit is for this.
    pub mapped_bytes: usize,
    /// The limit. 0 if there is none.
    pub mapped_bytes_max: usize,
    /// The chunks. A part of their memory was never touched.
    pub chunk_bytes: usize,
    /// The slices of chunks that runs have, including free blocks in them.
    pub run_bytes: usize,
    /// The pages of free slices of chunks that may have memory.
    pub dirty_bytes: usize,
    /// The dirty bytes above which memory is returned to the system.
    pub dirty_bytes_max: usize,
    /// The mappings of huge blocks.
    pub huge_bytes: usize,
    /// The number of huge blocks.
    pub huge_blocks: usize,
    /// The number of times that memory of free slices was returned to the system.
    pub purges: usize,
    /// The memory of free slices that was returned so far.
    pub returned_bytes: usize,
}

/// Returns the statistics of an arena. `None` if no arena has the id. Takes two locks, each for
/// some loads, and waits for a purge of the arena.
pub fn arena_statistics(arena: ArenaId) -> Option<ArenaStatistics> {
    let id = arena.to_raw();
    let arena = registry::find(id)?;
    // Under this lock, nobody disposes of the arena. Before, its description may have become that
    // of another one.
    arena.purging.with(|()| {
        let settings = (arena.id() == id).then(|| arena.settings())?;
        Some(arena.space.with(|space| ArenaStatistics {
            mapped_bytes: arena.mapped.load(Ordering::Relaxed),
            mapped_bytes_max: settings.bytes_max,
            chunk_bytes: space.chunks * CHUNK,
            run_bytes: space.slices_used * SLICE,
            dirty_bytes: space.pages_dirty * PAGE,
            dirty_bytes_max: arena.dirty_max(space).saturating_mul(PAGE),
            huge_bytes: arena.huge_bytes.load(Ordering::Relaxed),
            huge_blocks: arena.huge_blocks.load(Ordering::Relaxed),
            purges: space.purges,
            returned_bytes: space.pages_returned * PAGE,
        }))
    })
}
