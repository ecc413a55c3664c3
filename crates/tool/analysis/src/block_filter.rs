//! Tests block by block, as events bring them, whether a selection has them.

use heapledger_core::StackId;
use heapledger_recording::{Damage, ImageId};

use crate::error::Error;
use crate::events::EventMap;
use crate::filter::{Filter, StackFilter, ThreadFilter};
use crate::lifetime_filter::{LifetimeCondition, MatchingBlocks};
use crate::names::Names;
use crate::progress::Progress;
use crate::replay::visitor::Origin;
use crate::selection::Selection;
use crate::stacks::{MergedStacks, NodeId};

/// The decision about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The block was allocated outside of the selection's time of allocation.
    Outside,
    /// The block is not in the selection.
    LeftOut,
    /// The block is in the selection. The stack is the root if it is not needed.
    Selected(NodeId),
}

/// The filter of a selection, applied to single blocks.
#[derive(Debug)]
pub(crate) struct BlockFilter<'f> {
    filter: &'f Filter,
    threads: ThreadFilter,
    lifetimes: Option<MatchingBlocks>,
    stack_filter: StackFilter<'f>,
    needs_stack: bool,
    /// The merged stack of each stack of an image; `None` if the filter rejects it.
    stacks: EventMap<(ImageId, StackId), Option<NodeId>>,
}

impl<'f> BlockFilter<'f> {
    /// Prepares a filter. Goes through all events if the filter asks for lifetimes. With
    /// `needs_stack`, stacks are returned even if the filter does not need them.
    pub(crate) fn new(
        names: &Names<'_, '_>,
        selection: &'f Selection,
        images: &[ImageId],
        needs_stack: bool,
        shared_progress: &mut SharedProgress<'_>,
    ) -> Result<BlockFilter<'f>, Error> {
        let recording = names.recording();
        let (filter, memory_max) = (&selection.filter, selection.memory_max);
        let threads = ThreadFilter::new(filter, recording, images)?;
        let find = |range| {
            let lifetime = LifetimeCondition::Time(range);
            shared_progress.pass(|progress| MatchingBlocks::find(recording, images, &lifetime, memory_max, progress))
        };
        let lifetimes = filter.lifetime.clone().map(find).transpose()?;
        let needs_stack = needs_stack || !filter.is_of_all_stacks();
        let (stack_filter, stacks) = (StackFilter::new(filter), EventMap::default());
        Ok(BlockFilter { filter, threads, lifetimes, stack_filter, needs_stack, stacks })
    }

    pub(crate) fn verdict(
        &mut self,
        names: &mut Names<'_, '_>,
        merged: &mut MergedStacks<'_, '_>,
        origin: &Origin,
    ) -> Verdict {
        if let Some(time) = &self.filter.allocated
            && !origin.call.is_some_and(|(_, at)| time.contains(&at.0))
        {
            return Verdict::Outside;
        }
        if self.filter.size.as_ref().is_some_and(|size| !size.contains(&origin.size.0))
            || !self.threads.passes(origin.image, origin.call.map(|(thread, _)| thread))
            || self.lifetimes.as_ref().is_some_and(|lifetimes| !lifetimes.has(origin.image, origin.serial))
        {
            return Verdict::LeftOut;
        }
        if !self.needs_stack {
            return Verdict::Selected(NodeId::ROOT);
        }
        let stack = *self.stacks.entry((origin.image, origin.stack)).or_insert_with(|| {
            let node = merged.node(origin.image, origin.stack);
            self.stack_filter.passes(names, &merged.stacks, node).then_some(node)
        });
        stack.map_or(Verdict::LeftOut, Verdict::Selected)
    }

    /// Returns the damage that was met while lifetimes were computed.
    pub(crate) fn damage(self) -> Vec<Damage> {
        self.lifetimes.map_or_else(Vec::new, |lifetimes| lifetimes.damage)
    }
}

/// A progress that is shared by several passes over the same events.
pub(crate) struct SharedProgress<'p> {
    progress: Progress<'p>,
    done: u64,
    all: u64,
}

impl<'p> SharedProgress<'p> {
    /// Prepares for one pass, for another if the filter needs lifetimes, and for one more if
    /// `has_another`.
    pub(crate) fn new(progress: Progress<'p>, filter: &Filter, has_another: bool) -> SharedProgress<'p> {
        let all = 1 + u64::from(filter.lifetime.is_some()) + u64::from(has_another);
        SharedProgress { progress, done: 0, all }
    }

    pub(crate) fn pass<T>(&mut self, work: impl FnOnce(Progress<'_>) -> T) -> T {
        let (done, all) = (self.done, self.all);
        self.done += 1;
        work(&mut |events, events_all| (self.progress)(events_all * done + events, events_all * all))
    }
}

/// Removes damage that is listed more than once.
pub(crate) fn each_once(mut damage: Vec<Damage>) -> Vec<Damage> {
    damage.sort_by_key(|damage| damage.offset);
    damage.dedup_by_key(|damage| damage.offset);
    damage
}
