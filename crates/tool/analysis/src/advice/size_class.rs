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
    let of_owner = found.groups.into_iter().filter_map(|(key, held)| {
        let (stack, size) = key.filter(|_| held.peak.blocks.0 > 0)?;
        just_above(rule, size)?;
        Some((names.owner(&found.stacks, stack).frame.function, size, held.peak.blocks, stack))
    });
    for (size, blocks, stack) in added_up(of_owner) {
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

/// Adds up the blocks of each owner and size, with the stack of the first ones. They stay in the
/// order of their first ones: so advice with as much at stake is always in the same order.
fn added_up<S>(groups: impl Iterator<Item = (FunctionId, Bytes, Blocks, S)>) -> Vec<(Bytes, Blocks, S)> {
    let mut places: HashMap<(FunctionId, Bytes), usize> = HashMap::new();
    let mut sums: Vec<(Bytes, Blocks, S)> = Vec::new();
    for (owner, size, blocks, stack) in groups {
        let place = *places.entry((owner, size)).or_insert(sums.len());
        match sums.get_mut(place) {
            Some((_, sum, _)) => sum.0 += blocks.0,
            None => sums.push((size, blocks, stack)),
        }
    }
    sums
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
    fn owners_stay_in_the_order_of_their_first_blocks() {
        let groups = (0..300).map(|number: u32| {
            let (owner, size) = (FunctionId(number % 100), Bytes(u64::from(number % 50)));
            (owner, size, Blocks(u64::from(number)), number)
        });
        let expected: Vec<_> = (0..100_u32)
            .map(|first| (Bytes(u64::from(first % 50)), Blocks(u64::from(3 * first + 300)), first))
            .collect();
        assert_eq!(added_up(groups), expected);
    }

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
