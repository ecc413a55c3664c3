//! An entry of the register as the table keeps it: a block packed into three words.

use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, StackId};

use super::{Block, Key, SERIAL_MAX, Sampled};

/// An entry as kept.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Entry<D> {
    pub(super) key: u64,
    /// The size and the rate: see [`pack`].
    pub(super) size: u64,
    /// The stack in the low 26 bits, above it the serial, and in the top bit whether the block is
    /// inherited.
    pub(super) rest: u64,
    pub(super) more: D,
}

pub(super) const INHERITED: u64 = 1 << (STACK_BITS + SERIAL_BITS);
/// The bits of a block that is untracked: inherited, with an impossible serial.
const UNTRACKED: u64 = INHERITED | SERIAL_MASK << STACK_BITS;

impl<D: Copy> Entry<D> {
    #[inline(always)]
    pub(super) fn new(key: Key, block: Block, more: D) -> Entry<D> {
        let stack = u64::from(block.stack.min(StackId::MAX).0);
        let serial = block.serial.min(SERIAL_MAX).0 << STACK_BITS;
        let standing = match block {
            Block { untracked: true, .. } => UNTRACKED,
            Block { inherited: true, .. } => INHERITED,
            _ => 0,
        };
        Entry { key: key.0, size: pack(block.size, block.rate), rest: stack | serial | standing, more }
    }

    #[inline(always)]
    pub(super) fn contents(&self) -> (Block, D) {
        (self.block(), self.more)
    }

    #[inline(always)]
    pub(super) fn block(&self) -> Block {
        let inherited = self.rest & INHERITED != 0;
        let untracked = inherited && self.rest & UNTRACKED == UNTRACKED;
        let (size, rate) = unpack(self.size);
        Block {
            size,
            stack: StackId(self.rest as u32 & StackId::MAX.0),
            serial: if untracked { Serial(0) } else { Serial(self.rest >> STACK_BITS & SERIAL_MASK) },
            rate,
            inherited,
            untracked,
        }
    }
}

const STACK_BITS: u32 = 26;
const SERIAL_BITS: u32 = 37;
pub(super) const SERIAL_MASK: u64 = (1 << SERIAL_BITS) - 1;

/// The largest size that the register keeps…
const SIZE_MAX: u64 = RATED - 1;
/// …and for a block that was sampled: the top bit says so, and below it is the rate.
const RATED_SIZE_MAX: u64 = (1 << RATE_SHIFT) - 1;
const RATED: u64 = 1 << 63;
const RATE_SHIFT: u32 = 57;

/// Packs a size and a rate as the register keeps them.
#[inline(always)]
fn pack(size: Bytes, rate: Rate) -> u64 {
    match rate {
        Rate::EXACT => size.0.min(SIZE_MAX),
        _ => RATED | u64::from(rate.logarithm()) << RATE_SHIFT | size.0.min(RATED_SIZE_MAX),
    }
}

#[inline(always)]
fn unpack(packed: u64) -> (Bytes, Rate) {
    if packed & RATED == 0 {
        (Bytes(packed), Rate::EXACT)
    } else {
        (Bytes(packed & RATED_SIZE_MAX), Rate::from_logarithm((packed ^ RATED) >> RATE_SHIFT))
    }
}

impl Sampled {
    /// Returns the size and rate as the register keeps them.
    #[inline(always)]
    pub(crate) fn kept(self) -> Sampled {
        let (size, rate) = unpack(pack(self.size, self.rate));
        Sampled { size, rate }
    }
}
