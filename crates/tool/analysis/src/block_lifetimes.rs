//! The most that was live of each stack, and the lifetimes of its blocks, which only the events
//! tell.

use std::collections::HashMap;

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_recording::Damage;

use crate::amount::Amount;
use crate::block_filter::{BlockFilter, SharedProgress, Verdict, each_once};
use crate::error::Error;
use crate::events::expect_events;
use crate::names::Names;
use crate::profile::SiteTotals;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::replay::span::Span;
use crate::replay::visitor::{BlockEnd, BlockVisitor, EndReason, Origin};
use crate::selection::Selection;
use crate::stacks::{MergedStacks, NodeId};

/// The most live memory and the lifetimes of the blocks of a group of stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLifetimes {
    /// The most bytes that were live at once, and the number of their blocks.
    pub most: Amount,
    /// The sum of the lifetimes of its blocks, in nanoseconds. Blocks live at the end lived until
    /// then. Blocks that were live when the recording began do not count.
    pub lifetimes_ns: u64,
}

/// The most live memory and the lifetimes of each group.
#[derive(Debug, Default)]
pub struct BlockLifetimes {
    /// The groups, by number.
    pub groups: Vec<GroupLifetimes>,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// Determines the most live memory and the lifetimes of the blocks of a selection, whatever its
/// moment. `groups` has the number of the group in which each stack of the totals counts; other
/// stacks do not count. Replays all events. Memory: some 100 bytes for each block that is live at
/// once.
///
/// A reattributed block counts with its whole lifetime for its last stack. The maximum of its first
/// stack includes it only if another block of that stack was freed before the reattribution.
pub fn block_lifetimes(
    names: &mut Names<'_, '_>,
    site_totals: &mut SiteTotals,
    groups: &HashMap<NodeId, usize>,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<BlockLifetimes, Error> {
    let recording = names.recording();
    let (filter, memory_max) = (&selection.filter, selection.memory_max);
    expect_events(recording)?;
    let images = filter.images(recording)?;
    let mut shared_progress = SharedProgress::new(progress, filter, false);
    let mut block_filter = BlockFilter::new(names, selection, &images, true, &mut shared_progress)?;
    let mut merged = MergedStacks::with_stacks(std::mem::take(&mut site_totals.stacks), recording);
    let number = |origin: Origin| match block_filter.verdict(names, &mut merged, &origin) {
        Verdict::Selected(node) => groups.get(&node).map_or(NO_GROUP, |&group| StackId(group as u32 + 1)),
        Verdict::Outside | Verdict::LeftOut => NO_GROUP,
    };
    let length = groups.values().max().map_or(0, |&last| last + 1);
    let mut visitor = LifetimesVisitor { number, groups: vec![RunningGroup::default(); length] };
    let replay = Replay { recording, images: &images, span: Span::default(), memory_max };
    let replayed = shared_progress.pass(|progress| replay.run(&mut visitor, progress));
    let groups = visitor.groups.into_iter().map(RunningGroup::finish).collect();
    let stacks_damage = std::mem::take(&mut merged.damage);
    site_totals.stacks = merged.stacks;
    let damage = replayed?.damage.into_iter().chain(stacks_damage).chain(block_filter.damage());
    Ok(BlockLifetimes { groups, damage: each_once(damage.collect()) })
}

/// The number for blocks that count in no group. Group `n` has number `n + 1`.
const NO_GROUP: StackId = StackId(0);

struct LifetimesVisitor<N> {
    number: N,
    groups: Vec<RunningGroup>,
}

impl<N> LifetimesVisitor<N> {
    fn group(&mut self, number: StackId) -> Option<&mut RunningGroup> {
        self.groups.get_mut((number.0 as usize).checked_sub(1)?)
    }
}

impl<N: FnMut(Origin) -> StackId> BlockVisitor for &mut LifetimesVisitor<N> {
    fn wants_frees(&self) -> bool {
        true
    }

    fn wants_calls(&self) -> bool {
        true
    }

    fn on_alloc(&mut self, origin: Origin) -> StackId {
        let number = (self.number)(origin);
        if let Some(group) = self.group(number) {
            group.live += origin.amount();
        }
        number
    }

    fn on_free(&mut self, block_end: BlockEnd) {
        let Some(group) = self.group(block_end.group) else { return };
        if block_end.reason != EndReason::Reattributed {
            group.update_most();
            let lifetime = block_end.call.map_or(0, |(_, allocated_at)| block_end.at.0.saturating_sub(allocated_at.0));
            let lifetimes = lifetime.saturating_mul(block_end.amount.blocks.0);
            group.totals.lifetimes_ns = group.totals.lifetimes_ns.saturating_add(lifetimes);
        }
        let live = &mut group.live;
        live.bytes = Bytes(live.bytes.0.saturating_sub(block_end.amount.bytes.0));
        live.blocks = Blocks(live.blocks.0.saturating_sub(block_end.amount.blocks.0));
    }
}

#[derive(Clone, Copy, Default)]
struct RunningGroup {
    live: Amount,
    totals: GroupLifetimes,
}

impl RunningGroup {
    /// Updates the maximum. A group has the most just before it loses a block, or at the end, so
    /// this is called only then: a block that counts in the group only until it is reattributed is
    /// not included.
    fn update_most(&mut self) {
        let (live, most) = (self.live, &mut self.totals.most);
        if (live.bytes, live.blocks) > (most.bytes, most.blocks) {
            *most = live;
        }
    }

    fn finish(mut self) -> GroupLifetimes {
        self.update_most();
        self.totals
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use heapledger_core::Serial;
    use heapledger_recording::{
        EventKind, EventsBuffer, FreedBlock, ImageEndReason, ImageId, Node, NodeCache, NodeKind, Recording,
    };
    use heapledger_symbols::{Symbolizer, SymbolizerOptions};
    use proptest::prelude::*;

    use super::*;
    use crate::moment::Moment;
    use crate::testing::{steps, write};

    type Frames = Vec<u64>;

    /// The frames of the stack that a block counts for, its size, and the time of its allocation.
    type Block = (Frames, u64, u64);

    /// A change of the live blocks of a stack: time, image, bytes and blocks more or fewer.
    type Change = (u64, ImageId, Frames, i64, i64);

    /// Returns the changes in order, and the sum of the lifetimes of the blocks of each stack.
    fn model(recording: &Recording<'_>) -> (Vec<Change>, BTreeMap<Frames, u64>) {
        let (mut changes, mut lifetimes) = (Vec::new(), BTreeMap::new());
        for image in recording.images().iter().map(|image| image.image) {
            let tree = recording.stack_tree(image, &mut NodeCache::default());
            let frames = |stack| -> Frames {
                let is_frame = |node: &&Node| node.kind == NodeKind::Frame;
                tree.frames(stack).filter(is_frame).map(|node| node.offset).collect()
            };
            let mut live: BTreeMap<Serial, Block> = BTreeMap::new();
            let mut buffer = EventsBuffer::default();
            for chunk in recording.event_chunks(image) {
                for event in chunk.decode(&mut buffer).unwrap().as_slice() {
                    let time = event.time.0;
                    let (freed, allocated) = match event.kind {
                        EventKind::Alloc { serial, size, stack } => (FreedBlock::None, Some((serial, size, stack))),
                        EventKind::Realloc { old, serial, size, stack } => (old, Some((serial, size, stack))),
                        EventKind::Free { block } => (block, None),
                        EventKind::Failed { .. } => (FreedBlock::None, None),
                        EventKind::Reattributed { block, stack } => {
                            live.get_mut(&block).unwrap().0 = frames(stack);
                            (FreedBlock::None, None)
                        }
                    };
                    if let FreedBlock::Known(serial) = freed {
                        let (frames, size, allocated_at) = live.remove(&serial).unwrap();
                        changes.push((time, image, frames.clone(), -(size as i64), -1));
                        *lifetimes.entry(frames).or_default() += time - allocated_at;
                    }
                    if let Some((serial, size, stack)) = allocated {
                        changes.push((time, image, frames(stack), size.0 as i64, 1));
                        live.insert(serial, (frames(stack), size.0, time));
                    }
                }
            }
            let end = recording.image_end(image);
            let over = end.map_or(recording.footer().unwrap().time, |end| end.time).0;
            // Blocks of images that run on are freed after all other changes.
            let after = end.is_none_or(|end| end.reason == ImageEndReason::Detached);
            for (frames, size, allocated_at) in live.into_values() {
                changes.push((over + u64::from(after), image, frames.clone(), -(size as i64), -1));
                *lifetimes.entry(frames).or_default() += over - allocated_at;
            }
        }
        changes.sort_by_key(|(time, image, ..)| (*time, *image));
        (changes, lifetimes)
    }

    proptest! {
        #[test]
        fn as_a_model_says(steps in steps(150), with_moves: bool) {
            let steps: Vec<_> = steps.into_iter().filter(|step| with_moves || !step.is_move()).collect();
            let (finished, _, _) = write(&steps);
            let recording = Recording::open(&finished).unwrap();
            let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
            let selection = Selection::at(Moment::Total);
            let mut site_totals = SiteTotals::load(&mut names, &selection, &mut |_, _| ()).unwrap();
            let mut stacks: Vec<Frames> = Vec::new();
            let mut groups = HashMap::new();
            for (node, _) in &site_totals.sites {
                let frames: Frames = site_totals.stacks.frames(*node).map(|frame| frame.offset).collect();
                let group = stacks.iter().position(|stack| *stack == frames).unwrap_or(stacks.len());
                if group == stacks.len() {
                    stacks.push(frames);
                }
                groups.insert(*node, group);
            }
            let found = block_lifetimes(&mut names, &mut site_totals, &groups, &selection, &mut |_, _| ()).unwrap();
            prop_assert_eq!(found.damage.len(), 0);

            let (changes, lifetimes) = model(&recording);
            let mut live: BTreeMap<Frames, (i64, i64)> = BTreeMap::new();
            let mut most: BTreeMap<Frames, (i64, i64)> = BTreeMap::new();
            for (_, _, frames, bytes, blocks) in changes {
                let live = live.entry(frames.clone()).or_default();
                *live = (live.0 + bytes, live.1 + blocks);
                let most = most.entry(frames).or_default();
                *most = (*most).max(*live);
            }
            for (frames, totals) in stacks.iter().zip(&found.groups) {
                prop_assert_eq!(totals.lifetimes_ns, lifetimes.get(frames).copied().unwrap_or_default(), "{:?}", frames);
                if !with_moves {
                    let found = (totals.most.bytes.0 as i64, totals.most.blocks.0 as i64);
                    prop_assert_eq!(found, most.get(frames).copied().unwrap_or_default(), "{:?}", frames);
                }
            }
        }
    }
}
