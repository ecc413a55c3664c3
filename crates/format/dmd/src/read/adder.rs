//! Who adds up the blocks that are read.

use crate::builder::{Block, Groups};

/// How many blocks are added at once.
const BLOCKS: usize = 4096;

/// Takes the blocks of a log as they are read, and has them [`Added`] up: at once, as `Added` itself does, or beside, in
/// another thread.
pub trait Adder {
    /// Takes blocks.
    fn add(&mut self, blocks: Blocks);

    /// Everything that it was given, added up in the same order.
    fn finish(self) -> Added;
}

/// Some blocks of a log.
#[derive(Debug)]
pub struct Blocks(Vec<(Block, bool)>);

/// Blocks, added up.
#[derive(Debug)]
pub struct Added {
    pub(super) groups: Groups,
    /// The groups of blocks of which they are to be known, in the order of the blocks.
    pub(super) known: Vec<u32>,
}

impl Added {
    /// Nothing yet. With `is_merging` blocks of the same usable size count as of one size.
    pub(super) fn new(is_merging: bool) -> Added {
        Added { groups: Groups::new(is_merging), known: Vec::new() }
    }
}

/// For an [analysis](crate::Analysis).
impl Default for Added {
    fn default() -> Added {
        Added::new(true)
    }
}

impl Adder for Added {
    fn add(&mut self, Blocks(blocks): Blocks) {
        for blocks in blocks.chunks(64) {
            self.groups.await_memory(blocks.iter().map(|(block, _)| block));
            for (block, is_known) in blocks {
                let group = self.groups.add(block);
                if *is_known {
                    self.known.push(group);
                }
            }
        }
    }

    fn finish(self) -> Added {
        self
    }
}

/// Gives blocks to an adder, many at once.
pub(super) struct Adding<A> {
    adder: A,
    waiting: Vec<(Block, bool)>,
}

impl<A: Adder> Adding<A> {
    pub(super) fn new(adder: A) -> Adding<A> {
        Adding { adder, waiting: Vec::new() }
    }

    /// A block; it may be that its group is to be known.
    #[inline]
    pub(super) fn add(&mut self, block: Block, is_known: bool) {
        self.waiting.push((block, is_known));
        if self.waiting.len() == BLOCKS {
            let next = Vec::with_capacity(BLOCKS);
            self.adder.add(Blocks(std::mem::replace(&mut self.waiting, next)));
        }
    }

    pub(super) fn finish(mut self) -> Added {
        self.adder.add(Blocks(self.waiting));
        self.adder.finish()
    }
}
