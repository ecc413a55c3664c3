//! Iteration over the live blocks of a register: a batch under each lock, none between two blocks.

use core::fmt;

use super::SharedRegister;
use crate::details::{Details, LiveBlock};
use crate::register::{Block, Key, Register};

/// The live blocks of a register, see [`SharedRegister::blocks`].
pub struct LiveBlocks<'r> {
    register: &'r SharedRegister,
    shard: usize,
    /// The hash from which the shard is still to be visited.
    from: u64,
    batch: Batch,
    next: usize,
}

impl<'r> LiveBlocks<'r> {
    pub(super) fn new(register: &'r SharedRegister) -> LiveBlocks<'r> {
        LiveBlocks { register, shard: 0, from: 0, batch: Batch::new(), next: 0 }
    }
}

impl Iterator for LiveBlocks<'_> {
    type Item = LiveBlock;

    fn next(&mut self) -> Option<LiveBlock> {
        loop {
            if let Some(&(key, block, details)) = self.batch.entries.get(self.next..self.batch.length)?.first() {
                self.next += 1;
                if !block.untracked {
                    return Some(LiveBlock::new(key, block, details));
                }
                continue;
            }
            let shard = self.register.shards.get(self.shard)?;
            self.next = 0;
            match self.batch.fill(&shard.lock().register, self.from) {
                Some(from) => self.from = from,
                None => (self.shard, self.from) = (self.shard + 1, 0),
            }
        }
    }
}

impl fmt::Debug for LiveBlocks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveBlocks").field("shard", &self.shard).finish_non_exhaustive()
    }
}

/// The blocks that an iteration takes under one lock.
pub(super) struct Batch {
    pub(super) entries: [(Key, Block, Details); BATCH],
    pub(super) length: usize,
}

/// The number of blocks in a batch: a few more than there are slots in `BATCH_CHUNKS` chunks, since
/// some entries are further on.
pub(super) const BATCH: usize = 64;
const BATCH_CHUNKS: usize = 4;

impl Batch {
    pub(super) fn new() -> Batch {
        Batch { entries: [(Key(0), Block::IGNORED, Details::default()); BATCH], length: 0 }
    }

    /// Takes the next blocks from a hash on. Returns the hash to go on from.
    pub(super) fn fill(&mut self, register: &Register<Details>, from: u64) -> Option<u64> {
        let mut until = register.hash_after(from, BATCH_CHUNKS);
        loop {
            self.length = 0;
            let mut found = 0;
            register.visit(from, until, |key, block, details| {
                if let Some(entry) = self.entries.get_mut(found) {
                    *entry = (key, block, details);
                }
                found += 1;
            });
            if found <= BATCH {
                self.length = found;
                return until;
            }
            // More than fit. This ends, because no two keys have the same hash.
            until = Some(from + (until.unwrap_or(u64::MAX) - from) / 2);
        }
    }
}
