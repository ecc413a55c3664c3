//! Advice on memory use: one rule in each file, with its thresholds and its evidence.
//!
//! A rule gives no advice if its evidence is insufficient: wrong advice costs more than missing
//! advice. There is no rule for what a recording does not contain, such as how much of a block is
//! ever written to (and so capacity that is never used).

use heapledger_core::Bytes;
use heapledger_recording::Damage;

use crate::block_filter::each_once;
use crate::error::Error;
use crate::names::Names;
use crate::owners::Owner;
use crate::progress::Progress;
use crate::selection::Selection;

mod allocator;
mod growth;
mod pool;
mod reporters;
mod reserve;
mod size_class;
mod slop;
mod temporary;

pub use allocator::{OtherAllocator, ReplayedAllocator};
pub use growth::Grows;
pub use pool::Pool;
pub use reporters::Reporters;
pub use reserve::Reserve;
pub use size_class::SizeClass;
pub use slop::Slop;
pub use temporary::Temporary;

/// A change that could be made, and the reason for it.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The rule, with its evidence.
    pub finding: Finding,
    /// Bytes at stake: each rule says what it counts.
    pub bytes: Bytes,
    /// The owner whose code should change, if the rule knows it.
    pub owner: Option<Owner>,
}

/// The finding of a rule.
#[derive(Clone, Debug)]
pub enum Finding {
    /// Blocks that grow by reallocation, and could be reserved.
    Reserve(Reserve),
    /// Blocks that are freed at once, over and over.
    Temporary(Temporary),
    /// An owner whose memory grows at a constant rate.
    Grows(Grows),
    /// Blocks of a size for which the allocator takes much more memory than the program uses.
    Slop(Slop),
    /// Blocks of a size that is just above what a size class holds.
    SizeClass(SizeClass),
    /// Blocks that reporters miss or report twice.
    Reporters(Reporters),
    /// Blocks that keep pages which are empty otherwise.
    Pool(Pool),
    /// An allocator that saves memory or time.
    Allocator(OtherAllocator),
}

/// A rule's name, and why it was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The rule.
    pub rule: &'static str,
    /// The reason, as a part of a sentence: `the recording is shorter than 10 s`.
    pub why: &'static str,
}

/// All advice on a recording.
#[derive(Debug, Default)]
pub struct AdviceList {
    /// The advice, in descending order of the bytes at stake.
    pub advice: Vec<Advice>,
    /// Rules that could not be applied to this recording.
    pub skipped: Vec<Skipped>,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

impl AdviceList {
    /// Applies every rule to the selected blocks. The selection's moment does not matter. Makes
    /// several passes over all events. Needs as much memory as the largest of
    /// [`growth`](crate::Growth), [`reallocations`](crate::reallocations) and
    /// [`parts`](crate::parts).
    pub fn load(names: &mut Names<'_, '_>, selection: &Selection, progress: Progress<'_>) -> Result<AdviceList, Error> {
        let mut list = AdviceList::default();
        let rules =
            [growth::find, reserve::find, temporary::find, slop::find, size_class::find, pool::find, reporters::find];
        for rule in rules {
            rule(names, selection, &mut list, progress)?;
        }
        list.advice.sort_by_key(|advice| std::cmp::Reverse(advice.bytes));
        list.damage = each_once(std::mem::take(&mut list.damage));
        Ok(list)
    }

    fn skip(&mut self, rule: &'static str, why: &'static str) {
        self.skipped.push(Skipped { rule, why });
    }
}

impl Finding {
    /// Returns the name of the rule.
    pub fn rule(&self) -> &'static str {
        match self {
            Finding::Reserve(_) => reserve::NAME,
            Finding::Temporary(_) => temporary::NAME,
            Finding::Grows(_) => growth::NAME,
            Finding::Slop(_) => slop::NAME,
            Finding::SizeClass(_) => size_class::NAME,
            Finding::Reporters(_) => reporters::NAME,
            Finding::Pool(_) => pool::NAME,
            Finding::Allocator(_) => allocator::NAME,
        }
    }
}

/// True if `part` is at least this percentage of `whole`.
fn is_part(part: u64, whole: u64, percent: u64) -> bool {
    u128::from(part) * 100 >= u128::from(whole) * u128::from(percent)
}
