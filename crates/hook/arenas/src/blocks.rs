//! The register of the blocks that are in arenas over malloc.

use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, StackId};
use heapledger_ledger::{Block, Key, Locked, OutOfMemory, Register};

use crate::forks;

/// The number of tables that share the blocks, each under a lock of its own.
const SHARDS: usize = 16;

static SHARDED: [Locked<Register>; SHARDS] = [const { Locked::new(Register::new()) }; SHARDS];

/// A block in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaBlock {
    /// The arena's position in the table, which another arena may have since.
    pub(crate) arena: u32,
    /// The generation of that position, by which the arena is told from a later one.
    pub(crate) generation: u64,
    /// The requested bytes.
    pub(crate) size: u64,
}

fn shard(address: u64) -> &'static Locked<Register> {
    // Blocks are 16 bytes apart at least; neighbours go to different shards.
    let index = (address >> 4 ^ address >> 12) as usize % SHARDS;
    // `index` is below the length.
    SHARDED.get(index).unwrap_or(&SHARDED[0])
}

/// Enters a block; returns the one that had its address, if there is one.
pub(crate) fn insert(address: u64, block: ArenaBlock) -> Result<Option<ArenaBlock>, OutOfMemory> {
    let entry = Block {
        size: Bytes(block.size),
        stack: StackId(block.arena),
        serial: Serial(block.generation),
        rate: Rate::EXACT,
        inherited: false,
        untracked: false,
    };
    let _reopened = forks::reopen();
    shard(address).lock().insert(Key(address), entry).map(|old| old.map(|old| known(&old)))
}

/// Returns the block that begins at an address.
pub(crate) fn get(address: u64) -> Option<ArenaBlock> {
    let _reopened = forks::reopen();
    shard(address).lock().get(Key(address)).map(|block| known(&block))
}

/// Takes out the block that begins at an address.
pub(crate) fn remove(address: u64) -> Option<ArenaBlock> {
    let _reopened = forks::reopen();
    shard(address).lock().remove(Key(address)).map(|block| known(&block))
}

fn known(block: &Block) -> ArenaBlock {
    ArenaBlock { arena: block.stack.0, generation: block.serial.0, size: block.size.0 }
}

/// Holds all locks, so that a forked child gets a whole register.
pub(crate) fn before_fork() {
    SHARDED.iter().for_each(Locked::hold);
}

/// Releases the locks, in the parent and in the child.
///
/// # Safety
///
/// The calling thread called [`before_fork`], or is its copy in the child.
pub(crate) unsafe fn after_fork() {
    // SAFETY: `Locked::release` asks that this thread, or the one that it is a copy of, held the
    // lock last: by this function's `# Safety` it called `before_fork`, which held them all.
    SHARDED.iter().rev().for_each(|shard| unsafe { shard.release() });
}
