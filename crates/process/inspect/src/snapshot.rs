//! The live blocks of one moment.

use std::time::Duration;

use heapledger_context::untracked;
use heapledger_core::{Blocks, Bytes};
use heapledger_ledger::{self as ledger, Key};
use heapledger_resident::{SnapshotError, control};

use crate::defects::{Defect, classified};
use crate::{Block, Stack, Stamp, Totals};

/// What is to be in a [`Snapshot`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// Also what is in the blocks of the main heap: the first ones by address, as far as they fit in so many bytes. It is copied
    /// during the pause, which it makes longer: by a second for some gigabytes. That a block cannot be read is no error.
    pub contents_max: Option<Bytes>,
}

/// The ledger at one moment: see [`Ledger::snapshot`](crate::Ledger::snapshot).
#[derive(Debug)]
pub struct Snapshot {
    copy: ledger::Snapshot,
    stack_probability: Option<f64>,
}

impl Snapshot {
    pub(crate) fn take(options: &SnapshotOptions) -> Result<Snapshot, SnapshotError> {
        let copy = heapledger_resident::snapshot(options.contents_max)?;
        Ok(Snapshot { copy, stack_probability: control::stack_probability() })
    }

    /// The blocks that were live, in no useful order. A block is missing that a reallocation was about to move.
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.copy.blocks().map(|(block, marks)| Block::marked(block, marks))
    }

    /// What was in one of the snapshot's blocks: its whole words. `None`: that was not [asked
    /// for](SnapshotOptions::contents_max), or there was no room for it, or the memory cannot be read, or is of a pool, or the
    /// block is larger than a gigabyte. Threads that neither allocate nor free go on writing while it is copied.
    pub fn contents(&self, block: &Block) -> Option<&[u64]> {
        self.copy.contents(Key(block.address), block.size).filter(|_| block.stack.heap().is_none())
    }

    /// Blocks that had been freed: empty, unless [`Options::keep_freed`](crate::Options::keep_freed) says that they are
    /// counted.
    pub fn freed(&self) -> impl Iterator<Item = FreedBlocks> {
        self.copy.freed().map(FreedBlocks::new)
    }

    /// How many more had been freed, for whose kinds there was no memory within the bound.
    pub fn freed_lost(&self) -> Blocks {
        Blocks(self.copy.freed_lost())
    }

    /// What reporters had done wrong: as [`Ledger::defects`](crate::Ledger::defects), of the snapshot's moment.
    pub fn defects(&self) -> Vec<Defect> {
        untracked::scope(|| {
            classified(self.copy.defects(), || self.copy.blocks().map(|(block, _)| block.key.address()))
        })
    }

    /// How often they had done something wrong.
    pub fn defects_count(&self) -> u64 {
        self.copy.defects_count()
    }

    /// What had been counted, and what was live.
    pub fn totals(&self) -> Totals {
        Totals::of(self.copy.totals())
    }

    /// As [`Ledger::stack_probability`](crate::Ledger::stack_probability).
    pub fn stack_probability(&self) -> Option<f64> {
        self.stack_probability
    }

    /// For how long the program was held up: whoever allocated or freed meanwhile waited.
    pub fn pause(&self) -> Duration {
        Duration::from_nanos(self.copy.pause())
    }

    /// What is mapped for the snapshot, until it is dropped.
    pub fn bytes_mapped(&self) -> Bytes {
        Bytes(self.copy.bytes_mapped() as u64)
    }
}

/// Blocks that have been freed, and had this in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FreedBlocks {
    /// Bytes that were asked for, each time.
    pub size: Bytes,
    /// Bytes that could be used.
    pub usable: Bytes,
    /// Where they were allocated.
    pub stack: Stack,
    /// What they were stamped with.
    pub stamp: Option<Stamp>,
    /// How many of them the ledger had.
    pub blocks: Blocks,
    /// How many these stand for: as many, unless they were sampled.
    pub stand_for: Blocks,
}

impl FreedBlocks {
    fn new(freed: ledger::FreedBlocks) -> FreedBlocks {
        let ledger::FreedBlocks { size, usable, stack, stamp, blocks, stand_for } = freed;
        FreedBlocks { size, usable, stack: Stack::of(stack), stamp: Stamp::of(stamp), blocks, stand_for }
    }

    /// As [`Block::allocated_at`].
    pub fn allocated_at(&self) -> Option<Stack> {
        Stack::taken(self.stack.id())
    }
}
