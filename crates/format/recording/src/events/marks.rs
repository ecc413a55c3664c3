//! The marks that memory reporters put on blocks. They are not calls, but stand at places between
//! them.

use std::collections::HashMap;

use heapledger_core::{Bytes, Serial, StackId};

use super::ops::{self, COLUMN_MARKS};
use super::{Event, EventKind};
use crate::columns;
use crate::error::{Reason, RecordingError};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead};
use crate::ids::Time;
use crate::varint::{self, Varints};

/// A change in which blocks are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A reporter has reported a block, or an address that it took for one.
    Reported {
        /// The thing that it reported.
        what: Reported,
        /// The stack that reported it and the reporter: a [stamp](crate::NodeKind::Stamp) under the
        /// stack, whose text is the reporter's name.
        by: StackId,
        /// True if the mark stays when marks are cleared.
        is_kept: bool,
        /// The number of bytes that count as reported. 0: the usable size of the block.
        measured: Bytes,
    },
    /// A reporter does not report the block any more.
    Removed {
        /// The block.
        block: Serial,
        /// The reporter: as in [`Mark::Reported`], but under no stack.
        by: StackId,
    },
    /// All marks are gone but the permanent ones: reporters are about to be asked.
    Cleared,
    /// All reporters have been asked.
    Complete {
        /// The time.
        time: Time,
    },
}

/// The thing that a reporter has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// A live block.
    Block(Serial),
    /// An address inside a live block, not at its start.
    Inside {
        /// The block.
        block: Serial,
        /// The reported address.
        address: u64,
    },
    /// An address without a live block.
    Nothing {
        /// The reported address.
        address: u64,
    },
    /// Memory of the program that is not in its heap: on a stack, static, or mapped.
    NotHeap {
        /// The reported address.
        address: u64,
    },
}

/// The marks of a chunk while they are encoded into a column.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) bytes: Vec<u8>,
    index: usize,
    serial: u64,
    stack: u32,
}

impl Marks {
    /// Begins a chunk, whose first serial is `serial`.
    pub(super) fn begin(&mut self, serial: Serial) {
        (self.index, self.serial, self.stack) = (0, serial.0, 0);
    }

    /// Adds a mark before the event with this number.
    pub(super) fn push(&mut self, index: usize, head: &ChunkHead, mark: &Mark) {
        let step = (index - std::mem::replace(&mut self.index, index)) as u64;
        self.put(&[step]);
        match *mark {
            Mark::Reported { what, by, is_kept, measured } => {
                let kept = if is_kept { ops::MARK_KEPT } else { 0 };
                match what {
                    Reported::Block(block) => {
                        let block = self.serial(block);
                        self.put(&[ops::MARK_BLOCK | kept, block]);
                    }
                    Reported::Inside { block, address } => {
                        let block = self.serial(block);
                        self.put(&[ops::MARK_INSIDE | kept, block, address]);
                    }
                    Reported::Nothing { address } => self.put(&[ops::MARK_NOTHING | kept, address]),
                    Reported::NotHeap { address } => self.put(&[ops::MARK_NOT_HEAP | kept, address]),
                }
                let by = self.stack(by);
                self.put(&[by, measured.0]);
            }
            Mark::Removed { block, by } => {
                let (block, by) = (self.serial(block), self.stack(by));
                self.put(&[ops::MARK_REMOVED, block, by]);
            }
            Mark::Cleared => self.put(&[ops::MARK_CLEARED]),
            Mark::Complete { time } => {
                self.put(&[ops::MARK_COMPLETE, time.0.saturating_sub(head.time_first.0)]);
            }
        }
    }

    fn put(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|&number| varint::put(&mut self.bytes, number));
    }

    fn serial(&mut self, serial: Serial) -> u64 {
        varint::zigzag(std::mem::replace(&mut self.serial, serial.0), serial.0)
    }

    fn stack(&mut self, stack: StackId) -> u64 {
        varint::zigzag(std::mem::replace(&mut self.stack, stack.0).into(), stack.0.into())
    }
}

/// Fails if a mark refers to a block or stack that cannot exist.
pub(super) fn check(mark: &Mark, next_serial: Serial) -> Result<(), RecordingError> {
    let (block, stack) = match *mark {
        Mark::Reported { what: Reported::Block(block) | Reported::Inside { block, .. }, by, .. } => (Some(block), by),
        Mark::Reported { by, .. } => (None, by),
        Mark::Removed { block, by } => (Some(block), by),
        Mark::Cleared | Mark::Complete { .. } => (None, StackId::ROOT),
    };
    if block.is_none_or(|block| block < next_serial) && stack <= StackId::MAX {
        Ok(())
    } else {
        Err(RecordingError::Unwritable("a mark on what there cannot be"))
    }
}

/// Decodes the marks of a chunk, each with the number of the event that it stands before.
pub(super) fn decode(
    mut column: Varints<'_>,
    head: &ChunkHead,
    events: &[Event],
    marks: &mut Vec<(u32, Mark)>,
) -> Result<(), Reason> {
    if head.marks as usize > CHUNK_ROWS_MAX {
        return Err(Reason::Invalid("the number of marks"));
    }
    let (mut index, mut serial, mut stack) = (0_u64, head.serial_first.0, 0_u64);
    // The serial of the next allocation, and the number of events up to which allocations were
    // counted for it.
    let (mut serials_end, mut counted) = (head.serial_first.0, 0);
    for _ in 0..head.marks {
        let mut number = || column.next().ok_or(columns::TOO_SHORT);
        index = index.saturating_add(number()?);
        let passed = events.get(counted..index as usize).ok_or(Reason::Invalid("a mark behind the last event"))?;
        let is_new = |event: &&Event| matches!(event.kind, EventKind::Alloc { .. } | EventKind::Realloc { .. });
        serials_end += passed.iter().filter(is_new).count() as u64;
        counted = index as usize;
        let code = number()?;
        let mut block = |difference| {
            serial = varint::unzigzag(serial, difference);
            if serial < serials_end { Ok(Serial(serial)) } else { Err(Reason::Invalid("a mark on no block")) }
        };
        let what = match code & !ops::MARK_KEPT {
            ops::MARK_BLOCK => Some(Reported::Block(block(number()?)?)),
            ops::MARK_INSIDE => Some(Reported::Inside { block: block(number()?)?, address: number()? }),
            ops::MARK_NOTHING => Some(Reported::Nothing { address: number()? }),
            ops::MARK_NOT_HEAP => Some(Reported::NotHeap { address: number()? }),
            _ => None,
        };
        let mut by = |difference| {
            stack = varint::unzigzag(stack, difference);
            u32::try_from(stack).map(StackId).ok().filter(|&id| id <= StackId::MAX).ok_or(Reason::Invalid("a stack id"))
        };
        let mark = match (what, code) {
            (Some(what), _) => {
                let (by, measured) = (by(number()?)?, Bytes(number()?));
                Mark::Reported { what, by, is_kept: code & ops::MARK_KEPT != 0, measured }
            }
            (None, ops::MARK_REMOVED) => Mark::Removed { block: block(number()?)?, by: by(number()?)? },
            (None, ops::MARK_CLEARED) => Mark::Cleared,
            (None, ops::MARK_COMPLETE) => Mark::Complete { time: Time(head.time_first.0.saturating_add(number()?)) },
            _ => return Err(Reason::Invalid("a mark")),
        };
        marks.push((index as u32, mark));
    }
    if column.is_empty() { Ok(()) } else { Err(columns::TOO_LONG) }
}

/// Returns the column of marks, if the chunk has one.
pub(super) fn find<'c>(contents: &'c [u8], head: &ChunkHead) -> Result<Option<columns::Column<'c>>, Reason> {
    match columns::find_optional(contents, COLUMN_MARKS)? {
        None if head.marks > 0 => Err(Reason::Invalid("a column is missing")),
        found => Ok(found),
    }
}

/// One of the two marks of a block that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMark {
    /// The stack and the reporter: see [`Mark::Reported`].
    pub by: StackId,
    /// True if the mark stays when marks are cleared.
    pub is_kept: bool,
    /// The number of bytes that count as reported. 0: all.
    pub measured: Bytes,
}

/// The marks on the blocks of an image, by the rules of the dark matter detector: the first two
/// marks of each block count.
#[derive(Clone, Debug, Default)]
pub struct MarkedBlocks {
    blocks: HashMap<Serial, [Option<BlockMark>; 2]>,
    /// True while reporters are being asked.
    is_collecting: bool,
}

impl MarkedBlocks {
    /// True if no block is marked.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// True if marks have been cleared and are not complete again: reporters are being asked.
    pub fn is_collecting(&self) -> bool {
        self.is_collecting
    }

    /// Applies a mark. `is_same` tells whether two stacks with reporters belong to the same
    /// reporter.
    pub fn apply(&mut self, mark: &Mark, mut is_same: impl FnMut(StackId, StackId) -> bool) {
        match *mark {
            Mark::Reported { what: Reported::Block(block), by, is_kept, measured } => {
                let marks = self.blocks.entry(block).or_default();
                if let Some(free) = marks.iter_mut().find(|mark| mark.is_none()) {
                    *free = Some(BlockMark { by, is_kept, measured });
                }
            }
            Mark::Reported { .. } => {}
            Mark::Removed { block, by } => {
                let Some(marks) = self.blocks.get_mut(&block) else { return };
                let is_its = |mark: &Option<BlockMark>| mark.is_some_and(|mark| mark.is_kept && is_same(mark.by, by));
                if let Some(at) = marks.iter().position(is_its) {
                    marks[at] = None;
                    marks.sort_by_key(Option::is_none);
                }
                if marks[0].is_none() {
                    self.blocks.remove(&block);
                }
            }
            Mark::Cleared => {
                self.is_collecting = true;
                self.blocks.retain(|_, marks| {
                    for mark in marks.iter_mut() {
                        *mark = mark.filter(|mark| mark.is_kept);
                    }
                    marks.sort_by_key(Option::is_none);
                    marks[0].is_some()
                });
            }
            Mark::Complete { .. } => self.is_collecting = false,
        }
    }

    /// Removes a block that is freed, and returns its marks.
    pub fn free(&mut self, block: Serial) -> Option<[Option<BlockMark>; 2]> {
        if self.blocks.is_empty() { None } else { self.blocks.remove(&block) }
    }

    /// Returns the marks of a block.
    pub fn of(&self, block: Serial) -> [Option<BlockMark>; 2] {
        self.blocks.get(&block).copied().unwrap_or_default()
    }

    /// Returns all marked blocks, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = (Serial, [Option<BlockMark>; 2])> + '_ {
        self.blocks.iter().map(|(&block, &marks)| (block, marks))
    }

    /// Returns the marks that, applied in this order, reproduce this state.
    pub fn as_marks(&self) -> Vec<Mark> {
        let mut blocks: Vec<_> = self.all().collect();
        blocks.sort_unstable_by_key(|(block, _)| *block);
        let marks = blocks.into_iter().flat_map(|(block, marks)| {
            marks.into_iter().flatten().map(move |BlockMark { by, is_kept, measured }| Mark::Reported {
                what: Reported::Block(block),
                by,
                is_kept,
                measured,
            })
        });
        self.is_collecting.then_some(Mark::Cleared).into_iter().chain(marks).collect()
    }
}
