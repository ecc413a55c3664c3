//! Counts blocks in groups by any property, from the events.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::RangeInclusive;

use heapledger_core::{Bytes, StackId};
use heapledger_recording::{self as recording, Damage, ImageId, Live, Time};

use crate::amount::{Amount, MomentAmounts};
use crate::block_filter::{BlockFilter, SharedProgress, Verdict, each_once};
use crate::error::Error;
use crate::events::expect_events;
use crate::images::last_images;
use crate::lifetime_filter::{LifetimeCondition, MatchingBlocks};
use crate::moment::Moment;
use crate::names::Names;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::replay::results::ReplayedImage;
use crate::replay::span::Span;
use crate::replay::visitor::Origin;
use crate::selection::Selection;
use crate::slop::{SlopRules, SlopSource};
use crate::stacks::{MergedStacks, NodeId, Stacks};

/// The data that are needed to determine the group of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs<'l> {
    /// The call that allocated the block; checkpoints do not have it.
    pub(crate) call: bool,
    /// The stack. If it is not needed, the root is given.
    pub(crate) stack: bool,
    /// The condition on the lifetime of the block that the key asks for.
    pub(crate) within: Option<&'l LifetimeCondition>,
}

/// Blocks counted in groups.
#[derive(Debug)]
pub(crate) struct GroupTotals<K> {
    /// The groups that hold something at some moment. `None` stands for all groups beyond
    /// `GROUPS_MAX`.
    pub(crate) groups: Vec<(Option<K>, MomentAmounts)>,
    /// The totals of the blocks that were allocated in the time that the selection asks for, but
    /// are not selected.
    pub(crate) left_out: MomentAmounts,
    /// The time of the peak of the selected processes, within the part that was replayed.
    pub(crate) peak_time: Time,
    /// The stacks of the groups.
    pub(crate) stacks: Stacks,
    pub(crate) damage: Vec<Damage>,
}

/// The ledger counts under the number of a group instead of a stack. The following are not groups.
const OUTSIDE: StackId = StackId(0);
const LEFT_OUT: StackId = StackId(1);
const REST: StackId = StackId(2);
const GROUPS_FIRST: usize = 3;
/// The maximum number of groups, each of which takes some 200 bytes. Further ones are counted as
/// one.
pub(crate) const GROUPS_MAX: usize = 1 << 22;

/// Counts the blocks of a selection by a replay of the events. `key` returns the group of a block,
/// or `None` to count it with all blocks without a group. Its last argument tells whether the
/// lifetime of the block matches [`Needs::within`].
pub(crate) fn group_totals<K: Copy + Eq + Hash>(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    needs: Needs<'_>,
    mut key: impl FnMut(&Origin, NodeId, bool) -> Option<K>,
    progress: Progress<'_>,
) -> Result<GroupTotals<K>, Error> {
    let recording = names.recording();
    let (filter, memory_max) = (&selection.filter, selection.memory_max);
    expect_events(recording)?;
    selection.expect_time(recording)?;
    let images = filter.images(recording)?;
    if selection.counts_slop {
        SlopSource::of(recording, &images)?;
    }
    let mut shared_progress = SharedProgress::new(progress, filter, needs.within.is_some());
    let mut block_filter = BlockFilter::new(names, selection, &images, needs.stack, &mut shared_progress)?;
    let find = |lifetime: &LifetimeCondition| {
        shared_progress.pass(|progress| MatchingBlocks::find(recording, &images, lifetime, memory_max, progress))
    };
    let within = needs.within.map(find).transpose()?;
    let mut merged = MergedStacks::new(recording);

    // Blocks with different slop are counted apart, so that the slop of a group is a product.
    let rules = selection.counts_slop.then(|| SlopRules::of(recording));
    let mut numbers: HashMap<(K, Bytes), StackId> = HashMap::new();
    // The next block is often in the same group.
    let mut latest: Option<((K, Bytes), StackId)> = None;
    let mut keys: Vec<Option<(K, Bytes)>> = vec![None; GROUPS_FIRST];
    let number = |origin: Origin| {
        let stack = match block_filter.verdict(names, &mut merged, &origin) {
            Verdict::Outside => return OUTSIDE,
            Verdict::LeftOut => return LEFT_OUT,
            Verdict::Selected(stack) => stack,
        };
        let is_within = within.as_ref().is_some_and(|within| within.has(origin.image, origin.serial));
        let Some(key) = key(&origin, stack, is_within) else { return REST };
        let key = (key, rules.as_ref().map_or(Bytes(0), |rules| rules.slop(&origin)));
        if let Some((_, number)) = latest.filter(|(latest, _)| *latest == key) {
            return number;
        }
        if let Some(number) = numbers.get(&key) {
            latest = Some((key, *number));
            return *number;
        }
        if keys.len() >= GROUPS_MAX {
            return REST;
        }
        let number = StackId(keys.len() as u32);
        keys.push(Some(key));
        numbers.insert(key, number);
        number
    };
    let span = span(selection, needs.call || !filter.threads.is_empty());
    let replay = Replay { recording, images: &images, span, memory_max };
    let replayed = shared_progress.pass(|progress| replay.run(number, progress))?;
    let peak_time = Time(replayed.live.bytes_live_max_time.0);
    let mut damage = replayed.damage;
    damage.extend(within.into_iter().flat_map(|within| within.damage));
    damage.extend(block_filter.damage());
    let mut damage = each_once(damage);
    damage.append(&mut merged.damage);

    let totals = sums(&replayed.images, keys.len(), &last_images(recording), selection.moment);
    let left_out = totals[LEFT_OUT.0 as usize];
    let groups = keys.into_iter().zip(totals).skip(REST.0 as usize).filter(|(_, held)| !held.is_nothing());
    let groups = match selection.counts_slop {
        true => merged_by_key(groups),
        false => groups.map(|(key, held)| (key.map(|(key, _)| key), held)).collect(),
    };
    Ok(GroupTotals { groups, left_out, peak_time, stacks: merged.stacks, damage })
}

/// Returns the totals of each group, by its number.
fn sums(images: &[ReplayedImage], groups: usize, last: &HashSet<ImageId>, moment: Moment) -> Vec<MomentAmounts> {
    let mut totals = vec![MomentAmounts::default(); groups];
    for image in images {
        let is_live = match moment {
            Moment::At(_) => !image.ended,
            _ => last.contains(&image.image),
        };
        for site in &image.sites {
            if let Some(sum) = totals.get_mut(site.stack.0 as usize) {
                // Only the selected images were replayed, so their common peak is the one that was
                // asked for.
                *sum += moment_amounts(site, PeakOf::Session, is_live);
            }
        }
    }
    totals
}

/// Adds up the groups that differ in the slop of their blocks only. They stay in the order of their
/// first ones.
fn merged_by_key<K: Copy + Eq + Hash>(
    groups: impl Iterator<Item = (Option<(K, Bytes)>, MomentAmounts)>,
) -> Vec<(Option<K>, MomentAmounts)> {
    let (mut merged, mut places) = (Vec::new(), HashMap::<Option<K>, usize>::new());
    for (key, held) in groups {
        let slop = key.map_or(Bytes(0), |(_, slop)| slop);
        let key = key.map(|(key, _)| key);
        let place = *places.entry(key).or_insert(merged.len());
        if place == merged.len() {
            merged.push((key, MomentAmounts::default()));
        }
        merged[place].1 += held.with_slop(slop);
    }
    merged
}

/// The images whose common peak counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeakOf {
    Session,
    Image,
    NotCounted,
}

/// Returns the amounts that a site holds. `is_live`: whether its blocks at the end count as live.
pub(crate) fn moment_amounts(site: &recording::Site, peak: PeakOf, is_live: bool) -> MomentAmounts {
    let errors = &site.errors;
    let allocated = Live { bytes: site.bytes_allocated, blocks: site.allocations };
    MomentAmounts {
        total: Amount::estimated(allocated, errors.allocated).with_temporaries(site.temporaries),
        peak: match peak {
            PeakOf::Session => Amount::estimated(site.live_at_session_peak, errors.live_at_session_peak),
            PeakOf::Image => Amount::estimated(site.live_at_image_peak, errors.live_at_image_peak),
            PeakOf::NotCounted => Amount::default(),
        },
        live: if is_live { Amount::estimated(site.live_end, errors.live_end) } else { Amount::default() },
    }
}

/// Returns the span to replay for a selection. `needs_calls`: blocks from a checkpoint cannot be
/// used, because a checkpoint does not have the calls that allocated them.
fn span(selection: &Selection, needs_calls: bool) -> Span {
    let allocated = selection.filter.allocated.as_ref();
    let first = allocated.map(RangeInclusive::start).filter(|&&start| start > 0).map(|&start| Time(start));
    match selection.moment {
        // All blocks are needed to find the time of the peak.
        Moment::Peak => Span::default(),
        // Replayed to the end: only later events show whether a block is temporary.
        Moment::Total | Moment::End => Span { from: first, ..Span::default() },
        Moment::At(time) => {
            let from = if needs_calls || allocated.is_some() { first.map(|first| first.min(time)) } else { Some(time) };
            Span { from, until: Some(time), ..Span::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_by_slop_stay_in_order() {
        let total = |bytes| MomentAmounts {
            total: Amount::estimated(Live { bytes: Bytes(bytes), ..Live::default() }, Default::default()),
            ..MomentAmounts::default()
        };
        let groups =
            (0..100).flat_map(|key| [(Some((key, Bytes(8))), total(1)), (Some((key / 2, Bytes(16))), total(1))]);
        let merged = merged_by_key(groups);
        let keys: Vec<_> = merged.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, (0..100).map(Some).collect::<Vec<_>>());
    }
}
