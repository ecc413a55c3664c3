//! The details of a block that a program's own ledger keeps beyond those of a recording's ledger.

use heapledger_core::sample::Rate;
use heapledger_core::totals::Time;
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId, TypeId};

use crate::mapped::Zeroed;
use crate::register::{Block, Key};

/// A live block, with all that is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Its address, and its pool.
    pub key: Key,
    /// The requested size.
    pub size: Bytes,
    /// The rate at which it was sampled.
    pub rate: Rate,
    /// The usable size: at least the requested size, and at most 4 GiB more.
    pub usable: Bytes,
    /// The site.
    pub stack: StackId,
    /// The ordinal of its allocation.
    pub serial: Serial,
    /// The type declared for it.
    pub stamp: TypeId,
    /// The thread that allocated it. The low 24 bits of its number are kept.
    pub thread: ThreadId,
    /// The time at which it was allocated, rounded down to a multiple of [`LiveBlock::TIME_STEP`].
    pub time: Time,
    /// The pool, by its id, whose backing memory the block is. Such a block is in no total itself,
    /// and has no serial and no stamp.
    pub backs: Option<u32>,
}

impl LiveBlock {
    /// Creates a block of the main heap of which only the size and the address are known; 47 bits
    /// of the address are kept.
    pub const fn at(address: u64, size: Bytes) -> LiveBlock {
        LiveBlock {
            key: Key(Key(address).address()),
            size,
            rate: Rate::EXACT,
            usable: size,
            stack: StackId::ROOT,
            serial: Serial(0),
            stamp: TypeId::NONE,
            thread: ThreadId(0),
            time: Time(0),
            backs: None,
        }
    }

    /// See [`Block::weight`].
    #[inline(always)]
    pub fn weight(&self) -> Blocks {
        Blocks(self.rate.weight(self.size, self.serial))
    }

    /// The resolution of the times of blocks: a quarter of a millisecond if the unit of [`Time`] is
    /// a nanosecond. 58 bits of a time are kept, which are nine years.
    pub const TIME_STEP: u64 = 1 << TIME_SHIFT;

    /// True if an address in the block's own pool is in the block. A block of no bytes contains its
    /// own address.
    #[inline(always)]
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.key.address()) < self.usable.0.max(1)
    }

    #[inline(always)]
    pub(crate) fn new(key: Key, block: Block, details: Details) -> LiveBlock {
        let backs = block.untracked.then_some(details.stamp);
        LiveBlock {
            key,
            size: block.size,
            rate: block.rate,
            usable: details.usable(block),
            stack: block.stack,
            serial: block.serial,
            stamp: if block.untracked { TypeId::NONE } else { TypeId(details.stamp) },
            thread: ThreadId((details.thread_and_time >> TIME_BITS) as u32),
            time: Time((details.thread_and_time & TIME_MAX) << TIME_SHIFT),
            backs,
        }
    }

    #[inline(always)]
    pub(crate) fn details(&self) -> Details {
        let slop = u32::try_from(self.usable.0.saturating_sub(self.size.0)).unwrap_or(u32::MAX);
        let thread = u64::from(self.thread.0) << TIME_BITS;
        let stamp = self.backs.unwrap_or(self.stamp.0);
        Details { slop, stamp, thread_and_time: thread | self.time.0 >> TIME_SHIFT & TIME_MAX }
    }
}

/// The logarithm of the time step: 2¹⁸ units.
const TIME_SHIFT: u32 = 18;
const TIME_BITS: u32 = 40;
const TIME_MAX: u64 = (1 << TIME_BITS) - 1;

/// The details as kept beside the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Details {
    /// Usable less requested size.
    slop: u32,
    /// The block's stamp; for a block that is untracked, the pool that it backs.
    pub(crate) stamp: u32,
    thread_and_time: u64,
}

// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. The fields are
// `u32` and `u64`. 0 is a valid integer.
unsafe impl Zeroed for Details {}

impl Details {
    #[inline(always)]
    fn usable(&self, block: Block) -> Bytes {
        Bytes(block.size.0.saturating_add(u64::from(self.slop)))
    }

    /// Returns the number of addresses that the block has.
    #[inline(always)]
    pub(crate) fn extent(&self, block: Block) -> u64 {
        self.usable(block).0.max(1)
    }
}
