//! What to do about memory: one rule in each file, with its thresholds and its evidence.
//!
//! A rule says nothing where its evidence does not reach: advice that is wrong costs more than advice that is missing. What
//! a recording does not tell (how much of a block is ever written to, so capacity that is never used) has no rule.

use heapledger_core::{Blocks, Bytes};
use heapledger_recording::Damage;

use crate::error::Error;
use crate::moment::Selection;
use crate::names::Names;
use crate::owners::Owner;
use crate::replay::Progress;
use crate::sieve::each_once;

mod growth;
mod reporters;
mod reserve;
mod slop;
mod temporary;

pub use growth::Grows;
pub use reporters::Reporters;
pub use reserve::Reserve;
pub use slop::Slop;
pub use temporary::Temporary;

/// What could be done, and why.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The rule, with its evidence.
    pub finding: Finding,
    /// Bytes at stake: what each rule says.
    pub bytes: Bytes,
    /// Whose code is to be changed, if the rule knows.
    pub owner: Option<Owner>,
}

/// What a rule has found.
#[derive(Clone, Debug)]
pub enum Finding {
    /// Blocks that grow by reallocation, and could be reserved.
    Reserve(Reserve),
    /// Blocks that are freed at once, over and over.
    Temporary(Temporary),
    /// What grows at a constant rate.
    Grows(Grows),
    /// Blocks of a size of which the allocator uses less than it takes.
    Slop(Slop),
    /// Blocks that reporters miss or report twice.
    Reporters(Reporters),
}

/// A rule's name, and why it was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The rule.
    pub rule: &'static str,
    /// Why, as a part of a sentence: `the recording is shorter than 10 s`.
    pub why: &'static str,
}

/// All advice on a recording.
#[derive(Debug, Default)]
pub struct AdviceList {
    /// What is most worth doing first: by bytes at stake.
    pub advice: Vec<Advice>,
    /// Rules that say nothing about this recording.
    pub skipped: Vec<Skipped>,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

impl AdviceList {
    /// Applies every rule to the selected blocks; its moment does not matter. Some passes over all events. Memory: that of
    /// the largest of [`growth`](crate::Growth), [`reallocations`](crate::reallocations) and
    /// [`breakdown`](crate::breakdown).
    pub fn load(names: &mut Names<'_, '_>, selection: &Selection, progress: Progress<'_>) -> Result<AdviceList, Error> {
        let mut list = AdviceList::default();
        for rule in [growth::find, reserve::find, temporary::find, slop::find, reporters::find] {
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
    /// The name of the rule.
    pub fn rule(&self) -> &'static str {
        match self {
            Finding::Reserve(_) => reserve::NAME,
            Finding::Temporary(_) => temporary::NAME,
            Finding::Grows(_) => growth::NAME,
            Finding::Slop(_) => slop::NAME,
            Finding::Reporters(_) => reporters::NAME,
        }
    }
}

/// Whether a part is this much of a whole.
fn is_part(part: Blocks, whole: Blocks, percent: u64) -> bool {
    u128::from(part.0) * 100 >= u128::from(whole.0) * u128::from(percent)
}
