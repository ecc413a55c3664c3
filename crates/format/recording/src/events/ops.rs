//! The common part of the encoder and the decoder of event chunks: the numbers of operations, and
//! the blocks released lately.
//!
//! Events are coded such that a program that does the same again gives the same bytes again,
//! whatever it did before and whatever else is live; compression does the rest. So an allocation
//! names its *source* (stack and entry point), numbered within the chunk, and its size only if it
//! differs from the last one of that source. A release names its block by its age in allocations if
//! it is young, else relative to blocks that the same thread released lately. Nothing is carried
//! from chunk to chunk.

use heapledger_core::ThreadId;

pub(super) const COLUMN_OPS: u16 = 1;
pub(super) const COLUMN_STACKS: u16 = 2;
pub(super) const COLUMN_CALLS: u16 = 3;
pub(super) const COLUMN_SOURCES: u16 = 4;
pub(super) const COLUMN_SIZES_LOW: u16 = 5;
pub(super) const COLUMN_SIZES_HIGH: u16 = 6;
pub(super) const COLUMN_NEAR: u16 = 7;
pub(super) const COLUMN_FAR_LOW: u16 = 8;
pub(super) const COLUMN_FAR_MIDDLE: u16 = 9;
pub(super) const COLUMN_FAR_HIGH: u16 = 10;
pub(super) const COLUMN_TICKS: u16 = 11;
pub(super) const COLUMN_THREADS: u16 = 12;
pub(super) const COLUMN_EXTRAS: u16 = 13;
/// Present only if blocks were moved (reattributed).
pub(super) const COLUMN_MOVES: u16 = 14;
/// Present only if reporters marked blocks.
pub(super) const COLUMN_MARKS: u16 = 15;
/// Present only if usable sizes were recorded.
pub(super) const COLUMN_USABLE: u16 = 16;

// The kind of a mark, in a varint.
pub(super) const MARK_BLOCK: u64 = 0;
pub(super) const MARK_INSIDE: u64 = 1;
pub(super) const MARK_NOTHING: u64 = 2;
pub(super) const MARK_NOT_HEAP: u64 = 3;
pub(super) const MARK_REMOVED: u64 = 4;
pub(super) const MARK_CLEARED: u64 = 5;
pub(super) const MARK_COMPLETE: u64 = 6;
/// In addition to one of the first four.
pub(super) const MARK_KEPT: u64 = 8;

// A call is one byte: the effect in the high two bits, the entry point in the low six.
pub(super) const SHAPE: u8 = 0xc0;
pub(super) const SHAPE_ALLOC: u8 = 0x00;
pub(super) const SHAPE_FREE: u8 = 0x40;
pub(super) const SHAPE_REALLOC: u8 = 0x80;
pub(super) const SHAPE_FAILED: u8 = 0xc0;

/// An allocation from a source that is new in the chunk: its stack, its call and the size are in
/// columns.
pub(super) const SOURCE_NEW: u8 = 0;
/// An allocation from a source whose number is in a column, with the same size as its last one.
pub(super) const SOURCE_SAME_SIZE: u8 = 1;
/// An allocation from a source whose number is in a column, as is the size.
pub(super) const SOURCE_OTHER_SIZE: u8 = 2;
/// A failed call: its stack, its call and the size are in columns.
pub(super) const FAILED: u8 = 3;
/// A release of a block that was not seen allocated.
pub(super) const UNKNOWN: u8 = 4;
/// A release of an inherited block.
pub(super) const INHERITED: u8 = 5;
/// A release of no block.
pub(super) const NONE: u8 = 6;
/// A release of a block whose age is in columns.
pub(super) const FAR: u8 = 7;
/// The next operation is a release by an entry point other than `free`, which is in a column.
pub(super) const CALL: u8 = 8;
/// From here on: a release of a block that is younger than a recent one, by a distance in a column.
pub(super) const AHEAD: u8 = 16;
/// From here on: the same, but older.
pub(super) const BEHIND: u8 = 24;
/// From here on: younger by one.
pub(super) const NEXT: u8 = 32;
/// From here on: older by one.
pub(super) const PREVIOUS: u8 = 40;
/// From here on: a release of a block by its age, from 1.
pub(super) const YOUNG: u8 = 48;
/// From here on: an allocation from a source with a low number, with the same size as its last one.
pub(super) const SAME_SIZE: u8 = 96;
/// From here on: the same with another size.
pub(super) const OTHER_SIZE: u8 = 176;

/// The largest age that has an operation of its own.
pub(super) const YOUNG_MAX: u64 = (SAME_SIZE - YOUNG) as u64;
/// Sources with numbers below this have operations of their own.
pub(super) const SOURCES_LOW: u32 = (OTHER_SIZE - SAME_SIZE) as u32;

/// The number of blocks released lately by a thread that can be referred to.
pub(super) const RECENT: usize = (BEHIND - AHEAD) as usize;

/// The blocks that the threads released lately, the last one first. Threads whose numbers are equal
/// in the low six bits share a list.
#[derive(Debug, Default)]
pub(super) struct Recent {
    serials: Vec<[u64; RECENT]>,
}

impl Recent {
    /// Fills all lists with the first serial of a chunk, at its beginning.
    pub(super) fn reset(&mut self, first: u64) {
        self.serials.clear();
        self.serials.resize(64, [first; RECENT]);
    }

    #[inline]
    pub(super) fn of(&mut self, thread: ThreadId) -> &mut [u64; RECENT] {
        &mut self.serials[thread.0 as usize % 64]
    }
}

/// Replaces the block at `index` by the one released after it.
#[inline]
pub(super) fn follow(recent: &mut [u64; RECENT], index: usize, serial: u64) {
    recent.copy_within(..index, 1);
    recent[0] = serial;
}
