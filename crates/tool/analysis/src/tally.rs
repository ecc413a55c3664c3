//! Counts blocks in groups by any property, from the events.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::RangeInclusive;

use heapledger_core::StackId;
use heapledger_recording::{self as recording, Damage, Live, Time};

use crate::amount::{Amount, Holding};
use crate::error::Error;
use crate::events::expect_events;
use crate::lifetimes::{Lifetime, Matching};
use crate::moment::{Moment, Selection, last_images};
use crate::names::Names;
use crate::replay::{Origin, Progress, Span, replay};
use crate::sieve::{Rounds, Sieve, Verdict, each_once};
use crate::stacks::{MergedStacks, NodeId};

/// The data that are needed to determine the group of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// The thread; checkpoints do not have it.
    pub(crate) thread: bool,
    /// The stack. If it is not needed, the root is given.
    pub(crate) stack: bool,
}

/// Blocks counted in groups.
#[derive(Debug)]
pub(crate) struct Tally<K> {
    /// The groups that hold something at some moment. `None` stands for all groups beyond
    /// `GROUPS_MAX`.
    pub(crate) groups: Vec<(Option<K>, Holding)>,
    /// The totals of the blocks that were allocated in the time that the selection asks for, but
    /// are not selected.
    pub(crate) left_out: Holding,
    /// The time of the peak of the selected processes, within the part that was replayed.
    pub(crate) peak_time: Time,
    pub(crate) damage: Vec<Damage>,
}

/// The ledger counts under the number of a group instead of a stack. The following are not groups.
const OUTSIDE: StackId = StackId(0);
const LEFT_OUT: StackId = StackId(1);
const OTHERS: StackId = StackId(2);
const GROUPS_FIRST: usize = 3;
/// The maximum number of groups, each of which takes some 200 bytes. Further ones are counted as
/// one.
const GROUPS_MAX: usize = 1 << 22;

/// Counts the blocks of a selection by a replay of the events. `key` returns the group of a block,
/// or `None` to count it with all blocks without a group. Its last argument tells whether the
/// lifetime of the block matches `within`.
pub(crate) fn tally<K: Copy + Eq + Hash>(
    names: &mut Names<'_, '_>,
    merged: &mut MergedStacks<'_, '_>,
    selection: &Selection,
    needs: Needs,
    mut key: impl FnMut(&Origin, NodeId, bool) -> Option<K>,
    within: Option<&Lifetime>,
    progress: Progress<'_>,
) -> Result<Tally<K>, Error> {
    let recording = names.recording();
    let (filter, memory_max) = (&selection.filter, selection.memory_max);
    expect_events(recording)?;
    selection.expect_time(recording)?;
    let images = filter.images(recording)?;
    let mut rounds = Rounds::new(progress, filter, within.is_some());
    let mut sieve = Sieve::new(names, filter, &images, needs.stack, memory_max, &mut rounds)?;
    let find = |lifetime: &Lifetime| {
        rounds.round(|progress| Matching::find(recording, &images, lifetime, memory_max, progress))
    };
    let within = within.map(find).transpose()?;

    let mut numbers: HashMap<K, StackId> = HashMap::new();
    // The next block is often in the same group.
    let mut latest: Option<(K, StackId)> = None;
    let mut keys: Vec<Option<K>> = vec![None; GROUPS_FIRST];
    let number = |origin: Origin| {
        let stack = match sieve.verdict(names, merged, &origin) {
            Verdict::Outside => return OUTSIDE,
            Verdict::LeftOut => return LEFT_OUT,
            Verdict::Selected(stack) => stack,
        };
        let is_within = within.as_ref().is_some_and(|within| within.has(origin.image, origin.serial));
        let Some(key) = key(&origin, stack, is_within) else { return OTHERS };
        if let Some((_, number)) = latest.filter(|(latest, _)| *latest == key) {
            return number;
        }
        if let Some(number) = numbers.get(&key) {
            latest = Some((key, *number));
            return *number;
        }
        if keys.len() >= GROUPS_MAX {
            return OTHERS;
        }
        let number = StackId(keys.len() as u32);
        keys.push(Some(key));
        numbers.insert(key, number);
        number
    };
    let span = span(selection, needs.thread || !filter.threads.is_empty());
    let replayed = rounds.round(|progress| replay(recording, &images, span, memory_max, number, progress))?;
    let peak_time = Time(replayed.live.bytes_live_max_time.0);
    let mut damage = replayed.damage;
    damage.extend(within.into_iter().flat_map(|within| within.damage));
    damage.extend(sieve.damage());
    let damage = each_once(damage);

    let mut holdings = vec![Holding::default(); keys.len()];
    let last = last_images(recording);
    for image in &replayed.images {
        let is_live = match selection.moment {
            Moment::At(_) => !image.ended,
            _ => last.contains(&image.image),
        };
        for site in &image.sites {
            if let Some(sum) = holdings.get_mut(site.stack.0 as usize) {
                // Only the selected images were replayed, so their common peak is the one that was
                // asked for.
                *sum += holding(site, PeakOf::Session, is_live);
            }
        }
    }
    let left_out = holdings[LEFT_OUT.0 as usize];
    let groups = keys.into_iter().zip(holdings).skip(OTHERS.0 as usize).filter(|(_, held)| !held.is_nothing());
    Ok(Tally { groups: groups.collect(), left_out, peak_time, damage })
}

/// The images whose common peak counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeakOf {
    Session,
    Image,
    Nobody,
}

/// Returns the amounts that a site holds. `is_live`: whether its blocks at the end count as live.
pub(crate) fn holding(site: &recording::Site, peak: PeakOf, is_live: bool) -> Holding {
    let errors = &site.errors;
    let allocated = Live { bytes: site.bytes_allocated, blocks: site.allocations };
    Holding {
        total: Amount::estimated(allocated, errors.allocated).with_temporaries(site.temporaries),
        peak: match peak {
            PeakOf::Session => Amount::estimated(site.live_at_session_peak, errors.live_at_session_peak),
            PeakOf::Image => Amount::estimated(site.live_at_image_peak, errors.live_at_image_peak),
            PeakOf::Nobody => Amount::default(),
        },
        live: if is_live { Amount::estimated(site.live_end, errors.live_end) } else { Amount::default() },
    }
}

/// Returns the span to replay for a selection. `is_blind`: blocks from a checkpoint cannot be used,
/// because a checkpoint does not have their threads.
fn span(selection: &Selection, is_blind: bool) -> Span {
    let filter = &selection.filter;
    // Nor does a checkpoint have the times of their allocation.
    let is_blind = is_blind || filter.allocated.is_some();
    let first = filter.allocated.as_ref().map(RangeInclusive::start).filter(|&&start| start > 0);
    let first = first.map(|&start| Time(start));
    match selection.moment {
        // All blocks are needed to find the time of the peak.
        Moment::Peak => Span::default(),
        // Replayed to the end: only later events show whether a block is temporary.
        Moment::Total | Moment::End => Span { from: first, ..Span::default() },
        // A checkpoint also lacks the times at which its blocks were allocated.
        Moment::At(time) if is_blind || filter.allocated.is_some() => {
            Span { from: first.map(|first| first.min(time)), until: Some(time), ..Span::default() }
        }
        Moment::At(time) => {
            let from = first.map_or(time, |first| first.min(time));
            Span { from: Some(from), until: Some(time), ..Span::default() }
        }
    }
}
