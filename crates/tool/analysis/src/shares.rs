//! Finds the groups of sites that grow: the bytes that each held over time.

use std::cmp::Reverse;
use std::collections::HashMap;

use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, ThreadId};
use heapledger_recording::{Damage, Event, EventKind, FreedBlock, ImageEndReason, ImageId, LiveBlock, Time};

use crate::amount::{Metric, MomentAmounts};
use crate::block_filter::{BlockFilter, SharedProgress, Verdict, each_once};
use crate::error::Error;
use crate::events::{bytes_of, events_in, expect_events, for_each_chunk};
use crate::names::Names;
use crate::parts::{Part, PartBy, parts};
use crate::profile::Profile;
use crate::progress::Progress;
use crate::rank::{Key, Rank, RankBy, group, rank};
use crate::replay::visitor::Origin;
use crate::selection::Selection;
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

/// The bytes that the largest groups of blocks held at certain times.
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
    /// hash table for each block that is live at once in one image.
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
            let mut image_shares = ImageShares { image, times, next: 0, live, held, sums: &mut sums };
            if let Some(carried) = recording.carried(image) {
                // Blocks that cannot be read are missing, as events are.
                let read = carried.for_each_part(|blocks| {
                    blocks.iter().for_each(|&LiveBlock { serial, size, rate, stack, .. }| {
                        image_shares
                            .enter(&Origin { image, serial, call: None, size, rate, stack, usable: None }, &mut number);
                    });
                });
                if let Err(heapledger_recording::RecordingError::Damaged(found)) = read {
                    damage.push(found);
                }
            }
            for_each_chunk(recording, image, &mut damage, |events| {
                events.iter().for_each(|event| image_shares.event(event, &mut number));
                done += events.len() as u64;
                progress(done, all);
                let is_too_much = bytes_of(&image_shares.live) > selection.memory_max.0;
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
    match by {
        SharesBy::Rank(by) => {
            let profile = Profile::load(names, selection, progress)?;
            let ranks = rank(&profile, names, by, Metric::Bytes).into_iter().take(most);
            Ok((ranks.map(ShareGroup::Rank).collect(), profile.stacks, profile.damage))
        }
        SharesBy::Part(by) => {
            let found = parts(names, by, selection, progress)?;
            let held =
                |(part, moment_amounts): (Part, MomentAmounts)| (part, moment_amounts.at(selection.moment).bytes);
            let mut parts: Vec<(Part, Bytes)> = found.parts.into_iter().map(held).collect();
            parts.retain(|(part, bytes)| *part != Part::Rest && bytes.0 > 0);
            parts.sort_unstable_by_key(|(part, bytes)| (Reverse(*bytes), *part));
            let groups = parts.into_iter().take(most).map(|(part, _)| ShareGroup::Part(part));
            Ok((groups.collect(), Stacks::default(), found.damage))
        }
    }
}

/// Returns the bytes of a block multiplied by its weight.
fn weighted_bytes(rate: Rate, size: Bytes, serial: Serial) -> Bytes {
    Bytes(size.0.saturating_mul(rate.weight(size, serial)))
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

/// The bytes that the groups hold in one image as time goes on.
struct ImageShares<'t> {
    image: ImageId,
    times: &'t [Time],
    /// The index of the next time.
    next: usize,
    live: HashMap<Serial, Live>,
    held: Vec<u64>,
    sums: &'t mut [Vec<u64>],
}

impl ImageShares<'_> {
    fn event(&mut self, event: &Event, number: &mut impl FnMut(&Origin) -> u32) {
        // Most events pass no time.
        if self.times.get(self.next).is_some_and(|&time| time < event.time) {
            self.advance_to(event.time);
        }
        let (image, rate, call) = (self.image, event.sampled.rate, Some((event.thread, event.time)));
        match event.kind {
            EventKind::Alloc { serial, size, stack } => {
                self.enter(&Origin { image, serial, call, size, rate, stack, usable: None }, number);
            }
            EventKind::Free { block } => self.release(block),
            EventKind::Realloc { old, serial, size, stack } => {
                self.release(old);
                self.enter(&Origin { image, serial, call, size, rate, stack, usable: None }, number);
            }
            EventKind::Failed { .. } => {}
            EventKind::Reattributed { block: serial, stack } => {
                if let Some(&Live { size, rate, thread, .. }) = self.live.get(&serial) {
                    self.release(FreedBlock::Known(serial));
                    let call = (thread != NO_THREAD).then_some((thread, event.time));
                    self.enter(&Origin { image, serial, call, size, rate, stack, usable: None }, number);
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
        if let Some(held) = self.held.get_mut(group as usize) {
            *held = held.saturating_add(weighted_bytes(rate, size, serial).0);
        }
        let thread = call.map_or(NO_THREAD, |(thread, _)| thread);
        self.live.insert(serial, Live { size, rate, group, thread });
    }

    fn release(&mut self, block: FreedBlock) {
        let FreedBlock::Known(serial) = block else { return };
        if let Some(Live { size, rate, group, .. }) = self.live.remove(&serial)
            && let Some(held) = self.held.get_mut(group as usize)
        {
            *held = held.saturating_sub(weighted_bytes(rate, size, serial).0);
        }
    }

    fn finish(mut self, end: Time) {
        self.advance_to(end);
    }
}
