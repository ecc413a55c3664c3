//! Defects: the errors that reporters have made.

use crate::details::LiveBlock;
use crate::marks::Mark;

#[cfg(all(test, not(loom)))]
mod tests;

/// The kind of a defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefectKind {
    /// There is no known live block at the address.
    NoBlock,
    /// The address is inside a block, and not where it begins.
    Interior,
    /// The reporter counts less than the usable size of the block.
    Partly,
    /// The block was freed while its report counted: with a mark that is to be kept and was not
    /// taken back, or between [`begin_marks`](crate::SharedLedger::begin_marks) and
    /// [`marks_complete`](crate::SharedLedger::marks_complete).
    FreedWhileReported,
}

/// An error that a reporter has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The kind of the defect.
    pub kind: DefectKind,
    /// The reporter, and the stack of the report.
    pub mark: Mark,
    /// The address that was reported, the first time.
    pub address: u64,
    /// The block concerned.
    pub block: Option<LiveBlock>,
    /// The number of bytes that the reporter counted; 0 if it gave none.
    pub measured: u64,
    /// The number of times that the same happened: of this kind, by this reporter, at this place.
    pub count: u64,
}

/// The first different defects, and their number.
///
/// Defects of marks that are kept outlast the clearing of marks, as their marks do; the others do
/// not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defects {
    first: [Option<Defect>; Defects::KEPT],
    /// The number of defects for which there was no place, of marks that are not kept and of those
    /// that are.
    beyond: [u64; 2],
}

impl Defects {
    /// Fewer under loom, whose stacks are small.
    const KEPT: usize = if cfg!(all(test, loom)) { 2 } else { 64 };

    pub(crate) const fn new() -> Defects {
        Defects { first: [None; Defects::KEPT], beyond: [0; 2] }
    }

    pub(crate) fn add(&mut self, new: Defect) {
        let is_same = |old: &Defect| old.kind == new.kind && old.mark == new.mark;
        let slot = self.first.iter_mut().find(|slot| slot.as_ref().is_none_or(is_same));
        match slot {
            Some(Some(old)) => old.count += new.count,
            Some(free) => *free = Some(new),
            None => self.beyond[usize::from(new.mark.is_kept)] += new.count,
        }
    }

    /// Returns the number of defects.
    pub(crate) fn count(&self) -> u64 {
        let first = self.first.iter().flatten().map(|defect| defect.count);
        self.beyond.iter().copied().chain(first).sum()
    }

    /// Returns a defect by its number from 0, in the order of first occurrence.
    pub(crate) fn get(&self, number: usize) -> Option<Defect> {
        self.first.get(number).copied().flatten()
    }

    /// Forgets the defects of marks that are not kept.
    pub(crate) fn clear(&mut self) {
        let old = core::mem::replace(self, Defects { beyond: [0, self.beyond[1]], ..Defects::new() });
        old.first.into_iter().flatten().filter(|defect| defect.mark.is_kept).for_each(|defect| self.add(defect));
    }
}
