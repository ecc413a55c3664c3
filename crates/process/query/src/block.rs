//! Live blocks.

use std::fmt;
use std::time::Duration;

use heapledger_core::{Blocks, Bytes, Serial, ThreadId};
use heapledger_inprocess::{LEDGER, overhead, query};
use heapledger_ledger::{LiveBlock, Marks};

use crate::Stack;
use crate::reported::Mark;
use crate::stamp::{Stamp, UNKNOWN};

/// A live block, as it was at the time of the query.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Block {
    /// The address at which the block begins.
    pub address: u64,
    /// The requested size.
    pub size: Bytes,
    /// The usable size, as the allocator reports it; the requested size if it does not.
    pub usable: Bytes,
    /// The stack that allocated the block. Without frames if the stack was not taken: see
    /// [`Block::allocated_at`].
    pub stack: Stack,
    /// The block's stamp, if it has one.
    pub stamp: Option<Stamp>,
    /// The thread that allocated the block. Threads are numbered in the order in which they came to
    /// the ledger; numbers of threads that have ended are given to new ones. 0 if the thread is not
    /// known.
    pub thread: ThreadId,
    /// The time since the allocation, to within a millisecond.
    pub age: Duration,
    /// The ordinal of its allocation since the ledger was started.
    pub serial: Serial,
    /// The weight of a sampled block: the number of blocks of its size and stack that it counts
    /// for. 1 unless it was sampled. A whole number, which is right on average.
    pub weight: Blocks,
    /// The mean distance between samples at the time when the block was sampled.
    pub sampled_every: Option<Bytes>,
    /// The first two marks of reporters on the block.
    pub marks: [Option<Mark>; 2],
}

impl Block {
    /// Describes a live block; to be called within a query.
    pub(crate) fn new(block: LiveBlock) -> Block {
        Block::marked(block, LEDGER.marks(block.key))
    }

    pub(crate) fn marked(block: LiveBlock, marks: Marks) -> Block {
        Block {
            address: block.key.address(),
            size: block.size,
            usable: block.usable,
            stack: Stack::of(block.stack),
            stamp: Stamp::of(block.stamp),
            thread: block.thread,
            age: Duration::from_nanos(overhead::age(block.time.0)),
            serial: block.serial,
            weight: block.weight(),
            sampled_every: block.rate.mean(),
            marks: marks.map(|mark| mark.map(Mark::of)),
        }
    }

    /// Returns the stack that allocated the block. `None` if the stack was not taken, since the
    /// block was not chosen for that: see
    /// [`LedgerOptions::stack_probability`](crate::LedgerOptions::stack_probability).
    pub fn allocated_at(&self) -> Option<Stack> {
        Stack::taken(self.stack.id())
    }

    /// Returns the type of the block's stamp.
    pub fn type_name(&self) -> Option<&'static str> {
        self.stamp.map(|stamp| stamp.type_name)
    }

    /// Returns the offset of an address in the block.
    pub fn offset_of<T: ?Sized>(&self, pointer: *const T) -> u64 {
        (pointer.cast::<u8>().addr() as u64).wrapping_sub(self.address)
    }
}

/// Prints one line, then the stack.
impl fmt::Display for Block {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Block { address, size, usable, thread, age, .. } = self;
        let name = self.type_name().unwrap_or(UNKNOWN);
        writeln!(
            out,
            "{address:#x}: {name}, {} bytes ({} usable), thread {}, {age:.1?} ago, allocated at",
            size.0, usable.0, thread.0
        )?;
        self.stack.fmt(out)
    }
}

/// An iterator over the live blocks: see [`Ledger::blocks`](crate::Ledger::blocks).
#[derive(Debug)]
pub struct LiveBlocks(heapledger_ledger::LiveBlocks<'static>);

impl LiveBlocks {
    pub(crate) fn new() -> LiveBlocks {
        LiveBlocks(LEDGER.blocks())
    }
}

impl Iterator for LiveBlocks {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        query(|| self.0.next().map(Block::new)).flatten()
    }
}
