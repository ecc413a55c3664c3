//! The live blocks of one moment.

use std::time::Duration;

use heapledger_annotate::untracked;
use heapledger_core::{Blocks, Bytes};
use heapledger_inprocess::{SnapshotError, control};
use heapledger_ledger::{self as ledger, Key};

use crate::defects::{Defect, classified};
use crate::{Block, Stack, Stamp, Totals};

/// The options of a [`Snapshot`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// If set, the contents of blocks of the main heap are copied too: of the first blocks by
    /// address, up to this number of bytes in total. Copying makes the pause longer: by a second
    /// for some gigabytes. A block that cannot be read is not an error.
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
        let copy = heapledger_inprocess::snapshot(options.contents_max)?;
        Ok(Snapshot { copy, stack_probability: control::stack_probability() })
    }

    /// Returns the blocks that were live, in no useful order. A block that a reallocation was about
    /// to move is missing.
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.copy.blocks().map(|(block, marks)| Block::marked(block, marks))
    }

    /// Returns the contents of one of the snapshot's blocks, in whole words. `None` if contents
    /// were not [asked for](SnapshotOptions::contents_max), if there was no room for them, if the
    /// memory cannot be read or belongs to a pool, or if the block is larger than a gigabyte.
    /// Threads that neither allocate nor free go on writing while it is copied.
    pub fn contents(&self, block: &Block) -> Option<&[u64]> {
        self.copy.contents(Key(block.address), block.size).filter(|_| block.stack.heap().is_none())
    }

    /// Returns the blocks that had been freed: empty, unless they are counted because of
    /// [`LedgerOptions::keep_freed`](crate::LedgerOptions::keep_freed).
    pub fn freed(&self) -> impl Iterator<Item = FreedBlocks> {
        self.copy.freed().map(FreedBlocks::new)
    }

    /// Returns the number of freed blocks that are not in [`Snapshot::freed`] because there was no
    /// memory for their kinds within the bound.
    pub fn freed_lost(&self) -> Blocks {
        Blocks(self.copy.freed_lost())
    }

    /// Returns the defects at the moment of the snapshot: see
    /// [`Ledger::defects`](crate::Ledger::defects).
    pub fn defects(&self) -> Vec<Defect> {
        untracked::scope(|| {
            classified(self.copy.defects(), || self.copy.blocks().map(|(block, _)| block.key.address()))
        })
    }

    /// Returns how often reporters had made defects.
    pub fn defects_count(&self) -> u64 {
        self.copy.defects_count()
    }

    /// Returns what had been counted, and what was live, at the moment of the snapshot.
    pub fn totals(&self) -> Totals {
        Totals::of(self.copy.totals())
    }

    /// Returns the probability of [`Ledger::stack_probability`](crate::Ledger::stack_probability).
    pub fn stack_probability(&self) -> Option<f64> {
        self.stack_probability
    }

    /// Returns how long the program was held up: threads that allocated or freed meanwhile waited.
    pub fn pause(&self) -> Duration {
        Duration::from_nanos(self.copy.pause())
    }

    /// Returns the number of bytes that are mapped for the snapshot until it is dropped.
    pub fn bytes_mapped(&self) -> Bytes {
        Bytes(self.copy.bytes_mapped() as u64)
    }
}

/// Freed blocks that have these properties in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FreedBlocks {
    /// The requested size of each block.
    pub size: Bytes,
    /// The usable size of each block.
    pub usable: Bytes,
    /// The stack that allocated them.
    pub stack: Stack,
    /// The stamp of these blocks, if they had one.
    pub stamp: Option<Stamp>,
    /// The number of these blocks that the ledger had.
    pub blocks: Blocks,
    /// The weight of these blocks together: their number, unless they were sampled.
    pub weight: Blocks,
}

impl FreedBlocks {
    fn new(freed: ledger::FreedBlocks) -> FreedBlocks {
        let ledger::FreedBlocks { size, usable, stack, stamp, blocks, weight } = freed;
        FreedBlocks { size, usable, stack: Stack::of(stack), stamp: Stamp::of(stamp), blocks, weight }
    }

    /// Returns the stack that allocated the blocks, as [`Block::allocated_at`] does.
    pub fn allocated_at(&self) -> Option<Stack> {
        Stack::taken(self.stack.id())
    }
}
