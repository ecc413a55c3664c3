//! Live blocks.

use std::fmt;
use std::time::Duration;

use heapledger_core::{Blocks, Bytes, Serial, ThreadId};
use heapledger_ledger::{LiveBlock, Marks};
use heapledger_resident::{LEDGER, overhead, query};

use crate::Stack;
use crate::reported::Mark;
use crate::stamp::{Stamp, UNKNOWN};

/// A live block, as it was when it was asked for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// Bytes that were asked for.
    pub size: Bytes,
    /// Bytes that may be used, as the allocator says; those that were asked for where it does not say.
    pub usable: Bytes,
    /// Where it was allocated. Without frames where the stack was not taken: see [`Block::allocated_at`].
    pub stack: Stack,
    /// What it was stamped with.
    pub stamp: Option<Stamp>,
    /// The thread that allocated it, by the order in which threads came to the ledger. Numbers of threads that have ended
    /// are given to new ones. 0: not known.
    pub thread: ThreadId,
    /// The time since it was allocated, give or take a millisecond.
    pub age: Duration,
    /// The ordinal of its allocation since the ledger was started.
    pub serial: Serial,
    /// How many blocks of its size and stack it stands for: 1, unless it was sampled. A whole number, which is right on average.
    pub stands_for: Blocks,
    /// The mean distance of samples when it was sampled.
    pub sampled_every: Option<Bytes>,
    /// Who has reported it: the first two reports.
    pub marks: [Option<Mark>; 2],
}

impl Block {
    /// To be called within a query.
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
            stands_for: block.stands_for(),
            sampled_every: block.rate.mean(),
            marks: marks.map(|mark| mark.map(Mark::of)),
        }
    }

    /// Where it was allocated; `None`: its stack was not taken, since it was not chosen for that. See
    /// [`Options::stack_probability`](crate::Options::stack_probability).
    pub fn allocated_at(&self) -> Option<Stack> {
        Stack::taken(self.stack.id())
    }

    /// The type that it was stamped with.
    pub fn type_name(&self) -> Option<&'static str> {
        self.stamp.map(|stamp| stamp.type_name)
    }

    /// How far an address is into the block.
    pub fn offset_of<T: ?Sized>(&self, pointer: *const T) -> u64 {
        (pointer.cast::<u8>().addr() as u64).wrapping_sub(self.address)
    }
}

/// One line, then the stack.
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

/// The live blocks: see [`Ledger::blocks`](crate::Ledger::blocks).
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
