//! What reporters have done wrong.

use crate::details::LiveBlock;
use crate::marks::Mark;

#[cfg(all(test, not(loom)))]
mod tests;

/// What is wrong with a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefectKind {
    /// There is no live block that is known.
    NoBlock,
    /// The address is inside a block, and not where it begins.
    Interior,
    /// The reporter counts less than may be used of the block.
    Partly,
    /// The block was freed while its report counted: with a mark that is to be kept and was not taken back, or between
    /// [`begin_marks`](crate::SharedLedger::begin_marks) and [`marks_complete`](crate::SharedLedger::marks_complete).
    FreedWhileReported,
}

/// Something that a reporter has done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defect {
    /// What.
    pub kind: DefectKind,
    /// Who, and where.
    pub mark: Mark,
    /// What was reported, the first time.
    pub address: u64,
    /// The block that this is about.
    pub block: Option<LiveBlock>,
    /// As how many bytes it was counted; 0: that was not said.
    pub measured: u64,
    /// How often the same was done: of this kind, by this reporter, at this place.
    pub count: u64,
}

/// The first different defects, and how many there were.
///
/// Those of marks that are kept, and the others: the former outlast the clearing of marks, as their marks do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defects {
    first: [Option<Defect>; Defects::KEPT],
    /// How often there was one for which there was no place, of marks that are not kept and of those that are.
    beyond: [u64; 2],
}

impl Defects {
    /// Fewer where loom tries orders: stacks are small there.
    const KEPT: usize = if cfg!(all(test, loom)) { 2 } else { 64 };

    pub(crate) const fn new() -> Defects {
        Defects { first: [None; Defects::KEPT], beyond: [0; 2] }
    }

    pub(crate) fn add(&mut self, new: Defect) {
        let is_same = |old: &Defect| old.kind == new.kind && old.mark == new.mark;
        let place = self.first.iter_mut().find(|place| place.as_ref().is_none_or(is_same));
        match place {
            Some(Some(old)) => old.count += new.count,
            Some(free) => *free = Some(new),
            None => self.beyond[usize::from(new.mark.is_kept)] += new.count,
        }
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        let first = self.first.iter().flatten().map(|defect| defect.count);
        self.beyond.iter().copied().chain(first).sum()
    }

    /// By number from 0, in the order of the first times.
    pub(crate) fn get(&self, number: usize) -> Option<Defect> {
        self.first.get(number).copied().flatten()
    }

    /// Forgets those of marks that are not kept.
    pub(crate) fn clear(&mut self) {
        let old = core::mem::replace(self, Defects { beyond: [0, self.beyond[1]], ..Defects::new() });
        old.first.into_iter().flatten().filter(|defect| defect.mark.is_kept).for_each(|defect| self.add(defect));
    }
}
