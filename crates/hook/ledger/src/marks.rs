//! Marks: the blocks that reporters have reported, in a table beside the register of live blocks,
//! under the same locks.
//!
//! The table has an entry for each block that is marked, and no memory until the first is. A block
//! that is freed takes its marks with it.

use heapledger_core::{Blocks, Bytes, StackId, TypeId};

use crate::budget::Budget;
use crate::details::LiveBlock;
use crate::mapped::{OutOfMemory, Zeroed};
use crate::register::{Block, Key, Register};

#[cfg(all(test, not(loom)))]
mod tests;

/// A report of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The reporter, by a number of the user's that is not 0.
    pub reporter: TypeId,
    /// The stack of the report.
    pub stack: StackId,
    /// True if the mark stays when marks are [cleared](crate::SharedLedger::clear_marks).
    pub is_kept: bool,
}

/// The first two reports of a block; others are not kept.
pub type Marks = [Option<Mark>; 2];

/// The result of marking a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    /// The mark is the first of its block.
    Once,
    /// The block has been reported before.
    Again,
    /// There is no such block, or it is backing memory of a pool.
    NoBlock,
}

/// The live blocks, by how often they have been reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Blocks that were never reported.
    pub unreported: Held,
    /// Blocks that were reported once.
    pub once: Held,
    /// Blocks that were reported twice, or more often.
    pub twice: Held,
}

/// The amount of live blocks of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Their number.
    pub blocks: Blocks,
    /// Their requested bytes.
    pub bytes: Bytes,
    /// Their usable bytes.
    pub bytes_usable: Bytes,
}

impl Reported {
    pub(crate) fn add(&mut self, block: &LiveBlock, marks: Marks) {
        let held = match marks {
            [None, _] => &mut self.unreported,
            [_, None] => &mut self.once,
            _ => &mut self.twice,
        };
        held.blocks.0 += 1;
        held.bytes += block.size;
        held.bytes_usable += block.usable;
    }
}

/// The marks of the blocks of a shard.
pub(crate) struct Table {
    register: Register<Entry>,
}

impl Table {
    pub(crate) const fn new() -> Table {
        Table { register: Register::new() }
    }

    /// Marks one of `blocks` live blocks.
    pub(crate) fn mark(&mut self, budget: &Budget, blocks: usize, key: Key, mark: Mark) -> Result<Marked, OutOfMemory> {
        let known = self.register.at(key);
        if known.is_none() && self.register.is_full() {
            // Most programs that mark a few blocks go on to mark nearly all.
            let many = blocks.min(self.register.len() * 4);
            budget.grow_to(&mut self.register, many).or_else(|_| budget.grow(&mut self.register))?;
        }
        let mut entry = known.map_or(Entry::default(), |(_, entry)| entry);
        let answer = if known.is_some() { Marked::Again } else { Marked::Once };
        if let Some(slot) = entry.0.iter_mut().find(|slot| slot.reporter == 0) {
            *slot = Kept::new(mark);
            self.register.replace(key, Block::IGNORED, entry);
        }
        Ok(answer)
    }

    #[inline(always)]
    pub(crate) fn get(&self, key: Key) -> Marks {
        if self.register.is_empty() {
            return [None; 2];
        }
        self.register.at(key).map_or([None; 2], |(_, entry)| entry.0.map(Kept::mark))
    }

    /// Takes a reporter's mark that is to be kept off a block. True if there was one.
    pub(crate) fn unmark(&mut self, key: Key, reporter: TypeId) -> bool {
        let Some((_, Entry(marks))) = self.register.at(key) else { return false };
        let is_it = |mark: &Kept| mark.mark().is_some_and(|mark| mark.is_kept && mark.reporter == reporter);
        let left = match marks.iter().position(is_it) {
            Some(0) => [marks[1], Kept::default()],
            Some(_) => [marks[0], Kept::default()],
            None => return false,
        };
        match left[0].mark() {
            Some(_) => self.register.replace(key, Block::IGNORED, Entry(left)),
            None => self.register.take(key),
        };
        true
    }

    /// True if no block is marked.
    pub(crate) fn is_empty(&self) -> bool {
        self.register.is_empty()
    }

    /// Takes all marks of a block that is not live any more.
    #[inline(always)]
    pub(crate) fn take(&mut self, key: Key) -> Marks {
        if self.register.is_empty() { [None; 2] } else { self.take_one(key) }
    }

    #[inline(never)]
    fn take_one(&mut self, key: Key) -> Marks {
        self.register.take(key).map_or([None; 2], |(_, entry)| entry.0.map(Kept::mark))
    }

    /// Restores the marks of a block that is back. They are lost if there is no room.
    pub(crate) fn restore(&mut self, budget: &Budget, blocks: usize, key: Key, marks: Marks) {
        for mark in marks.into_iter().flatten() {
            let _ = self.mark(budget, blocks, key, mark);
        }
    }

    pub(crate) fn chunks(&self) -> usize {
        self.register.chunks()
    }

    /// See [`Register::ready`].
    pub(crate) fn ready(chunks: usize) -> Result<Table, OutOfMemory> {
        Ok(Table { register: Register::ready(chunks)? })
    }

    /// See [`Register::copy_from`].
    pub(crate) fn copy_from(&mut self, other: &Table) -> Result<(), OutOfMemory> {
        self.register.copy_from(&other.register)
    }

    pub(crate) fn bytes_mapped(&self) -> usize {
        self.register.bytes_mapped()
    }

    /// Drops all marks that are not to be kept. The others move up; they are lost if there is no
    /// room.
    pub(crate) fn clear(&mut self, budget: &Budget) {
        let old = core::mem::take(&mut self.register);
        for (key, _, entry) in old.entries() {
            let kept = entry.0.map(|mark| mark.mark().filter(|mark| mark.is_kept));
            self.restore(budget, 0, key, kept);
        }
        budget.release(old.bytes_mapped());
    }
}

/// Two marks; a missing one is zero.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Entry([Kept; 2]);

/// A mark: the reporter, whose top bit says that the mark is kept, and the stack.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Kept {
    reporter: u32,
    stack: u32,
}

// SAFETY: `Zeroed` requires that every field is valid when all its bytes are zero. There are two
// marks, of two `u32` each. 0 is a valid integer.
unsafe impl Zeroed for Entry {}

const IS_KEPT: u32 = 1 << 31;

impl Kept {
    fn new(mark: Mark) -> Kept {
        let kept = if mark.is_kept { IS_KEPT } else { 0 };
        Kept { reporter: mark.reporter.0 & !IS_KEPT | kept, stack: mark.stack.0 }
    }

    fn mark(self) -> Option<Mark> {
        let reporter = TypeId(self.reporter & !IS_KEPT);
        let is_kept = self.reporter & IS_KEPT != 0;
        (self.reporter != 0).then_some(Mark { reporter, stack: StackId(self.stack), is_kept })
    }
}
