//! Call sites that ask for sizes just above what a size class of the allocator holds.

use std::collections::HashMap;

use heapledger_core::{Blocks, Bytes};

use super::{Advice, AdviceList, Finding, slop};
use crate::error::Error;
use crate::functions::FunctionId;
use crate::group_totals::{Needs, group_totals};
use crate::moment::Moment;
use crate::names::Names;
use crate::progress::Progress;
use crate::replay::visitor::Origin;
use crate::selection::Selection;
use crate::size_rules::SizeRule;
use crate::stacks::NodeId;

pub(super) const NAME: &str = "size-class";

/// The largest part of a size by which it may be above the class, in percent. It is always allowed
/// to be one byte above.
const LESS_PERCENT: u64 = 6;
/// The least memory that smaller blocks would have saved at the peak: this many bytes, and this
/// percentage of all that was live.
const SAVED_MIN: Bytes = Bytes(64 << 10);
const LIVE_PERCENT: u64 = 5;

/// Blocks of one size and one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// The requested size.
    pub size: Bytes,
    /// The usable size of such a block.
    pub usable: Bytes,
    /// The largest size that the class below holds.
    pub size_below: Bytes,
    /// The usable size of a block of that size.
    pub usable_below: Bytes,
    /// The number of blocks live at the peak.
    pub blocks: Blocks,
}

/// Finds sizes just above a class, by owner. Bytes at stake: those that blocks of the class below
/// would have saved at the peak.
pub(super) fn find(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    list: &mut AdviceList,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let rule = match slop::rule_of(names.recording()) {
        Ok(rule) => rule,
        Err(why) => {
            list.skip(NAME, why);
            return Ok(());
        }
    };
    let needs = Needs { stack: true, ..Needs::default() };
    let key = |origin: &Origin, stack: NodeId, _| Some((stack, origin.size));
    let found = group_totals(names, &selection.with_moment(Moment::Peak), needs, key, progress)?;
    list.damage.extend(&found.damage);
    let live = found.groups.iter().fold(0_u64, |sum, (_, held)| sum.saturating_add(held.peak.bytes.0));
    let least = SAVED_MIN.0.max(live / 100 * LIVE_PERCENT);
    let mut owned: HashMap<(FunctionId, Bytes), (Blocks, NodeId)> = HashMap::new();
    for (key, held) in found.groups {
        let Some((stack, size)) = key.filter(|_| held.peak.blocks.0 > 0) else { continue };
        if just_above(rule, size).is_some() {
            let owner = names.owner(&found.stacks, stack).frame.function;
            owned.entry((owner, size)).or_insert((Blocks(0), stack)).0.0 += held.peak.blocks.0;
        }
    }
    for ((_, size), (blocks, stack)) in owned {
        let Some(size_below) = just_above(rule, size) else { continue };
        let (usable, usable_below) = (rule.usable(size), rule.usable(size_below));
        let saved = (usable.0 - usable_below.0).saturating_mul(blocks.0);
        if saved >= least {
            let finding = Finding::SizeClass(SizeClass { size, usable, size_below, usable_below, blocks });
            list.advice.push(Advice { finding, bytes: Bytes(saved), owner: Some(names.owner(&found.stacks, stack)) });
        }
    }
    Ok(())
}

/// Returns the largest size that the class below holds, if this one is just above it.
fn just_above(rule: SizeRule, size: Bytes) -> Option<Bytes> {
    let less_max = (size.0 / 100 * LESS_PERCENT).max(1);
    let usable = rule.usable(size);
    let is_below = |size: u64| rule.usable(Bytes(size)) < usable;
    // Usable sizes do not fall as sizes rise: bisection.
    let (mut below, mut above) = (size.0.checked_sub(less_max)?, size.0);
    if !is_below(below) {
        return None;
    }
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if is_below(middle) { below = middle } else { above = middle }
    }
    // An empty block is no advice.
    (below > 0).then_some(Bytes(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_just_above_a_class_are_found() {
        let found = |rule, size| just_above(rule, Bytes(size)).map(|below| below.0);
        assert_eq!(
            [1024, 1025, 1080, 1100, 1280].map(|size| found(SizeRule::Jemalloc, size)),
            [None, Some(1024), Some(1024), None, None]
        );
        assert_eq!(
            [24, 25, 104, 105, 106].map(|size| found(SizeRule::Glibc, size)),
            [None, Some(24), None, Some(104), Some(104)]
        );
        // Nothing is below the first class.
        assert_eq!([0, 1, 8].map(|size| found(SizeRule::Jemalloc, size)), [None; 3]);
    }
}
