//! The marks of reporters on blocks.

use heapledger_core::bridge::{self, BridgeRef, Marking, mark};
use heapledger_core::{Blocks, Bytes};
use heapledger_inprocess::{BRIDGE, LEDGER, control, query, stamp_of};
use heapledger_ledger as ledger;

use crate::stamp::valid;
use crate::{Ledger, Stack};

/// A report about a live block: see [`Ledger::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Mark {
    /// The reporter's name. Names beyond some 4,000 different ones, stamps included, are `(other)`.
    pub reporter: &'static str,
    /// The stack at which it reported.
    pub stack: Stack,
    /// True if the mark stays when marks are [cleared](Ledger::clear_marks): it was made when the
    /// block was allocated.
    pub is_kept: bool,
}

impl Mark {
    pub(crate) fn of(mark: ledger::Mark) -> Mark {
        let reporter = stamp_of(mark.reporter).map_or("", |stamp| valid(stamp.type_name()));
        Mark { reporter, stack: Stack::of(mark.stack), is_kept: mark.is_kept }
    }
}

/// The result of marking a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Marked {
    /// The mark is the first one of its block.
    Once,
    /// The block had been reported before: its memory is reported twice. The first two marks of a
    /// block are kept.
    Again,
    /// No live block is known there: it was allocated before the ledger was started, or is not of
    /// the heap.
    NoBlock,
    /// The address is inside a block, not its beginning: what was reported is not the block.
    Inside,
    /// The mark was sent to `heapledger record`: its result is in the recording.
    Recorded,
    /// The result is not known: the ledger does not run, or samples and has not taken this block;
    /// or the block is the memory of a [pool](ledger); or the mark was made in a signal handler
    /// that interrupted the ledger.
    Unknown,
}

/// The live bytes and blocks, by how often reporters have reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reported {
    /// Reported by no reporter: dark matter.
    pub unreported: Held,
    /// Reported once, as it should be.
    pub once: Held,
    /// Reported twice or more often.
    pub twice: Held,
}

/// Live blocks in one of these states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// The number of blocks.
    pub blocks: Blocks,
    /// Their requested bytes.
    pub bytes: Bytes,
    /// Their usable bytes, which are the bytes that measurements add up.
    pub bytes_usable: Bytes,
}

impl Held {
    fn of(held: ledger::Held) -> Held {
        let ledger::Held { blocks, bytes, bytes_usable } = held;
        Held { blocks, bytes, bytes_usable }
    }
}

impl Ledger {
    /// Marks the live block that begins at an address as reported by a reporter, with the stack of
    /// this call. A marking `Meter` does this for every block that it measures.
    ///
    /// The marks of a block are gone when it is freed or reallocated. They take 45 to 60 bytes of
    /// the ledger's memory for each marked block, and none before the first.
    pub fn mark<T: ?Sized>(self, start: *const T, reporter: &'static str) -> Marked {
        self.mark_with(start, Marking::new(reporter, 0, 0))
    }

    /// Marks a block with a mark that [`Ledger::clear_marks`] leaves: for reporters that count
    /// blocks as they come and go. The mark is to be [taken off](Ledger::unmark) before the block
    /// is freed.
    pub fn mark_and_keep<T: ?Sized>(self, start: *const T, reporter: &'static str) -> Marked {
        self.mark_with(start, Marking::new(reporter, mark::KEEP, 0))
    }

    /// Marks a block for a reporter that counts `measured` bytes of it. If that is less than its
    /// usable size, this is a [defect](Ledger::defects), since nobody reports the rest.
    pub fn mark_measured<T: ?Sized>(self, start: *const T, reporter: &'static str, measured: Bytes) -> Marked {
        self.mark_with(start, Marking::new(reporter, 0, measured.0))
    }

    fn mark_with<T: ?Sized>(self, start: *const T, marking: Marking) -> Marked {
        // If there is a recorder, the mark goes to it: the ledger keeps no marks then.
        let mark_it = bridge::find().and_then(BridgeRef::mark).unwrap_or(BRIDGE.mark);
        // SAFETY: `mark` of a `Bridge` requires a marking that may be read during the call, whose
        // reporter's name is static. The marking is a parameter of this call, and `Marking::new`
        // has made it of a `&'static str`.
        match unsafe { mark_it(start.cast::<u8>().addr() as u64, &raw const marking) } {
            mark::ONCE => Marked::Once,
            mark::AGAIN => Marked::Again,
            mark::NO_BLOCK => Marked::NoBlock,
            mark::INSIDE => Marked::Inside,
            mark::RECORDED => Marked::Recorded,
            _ => Marked::Unknown,
        }
    }

    /// Takes a reporter's kept mark off the block that begins at an address, which is about to be
    /// freed. True if there was one.
    pub fn unmark<T: ?Sized>(self, start: *const T, reporter: &'static str) -> bool {
        let length = u32::try_from(reporter.len()).unwrap_or(u32::MAX);
        let unmark = bridge::find().and_then(BridgeRef::unmark).unwrap_or(BRIDGE.unmark);
        // SAFETY: `unmark` of a `Bridge` requires a static name with its length. The name is a
        // `&'static str`, and `length` is no more than its length.
        unsafe { unmark(start.cast::<u8>().addr() as u64, reporter.as_ptr(), length) == 1 }
    }

    /// Takes the marks from all blocks, except kept ones, and forgets the
    /// [defects](Ledger::defects) of the removed marks.
    pub fn clear_marks(self) {
        query(|| LEDGER.clear_marks());
    }

    /// Clears the marks before all reporters are asked. Until [`Ledger::marks_complete`], freeing a
    /// block that has been reported is a defect.
    pub fn begin_marks(self) {
        bridge::find().and_then(BridgeRef::clear_marks).unwrap_or(BRIDGE.clear_marks)();
    }

    /// Declares that all reporters have been asked.
    pub fn marks_complete(self) {
        bridge::find().and_then(BridgeRef::marks_complete).unwrap_or(BRIDGE.marks_complete)();
    }

    /// Returns the live bytes and blocks by how often they have been reported; in a ledger that has
    /// sampled, an estimate for all live blocks. Looks at every live block, each at a moment of its
    /// own.
    pub fn reported(self) -> Reported {
        if control::is_sample() {
            return self.reported_by_weight();
        }
        let Some(ledger::Reported { unreported, once, twice }) = query(|| LEDGER.reported()) else {
            return Reported::default();
        };
        Reported { unreported: Held::of(unreported), once: Held::of(once), twice: Held::of(twice) }
    }

    /// Sums up blocks by their weights.
    fn reported_by_weight(self) -> Reported {
        let mut sums = [Held::default(); 3];
        for block in self.blocks() {
            let Held { blocks, bytes, bytes_usable } = &mut sums[block.marks.iter().flatten().count()];
            blocks.0 += block.weight.0;
            bytes.0 += block.weight.0 * block.size.0;
            bytes_usable.0 += block.weight.0 * block.usable.0;
        }
        let [unreported, once, twice] = sums;
        Reported { unreported, once, twice }
    }
}
