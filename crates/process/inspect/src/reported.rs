//! Which blocks reporters have reported.

use heapledger_core::bridge::{Marking, mark};
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
        Mark { reporter, stack: Stack::new(mark.stack), is_kept: mark.is_kept }
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
    /// The ledger does not run, or samples and has not taken this block, or is the memory of a [pool](ledger), or the mark
    /// was made in a signal handler that interrupted it.
    Unknown,
}

/// A report of what is no block: a defect of its reporter, unless the block was allocated before the ledger was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Misreport {
    /// What was reported.
    pub address: u64,
    /// By whom, and where.
    pub mark: Mark,
    /// Where the block begins that the address was inside of; `None`: no live block was known there.
    pub inside: Option<u64>,
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
        self.mark_with(start, reporter, 0)
    }

    /// The same with a mark that [`Ledger::clear_marks`] leaves: for reporters that count blocks as they come.
    pub fn mark_and_keep<T: ?Sized>(self, start: *const T, reporter: &'static str) -> Marked {
        self.mark_with(start, reporter, mark::KEEP)
    }

    fn mark_with<T: ?Sized>(self, start: *const T, reporter: &'static str, flags: u32) -> Marked {
        let marking = Marking::new(reporter, flags, 0);
        // SAFETY: the name is static.
        match unsafe { (BRIDGE.mark)(start.cast::<u8>().addr() as u64, &raw const marking) } {
            mark::ONCE => Marked::Once,
            mark::AGAIN => Marked::Again,
            mark::NO_BLOCK => Marked::NoBlock,
            mark::INSIDE => Marked::Inside,
            _ => Marked::Unknown,
        }
    }

    /// How often what is no block was reported since marks were cleared.
    pub fn misreports_count(self) -> u64 {
        query(|| LEDGER.misreports()).unwrap_or(0)
    }

    /// The first 64 of them.
    pub fn misreports(self) -> impl Iterator<Item = Misreport> {
        let found = (0..).map_while(|number| query(|| LEDGER.misreport_by_number(number)).flatten());
        found.map(|ledger::Misreport { address, mark, inside }| Misreport {
            address,
            mark: Mark::of(mark),
            inside: inside.map(|key| key.address()),
        })
    }

    /// Takes the marks from all blocks, but for those that are to be kept, and forgets misreports: before reporters are asked
    /// anew.
    pub fn clear_marks(self) {
        query(|| LEDGER.clear_marks());
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
        let mut sums = [[0.0; 3]; 3];
        for block in self.blocks() {
            let [blocks, bytes, bytes_usable] = &mut sums[block.marks.iter().flatten().count()];
            *blocks += block.weight;
            *bytes += block.weight * block.size.0 as f64;
            *bytes_usable += block.weight * block.usable.0 as f64;
        }
        let [unreported, once, twice] = sums.map(|[blocks, bytes, bytes_usable]| Held {
            blocks: Blocks(blocks.round() as u64),
            bytes: Bytes(bytes.round() as u64),
            bytes_usable: Bytes(bytes_usable.round() as u64),
        });
        Reported { unreported, once, twice }
    }
}
