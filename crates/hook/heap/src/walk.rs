//! A walk over the blocks in use.

use core::ops::ControlFlow;

use crate::arena::SharedArena;
use crate::chunk::bits;
use crate::geometry::{CHUNK, SLICE, SLICES};
use crate::huge::{HUGE, HugePtr};
use crate::map::{self, Range};
use crate::readers;
use crate::run::Observed;

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct LiveBlock {
    /// Its address.
    pub start: usize,
    /// Its usable size in bytes.
    pub size: usize,
    /// The id of its arena.
    pub arena: u64,
}

/// Visits all blocks in use, in the order of their addresses, until the visitor breaks.
///
/// No lock is held while the visitor runs, so it may allocate and free. The walk is exact if nobody
/// allocates or frees meanwhile, the visitor included: each block that was in use is visited once.
/// Otherwise, blocks that stay in use are still visited once; of the others, some are visited. A
/// block may have been freed by another thread when it is visited, so its content may be read only
/// if that is excluded. Costs some loads for each block, free blocks included.
pub fn walk(mut visit: impl FnMut(LiveBlock) -> ControlFlow<()>) -> ControlFlow<()> {
    let mut next = map::next(0);
    while let Some((start, range)) = next {
        match range {
            Range::Chunk => walk_chunk(start, &mut visit)?,
            Range::Huge(word) => {
                let block = HUGE.with(|_| {
                    // SAFETY: `from_address` demands the word of a description: those of huge
                    // blocks are that.
                    let huge = (map::find(start) == Some(range)).then(|| unsafe { HugePtr::from_address(word) })?;
                    Some(LiveBlock { start, size: huge.length(), arena: huge.arena().public_id() })
                });
                if let Some(block) = block {
                    visit(block)?;
                }
            }
        }
        next = map::next(start + CHUNK);
    }
    ControlFlow::Continue(())
}

fn walk_chunk(chunk: usize, visit: &mut impl FnMut(LiveBlock) -> ControlFlow<()>) -> ControlFlow<()> {
    let mut slice = 1;
    while slice <= SLICES {
        let Some((run, arena)) = observe(chunk, slice) else {
            slice += 1;
            continue;
        };
        for number in (0..run.carved).filter(|&number| run.is_live(number)) {
            visit(LiveBlock { start: run.start + number * run.size, size: run.size, arena })?;
        }
        slice += run.slices;
    }
    ControlFlow::Continue(())
}

/// Looks at the run that begins at a slice of a chunk, if the chunk is still there. Returns it with
/// the id of its arena.
fn observe(chunk: usize, slice: usize) -> Option<(Observed, u64)> {
    readers::read(chunk + slice * SLICE, |chunk| {
        let is_free = chunk.free.get() & bits(slice, 1) != 0;
        let run = if is_free { None } else { Observed::new(chunk.run(slice)) };
        run.map(|run| (run, SharedArena::of(chunk).public_id()))
    })?
}
