//! Finds the groups of sites that grow: the bytes that each held over time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Bytes, Serial, ThreadId};
use heapledger_recording::{Damage, Event, EventKind, Events, FreedBlock, ImageEndReason, ImageId, LiveBlock, Time};

use crate::amount::{Metric, MomentAmounts};
use crate::block_filter::{BlockFilter, SharedProgress, Verdict, each_once};
use crate::error::Error;
use crate::events::{bytes_of, events_in, expect_events, for_each_chunk_with_extras};
use crate::names::Names;
use crate::parts::{Part, PartBy, parts};
use crate::profile::Profile;
use crate::progress::Progress;
use crate::rank::{Key, Rank, RankBy, group, rank};
use crate::replay::visitor::Origin;
use crate::selection::Selection;
use crate::slop::{SlopRules, SlopSource};
use crate::stacks::{MergedStacks, NodeId, Stacks};

/// The property by which blocks are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharesBy {
    /// A property of their sites.
    Rank(RankBy),
    /// A property that only events tell.
    Part(PartBy),
}

/// A group of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShareGroup {
    /// The blocks of some sites.
    Rank(Rank),
    /// The blocks that have another property in common.
    Part(Part),
}

/// The bytes that the largest groups of blocks held at certain times: requested bytes, or slop if
/// the selection [asks for it](Selection::counts_slop).
#[derive(Debug, Default)]
pub struct Shares {
    /// The groups that hold the most at the selection's moment, the largest first, and the bytes
    /// that each held at each time.
    pub groups: Vec<(ShareGroup, Vec<u64>)>,
    /// The bytes that all other groups held at each time.
    pub others: Vec<u64>,
    /// The stacks of the groups.
    pub stacks: Stacks,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// The key of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum GroupKey {
    Rank(Key),
    Part(Part),
}

impl Shares {
    /// Computes what the `most` largest groups at the moment of the selection held at these times,
    /// which must be in order. Takes one pass over all events. Memory: an entry of 32 bytes in a
    /// hash table for each block that is live at once in one image; for slop, 16 bytes more for
    /// each that has some.
    pub fn load(
        names: &mut Names<'_, '_>,
        selection: &Selection,
        by: SharesBy,
        most: usize,
        times: &[Time],
        progress: Progress<'_>,
    ) -> Result<Shares, Error> {
        let recording = names.recording();
        expect_events(recording)?;
        let (groups, stacks, mut damage) = largest(names, selection, by, most, progress)?;
        let key = |group: &ShareGroup| match group {
            ShareGroup::Rank(rank) => GroupKey::Rank(rank.key),
            ShareGroup::Part(part) => GroupKey::Part(*part),
        };
        let numbers: HashMap<GroupKey, u32> = groups.iter().map(key).zip(0..).collect();
        let others = groups.len() as u32;

        let images = selection.filter.images(recording)?;
        if selection.counts_slop {
            SlopSource::of(recording, &images)?;
        }
        let rules = selection.counts_slop.then(|| SlopRules::of(recording));
        let (mut done, all) = (0, events_in(recording, &images));
        let is_by_stack = matches!(by, SharesBy::Rank(_));
        let mut shared_progress = SharedProgress::new(&mut *progress, &selection.filter, false);
        let mut block_filter = BlockFilter::new(names, selection, &images, is_by_stack, &mut shared_progress)?;
        let mut merged = MergedStacks::with_stacks(stacks, recording);
        let mut sums = vec![vec![0_u64; times.len()]; groups.len() + 1];
        let mut known: HashMap<NodeId, u32> = HashMap::new();
        let mut number = |origin: &Origin, merged: &mut MergedStacks<'_, '_>| {
            let Verdict::Selected(node) = block_filter.verdict(names, merged, origin) else { return NOT_SELECTED };
            match by {
                SharesBy::Rank(by) => *known.entry(node).or_insert_with(|| {
                    let (key, _) = group(names, &merged.stacks, (node, None), by);
                    numbers.get(&GroupKey::Rank(key)).copied().unwrap_or(others)
                }),
                SharesBy::Part(by) => {
                    let part = by.part(recording, origin);
                    part.and_then(|part| numbers.get(&GroupKey::Part(part)).copied()).unwrap_or(others)
                }
            }
        };
        for image in images {
            let mut number = |origin: &Origin| number(origin, &mut merged);
            let (live, held) = (HashMap::new(), vec![0; sums.len()]);
            let slop = rules.as_ref().map(|rules| LiveSlop { rules, blocks: HashMap::new() });
            let mut image_shares = ImageShares { image, times, next: 0, live, slop, held, sums: &mut sums };
            if let Some(carried) = recording.carried(image) {
                // Blocks that cannot be read are missing, as events are.
                let read = carried.for_each_part(|blocks| {
                    blocks.iter().for_each(|&LiveBlock { serial, size, rate, stack, usable }| {
                        image_shares
                            .enter(&Origin { image, serial, call: None, size, rate, stack, usable }, &mut number);
                    });
                });
                if let Err(heapledger_recording::RecordingError::Damaged(found)) = read {
                    damage.push(found);
                }
            }
            for_each_chunk_with_extras(recording, image, &mut damage, |events| {
                for (index, event) in events.as_slice().iter().enumerate() {
                    let usable = if rules.is_some() { usable_size(events, index, event) } else { None };
                    image_shares.event(event, usable, &mut number);
                }
                done += events.as_slice().len() as u64;
                progress(done, all);
                let slops = image_shares.slop.as_ref().map_or(0, |slop| bytes_of(&slop.blocks));
                let is_too_much = bytes_of(&image_shares.live) + slops > selection.memory_max.0;
                if is_too_much { Err(Error::MemoryLimit(selection.memory_max)) } else { Ok(()) }
            })?;
            image_shares.finish(end_time(recording, image));
            merged.forget(image);
        }
        damage.append(&mut merged.damage);
        damage.extend(block_filter.damage());
        let others = sums.pop().unwrap_or_default();
        let groups = groups.into_iter().zip(sums).collect();
        Ok(Shares { groups, others, stacks: merged.stacks, damage: each_once(damage) })
    }
}

/// Returns the groups that hold the most at the moment of the selection.
fn largest(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    by: SharesBy,
    most: usize,
    progress: Progress<'_>,
) -> Result<(Vec<ShareGroup>, Stacks, Vec<Damage>), Error> {
    let metric = if selection.counts_slop { Metric::Slop } else { Metric::Bytes };
    match by {
        SharesBy::Rank(by) => {
            let profile = Profile::load(names, selection, progress)?;
            let ranks = rank(&profile, names, by, metric).into_iter().take(most);
            // Nothing else has the stacks of a profile that was just loaded.
            let stacks = Arc::into_inner(profile.stacks).unwrap_or_default();
            Ok((ranks.map(ShareGroup::Rank).collect(), stacks, profile.damage))
        }
        SharesBy::Part(by) => {
            let found = parts(names, by, selection, progress)?;
            let held =
                |(part, moment_amounts): (Part, MomentAmounts)| (part, moment_amounts.at(selection.moment).by(metric));
            let mut parts: Vec<(Part, u64)> = found.parts.into_iter().map(held).collect();
            parts.retain(|(part, bytes)| *part != Part::Rest && *bytes > 0);
            parts.sort_unstable_by_key(|(part, bytes)| (Reverse(*bytes), *part));
            let groups = parts.into_iter().take(most).map(|(part, _)| ShareGroup::Part(part));
            Ok((groups.collect(), Stacks::default(), found.damage))
        }
    }
}

/// Returns the usable size of the block that the event at this index allocates, if it was recorded.
fn usable_size(events: Events<'_>, index: usize, event: &Event) -> Option<Bytes> {
    let (EventKind::Alloc { size, .. } | EventKind::Realloc { size, .. }) = event.kind else { return None };
    // A pool cuts its blocks itself: the allocator's slop is that of the pool's memory.
    if event.call == Api::PoolAlloc.into() { Some(size) } else { events.extras(index).usable }
}

/// Returns the time when the live blocks of an image were gone.
fn end_time(recording: &heapledger_recording::Recording<'_>, image: ImageId) -> Time {
    let end = recording.image_end(image).filter(|end| end.reason != ImageEndReason::Detached);
    end.map_or(Time(u64::MAX), |end| end.time)
}

/// The group number of blocks that are not selected.
const NOT_SELECTED: u32 = u32::MAX;
/// The thread of blocks that were live before the recording began.
const NO_THREAD: ThreadId = ThreadId(u32::MAX);

/// A block that is live. The time of its allocation is not kept: nothing here depends on it.
#[derive(Clone, Copy)]
struct Live {
    size: Bytes,
    rate: Rate,
    group: u32,
    thread: ThreadId,
}

impl Live {
    /// Returns these bytes of each block that this one stands for.
    fn weighted(&self, bytes: Bytes, serial: Serial) -> u64 {
        bytes.0.saturating_mul(self.rate.weight(self.size, serial))
    }
}

/// The slop of the live blocks of one image.
struct LiveSlop<'t> {
    rules: &'t SlopRules,
    /// The blocks that have slop.
    blocks: HashMap<Serial, Bytes>,
}

impl LiveSlop<'_> {
    /// Returns the slop of a new block, and keeps it until the block is removed.
    fn add(&mut self, origin: &Origin) -> Bytes {
        let slop = self.rules.slop(origin);
        if slop.0 > 0 {
            self.blocks.insert(origin.serial, slop);
        }
        slop
    }
}

/// The bytes that the groups hold in one image as time goes on.
struct ImageShares<'t> {
    image: ImageId,
    times: &'t [Time],
    /// The index of the next time.
    next: usize,
    live: HashMap<Serial, Live>,
    /// The slop of the live blocks, if that is counted in place of their bytes.
    slop: Option<LiveSlop<'t>>,
    held: Vec<u64>,
    sums: &'t mut [Vec<u64>],
}

impl ImageShares<'_> {
    fn event(&mut self, event: &Event, usable: Option<Bytes>, number: &mut impl FnMut(&Origin) -> u32) {
        // Most events pass no time.
        if self.times.get(self.next).is_some_and(|&time| time < event.time) {
            self.advance_to(event.time);
        }
        let (image, rate, call) = (self.image, event.sampled.rate, Some((event.thread, event.time)));
        match event.kind {
            EventKind::Alloc { serial, size, stack } => {
                self.enter(&Origin { image, serial, call, size, rate, stack, usable }, number);
            }
            EventKind::Free { block } => self.release(block),
            EventKind::Realloc { old, serial, size, stack } => {
                self.release(old);
                self.enter(&Origin { image, serial, call, size, rate, stack, usable }, number);
            }
            EventKind::Failed { .. } => {}
            EventKind::Reattributed { block: serial, stack } => {
                if let Some(&Live { size, rate, thread, .. }) = self.live.get(&serial) {
                    let slop = |live: &LiveSlop<'_>| live.blocks.get(&serial).map_or(0, |slop| slop.0);
                    let usable = self.slop.as_ref().map(|live| Bytes(size.0.saturating_add(slop(live))));
                    self.release(FreedBlock::Known(serial));
                    let call = (thread != NO_THREAD).then_some((thread, event.time));
                    self.enter(&Origin { image, serial, call, size, rate, stack, usable }, number);
                }
            }
        }
    }

    /// Adds what is held at the times before `until` to the sums.
    fn advance_to(&mut self, until: Time) {
        while self.times.get(self.next).is_some_and(|&time| time < until) {
            for (sums, held) in self.sums.iter_mut().zip(&self.held) {
                sums[self.next] = sums[self.next].saturating_add(*held);
            }
            self.next += 1;
        }
    }

    fn enter(&mut self, origin: &Origin, number: &mut impl FnMut(&Origin) -> u32) {
        let Origin { serial, size, rate, call, .. } = *origin;
        let group = number(origin);
        let thread = call.map_or(NO_THREAD, |(thread, _)| thread);
        let live = Live { size, rate, group, thread };
        let bytes = self.slop.as_mut().map_or(size, |slop| slop.add(origin));
        if let Some(held) = self.held.get_mut(group as usize) {
            *held = held.saturating_add(live.weighted(bytes, serial));
        }
        self.live.insert(serial, live);
    }

    fn release(&mut self, block: FreedBlock) {
        let FreedBlock::Known(serial) = block else { return };
        let Some(live) = self.live.remove(&serial) else { return };
        let slop = self.slop.as_mut().map(|slop| slop.blocks.remove(&serial).unwrap_or_default());
        if let Some(held) = self.held.get_mut(live.group as usize) {
            *held = held.saturating_sub(live.weighted(slop.unwrap_or(live.size), serial));
        }
    }

    fn finish(mut self, end: Time) {
        self.advance_to(end);
    }
}
