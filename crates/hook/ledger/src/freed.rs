//! Blocks that have been freed: the number of them for each size and site.

use heapledger_core::{Blocks, Bytes, Serial, StackId, TypeId};

use crate::budget::Budget;
use crate::details::LiveBlock;
use crate::mapped::{OutOfMemory, Zeroed};
use crate::register::{Block, Key, Register};

#[cfg(all(test, not(loom)))]
mod tests;

/// Blocks of one site, size, rate and stamp that have been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedBlocks {
    /// The requested size of each.
    pub size: Bytes,
    /// The usable size of each.
    pub usable: Bytes,
    /// Their site.
    pub stack: StackId,
    /// The type declared for them.
    pub stamp: TypeId,
    /// The number of blocks.
    pub blocks: Blocks,
    /// The sum of their weights: the same number, if they were not sampled.
    pub weight: Blocks,
}

/// The counts of all freed blocks.
pub(crate) struct FreedTable {
    /// By a hash of what the blocks have in common or, if other blocks have that key, the next free
    /// one.
    register: Register<Count>,
    lost: u64,
}

impl FreedTable {
    pub(crate) const fn new() -> FreedTable {
        FreedTable { register: Register::new(), lost: 0 }
    }

    /// Counts a block that has been freed. If there is no room for another kind of block, the block
    /// is counted as lost.
    pub(crate) fn add(&mut self, budget: &Budget, block: &LiveBlock) {
        let freed = Block {
            size: block.size,
            stack: block.stack,
            serial: Serial(0),
            inherited: false,
            untracked: false,
            rate: block.rate,
        };
        let slop = u32::try_from(block.usable.0.saturating_sub(block.size.0)).unwrap_or(u32::MAX);
        let mut key = key(freed, slop, block.stamp);
        let mut count = Count { slop, stamp: block.stamp.0, blocks: 0, weight: 0 };
        while let Some((known, more)) = self.register.at(key) {
            if known == freed && (more.slop, more.stamp) == (slop, block.stamp.0) {
                count = more;
                break;
            }
            key.0 = key.0.wrapping_add(1);
        }
        if count.blocks == 0 && self.register.is_full() && budget.grow(&mut self.register).is_err() {
            self.lost += 1;
            return;
        }
        count.blocks += 1;
        count.weight = count.weight.wrapping_add(block.weight().0);
        self.register.replace(key, freed, count);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = FreedBlocks> {
        self.register.entries().map(|(_, Block { size, stack, .. }, count)| FreedBlocks {
            size,
            usable: Bytes(size.0.saturating_add(count.slop.into())),
            stack,
            stamp: TypeId(count.stamp),
            blocks: Blocks(count.blocks),
            weight: Blocks(count.weight),
        })
    }

    /// Returns the number of freed blocks that are not in the table because memory was lacking.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn chunks(&self) -> usize {
        self.register.chunks()
    }

    /// See [`Register::ready`].
    pub(crate) fn ready(chunks: usize) -> Result<FreedTable, OutOfMemory> {
        Ok(FreedTable { register: Register::ready(chunks)?, lost: 0 })
    }

    /// See [`Register::copy_from`].
    pub(crate) fn copy_from(&mut self, other: &FreedTable) -> Result<(), OutOfMemory> {
        self.lost = other.lost;
        self.register.copy_from(&other.register)
    }

    pub(crate) fn bytes_mapped(&self) -> usize {
        self.register.bytes_mapped()
    }
}

/// The part of a kind of blocks that the register has no field for.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Count {
    slop: u32,
    stamp: u32,
    blocks: u64,
    weight: u64,
}

// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. The fields are
// `u32` and `u64`. 0 is a valid integer.
unsafe impl Zeroed for Count {}

fn key(block: Block, slop: u32, stamp: TypeId) -> Key {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let stack = u64::from(block.rate.logarithm()) << 32 | u64::from(block.stack.0);
    let words = [block.size.0, stack, u64::from(slop) << 32 | u64::from(stamp.0)];
    Key(words.into_iter().fold(0, mix))
}
