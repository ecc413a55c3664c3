//! Blocks counted by anything they have in common, from the events.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::RangeInclusive;

use heapledger_core::StackId;
use heapledger_recording::{self as recording, Damage, ImageId, Time};

use crate::amount::{Amount, Holding};
use crate::error::Error;
use crate::events::expect_events;
use crate::filter::{StackFilter, ThreadFilter};
use crate::lifetimes::{Lifetime, Matching};
use crate::moment::{Moment, Selection, last_images};
use crate::names::Names;
use crate::replay::{Origin, Progress, Span, replay};
use crate::stacks::{MergedStacks, NodeId};

/// What it takes to know the group of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// The thread: checkpoints do not tell.
    pub(crate) thread: bool,
    /// The stack. It is the root otherwise.
    pub(crate) stack: bool,
}

/// Blocks counted in groups.
#[derive(Debug)]
pub(crate) struct Tally<K> {
    /// The groups that hold something at some moment; `None`: those beyond what can be told apart.
    pub(crate) groups: Vec<(Option<K>, Holding)>,
    /// What the selection leaves out of what was allocated in the time that it asks for.
    pub(crate) left_out: Holding,
    pub(crate) damage: Vec<Damage>,
}

/// The ledger counts under a group's number instead of a stack. These are not groups:
const OUTSIDE: StackId = StackId(0);
const LEFT_OUT: StackId = StackId(1);
const OTHERS: StackId = StackId(2);
const GROUPS_FIRST: usize = 3;
/// More groups than this are counted as one, of others: each takes some 200 bytes.
const GROUPS_MAX: usize = 1 << 22;

/// Counts the blocks of a selection by a replay of the events. `key`: what group a block belongs to, or `None` to count
/// it among others. `lifetime` is asked for in addition.
pub(crate) fn tally<K: Copy + Eq + Hash>(
    names: &mut Names<'_, '_>,
    merged: &mut MergedStacks<'_, '_>,
    selection: &Selection,
    needs: Needs,
    mut key: impl FnMut(&Origin, NodeId) -> Option<K>,
    lifetime: Option<&Lifetime>,
    progress: Progress<'_>,
) -> Result<Tally<K>, Error> {
    let recording = names.recording();
    let (filter, memory_max) = (&selection.filter, selection.memory_max);
    expect_events(recording)?;
    let start = filter.allocated.as_ref().map(|time| Time(*time.start()));
    if let Some(time) = [start, selection.moment.time()].into_iter().flatten().max()
        && recording.footer().is_some_and(|footer| time > footer.time)
    {
        return Err(Error::AfterEnd);
    }
    let images = filter.images(recording)?;
    let threads = ThreadFilter::new(filter, recording, &images)?;
    let lifetimes: Vec<Lifetime> =
        filter.lifetime.clone().map(Lifetime::Time).into_iter().chain(lifetime.cloned()).collect();
    let rounds = lifetimes.len() as u64 + 1;
    let mut damage = Vec::new();
    let mut matching = Vec::new();
    for (round, lifetime) in lifetimes.iter().enumerate() {
        let mut progress = |done: u64, all: u64| progress(all * round as u64 + done, all * rounds);
        matching.push(Matching::find(recording, &images, lifetime, memory_max, &mut progress)?);
    }

    let mut numbers: HashMap<K, StackId> = HashMap::new();
    let mut keys: Vec<Option<K>> = vec![None; GROUPS_FIRST];
    let mut stack_filter = StackFilter::new(filter);
    let needs_stack = needs.stack || !filter.is_of_all_stacks();
    // By stack of an image: the merged one, if the filter lets it pass.
    let mut stacks: HashMap<(ImageId, StackId), Option<NodeId>> = HashMap::new();
    let number = |origin: Origin| {
        if let Some(time) = &filter.allocated
            && !origin.call.is_some_and(|(_, at)| time.contains(&at.0))
        {
            return OUTSIDE;
        }
        if filter.size.as_ref().is_some_and(|size| !size.contains(&origin.size.0))
            || !threads.passes(origin.image, origin.call.map(|(thread, _)| thread))
            || !matching.iter().all(|matching| matching.has(origin.image, origin.serial))
        {
            return LEFT_OUT;
        }
        let mut stack = Some(NodeId::ROOT);
        if needs_stack {
            stack = *stacks.entry((origin.image, origin.stack)).or_insert_with(|| {
                let node = merged.node(origin.image, origin.stack);
                stack_filter.passes(names, &merged.stacks, node).then_some(node)
            });
        }
        let Some(stack) = stack else { return LEFT_OUT };
        let Some(key) = key(&origin, stack) else { return OTHERS };
        if let Some(number) = numbers.get(&key) {
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
    let mut progress = |done: u64, all: u64| progress(all * (rounds - 1) + done, all * rounds);
    let replayed = replay(recording, &images, span, memory_max, number, &mut progress)?;
    damage.extend(matching.into_iter().flat_map(|matching| matching.damage));
    damage.extend(replayed.damage);
    damage.sort_by_key(|damage: &Damage| damage.offset);
    damage.dedup_by_key(|damage| damage.offset);

    let mut holdings = vec![Holding::default(); keys.len()];
    let last = last_images(recording);
    for image in &replayed.images {
        let is_live = match selection.moment {
            Moment::At(_) => !image.ended,
            _ => last.contains(&image.image),
        };
        for site in &image.sites {
            if let Some(sum) = holdings.get_mut(site.stack.0 as usize) {
                // Only the selected images were replayed, so the peak of them all is the one that was asked for.
                *sum += holding(site, PeakOf::Session, is_live);
            }
        }
    }
    let left_out = holdings[LEFT_OUT.0 as usize];
    let groups = keys.into_iter().zip(holdings).skip(OTHERS.0 as usize).filter(|(_, held)| !held.is_nothing());
    Ok(Tally { groups: groups.collect(), left_out, damage })
}

/// Whose peak counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeakOf {
    Session,
    Image,
    Nobody,
}

/// What a site holds. `is_live`: whether what it has at the end counts as live.
pub(crate) fn holding(site: &recording::Site, peak: PeakOf, is_live: bool) -> Holding {
    Holding {
        total: Amount { bytes: site.bytes_allocated, blocks: site.allocations, temporaries: site.temporaries },
        peak: match peak {
            PeakOf::Session => site.live_at_session_peak.into(),
            PeakOf::Image => site.live_at_image_peak.into(),
            PeakOf::Nobody => Amount::default(),
        },
        live: if is_live { site.live_end.into() } else { Amount::default() },
    }
}

/// What must be replayed for a selection. `is_blind`: whether blocks that a checkpoint gives are of no use, because it
/// does not tell their threads.
fn span(selection: &Selection, is_blind: bool) -> Span {
    let filter = &selection.filter;
    let first = filter.allocated.as_ref().map(RangeInclusive::start).filter(|&&start| start > 0);
    let first = first.map(|&start| Time(start));
    match selection.moment {
        // It takes all blocks to know when the peak was.
        Moment::Peak => Span::default(),
        // To the end: whether a block is temporary shows later.
        Moment::Total | Moment::End => Span { from: first, until: None },
        Moment::At(time) if is_blind => Span { from: first.map(|first| first.min(time)), until: Some(time) },
        Moment::At(time) => Span { from: Some(first.map_or(time, |first| first.min(time))), until: Some(time) },
    }
}
