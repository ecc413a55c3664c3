//! Which blocks reporters have reported.

use heapledger_core::bridge::{self, Found, Marking, mark};
use heapledger_core::{Blocks, Bytes};
use heapledger_ledger as ledger;
use heapledger_resident::{BRIDGE, LEDGER, control, query, stamp_of};

use crate::stamp::valid;
use crate::{Ledger, Stack};

/// A report of a live block: see [`Ledger::mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Mark {
    /// The reporter's name. Of names beyond some 4,000 different ones, stamps included, it is `(other)`.
    pub reporter: &'static str,
    /// Where it reported.
    pub stack: Stack,
    /// It stays when marks are [cleared](Ledger::clear_marks): it was made when the block was allocated.
    pub is_kept: bool,
}

impl Mark {
    pub(crate) fn of(mark: ledger::Mark) -> Mark {
        let reporter = stamp_of(mark.reporter).map_or("", |stamp| valid(stamp.type_name()));
        Mark { reporter, stack: Stack::of(mark.stack), is_kept: mark.is_kept }
    }
}

/// What became of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Marked {
    /// It is the first of its block.
    Once,
    /// The block had been reported before: its memory is reported twice. Of a block the first two marks are kept.
    Again,
    /// No live block is known there: it was allocated before the ledger was started, or is not of the heap.
    NoBlock,
    /// The address is inside a block, not its beginning: what was reported is not the block.
    Inside,
    /// `heapledger record` has been told: what comes of it is in the recording.
    Recorded,
    /// The ledger does not run, or samples and has not taken this block, or is the memory of a [pool](ledger), or the mark
    /// was made in a signal handler that interrupted it.
    Unknown,
}

/// What is live, by how often reporters have reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reported {
    /// By nobody: dark matter.
    pub unreported: Held,
    /// Once, as it should be.
    pub once: Held,
    /// Twice or more often.
    pub twice: Held,
}

/// Live blocks of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// How many.
    pub blocks: Blocks,
    /// Their requested bytes.
    pub bytes: Bytes,
    /// Their usable bytes: what measurements add up.
    pub bytes_usable: Bytes,
}

impl Held {
    fn of(held: ledger::Held) -> Held {
        let ledger::Held { blocks, bytes, bytes_usable } = held;
        Held { blocks, bytes, bytes_usable }
    }
}

impl Ledger {
    /// Marks the live block that begins at an address as reported by a reporter, with the stack of this call: as a marking
    /// `Meter` does with all that it measures.
    ///
    /// The marks of a block are gone when it is freed or reallocated. They take 45 to 60 bytes of the ledger's memory
    /// for each marked block, and none before the first.
    pub fn mark<T: ?Sized>(self, start: *const T, reporter: &'static str) -> Marked {
        self.mark_with(start, Marking::new(reporter, 0, 0))
    }

    /// The same with a mark that [`Ledger::clear_marks`] leaves: for reporters that count blocks as they come and go. It is to
    /// be [taken off](Ledger::unmark) before the block is freed.
    pub fn mark_and_keep<T: ?Sized>(self, start: *const T, reporter: &'static str) -> Marked {
        self.mark_with(start, Marking::new(reporter, mark::KEEP, 0))
    }

    /// The same by a reporter that counts only so many bytes of the block, or says that it counts all that may be used: less
    /// is a [defect](Ledger::defects), since nobody reports the rest.
    pub fn mark_measured<T: ?Sized>(self, start: *const T, reporter: &'static str, measured: Bytes) -> Marked {
        self.mark_with(start, Marking::new(reporter, 0, measured.0))
    }

    fn mark_with<T: ?Sized>(self, start: *const T, marking: Marking) -> Marked {
        // A recorder is told, if there is one: as of all else, nobody but it keeps account then.
        let mark_it = bridge::find().and_then(Found::mark).unwrap_or(BRIDGE.mark);
        // SAFETY: the name is static.
        match unsafe { mark_it(start.cast::<u8>().addr() as u64, &raw const marking) } {
            mark::ONCE => Marked::Once,
            mark::AGAIN => Marked::Again,
            mark::NO_BLOCK => Marked::NoBlock,
            mark::INSIDE => Marked::Inside,
            mark::RECORDED => Marked::Recorded,
            _ => Marked::Unknown,
        }
    }

    /// Takes a reporter's mark off the block that begins at an address: one that was to be kept, of a block that is about to
    /// be freed. Whether there was one.
    pub fn unmark<T: ?Sized>(self, start: *const T, reporter: &'static str) -> bool {
        let length = u32::try_from(reporter.len()).unwrap_or(u32::MAX);
        let unmark = bridge::find().and_then(Found::unmark).unwrap_or(BRIDGE.unmark);
        // SAFETY: the name is static.
        unsafe { unmark(start.cast::<u8>().addr() as u64, reporter.as_ptr(), length) == 1 }
    }

    /// Takes the marks from all blocks, but for those that are to be kept, and forgets the [defects](Ledger::defects) of such
    /// marks.
    pub fn clear_marks(self) {
        query(|| LEDGER.clear_marks());
    }

    /// The same before all reporters are asked: until [`Ledger::marks_complete`], to free a block that has been reported is a
    /// defect.
    pub fn begin_marks(self) {
        bridge::find().and_then(Found::clear_marks).unwrap_or(BRIDGE.clear_marks)();
    }

    /// All reporters have been asked.
    pub fn marks_complete(self) {
        bridge::find().and_then(Found::marks_complete).unwrap_or(BRIDGE.marks_complete)();
    }

    /// What is live, by how often it has been reported; in a ledger that has sampled, an estimate of all that is. Looks at
    /// all live blocks, each at a moment of its own.
    pub fn reported(self) -> Reported {
        if control::is_sample() {
            return self.reported_by_weight();
        }
        let Some(ledger::Reported { unreported, once, twice }) = query(|| LEDGER.reported()) else {
            return Reported::default();
        };
        Reported { unreported: Held::of(unreported), once: Held::of(once), twice: Held::of(twice) }
    }

    /// Each block for all that it stands for.
    fn reported_by_weight(self) -> Reported {
        let mut sums = [Held::default(); 3];
        for block in self.blocks() {
            let Held { blocks, bytes, bytes_usable } = &mut sums[block.marks.iter().flatten().count()];
            blocks.0 += block.stands_for.0;
            bytes.0 += block.stands_for.0 * block.size.0;
            bytes_usable.0 += block.stands_for.0 * block.usable.0;
        }
        let [unreported, once, twice] = sums;
        Reported { unreported, once, twice }
    }
}
