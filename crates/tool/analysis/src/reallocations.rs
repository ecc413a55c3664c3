//! The stacks that change the sizes of blocks by `realloc`, how often, and how much is copied for
//! it.

use std::collections::HashMap;

use heapledger_core::{Blocks, Bytes, Serial, StackId};
use heapledger_ledger::Variance;
use heapledger_recording::{Damage, Event, EventKind, FreedBlock, LiveBlock};

use crate::amount::Amount;
use crate::block_filter::{BlockFilter, SharedProgress, Verdict, each_once};
use crate::error::Error;
use crate::events::{bytes_of, events_in, expect_events, for_each_chunk};
use crate::functions::FunctionId;
use crate::names::Names;
use crate::parts::Part;
use crate::profile::{PartLabels, PartSplit};
use crate::progress::Progress;
use crate::rank::{Key, Rank, RankBy, group};
use crate::replay::visitor::Origin;
use crate::selection::Selection;
use crate::stacks::{MergedStacks, NodeId, Stacks};

/// The reallocations of a selection: blocks that took the place of another one.
#[derive(Debug, Default)]
pub struct Reallocations {
    /// The stacks.
    pub stacks: Stacks,
    /// The stacks that called `realloc`, in no particular order, each with the label of its part if
    /// parts are kept apart.
    pub sites: Vec<((NodeId, Option<FunctionId>), ReallocationTotals)>,
    /// Their sum.
    pub whole: ReallocationTotals,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// The reallocations of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReallocationTotals {
    /// The number of times that a block took the place of another one.
    pub reallocations: Blocks,
    /// The number of these in which the new block was larger.
    pub grown: Blocks,
    /// The number of these in which the new block was smaller.
    pub shrunk: Blocks,
    /// The number of these in which the size of the old block is not known, because its allocation
    /// was not seen or it is not in the sample.
    pub unknown: Blocks,
    /// An upper bound for the bytes that were copied: each time the smaller of both sizes, or the
    /// new size if only that is known. An allocator that finds room behind a block, or remaps its
    /// pages, copies less.
    pub bytes_copied_max: Bytes,
    /// The variance of these bytes and of the number of reallocations, if blocks were sampled.
    pub variance: Variance,
    /// The longest chain: how often one block was reallocated, up to and including a call of this
    /// stack. For the sum of stacks, the longest of all.
    pub chain_max: u64,
    /// The size of the largest new block.
    pub size_max: Bytes,
}

impl ReallocationTotals {
    fn add(&mut self, other: &ReallocationTotals) {
        self.reallocations.0 += other.reallocations.0;
        self.grown.0 += other.grown.0;
        self.shrunk.0 += other.shrunk.0;
        self.unknown.0 += other.unknown.0;
        self.bytes_copied_max.0 = self.bytes_copied_max.0.saturating_add(other.bytes_copied_max.0);
        self.variance = self.variance.plus(other.variance);
        self.chain_max = self.chain_max.max(other.chain_max);
        self.size_max = self.size_max.max(other.size_max);
    }
}

impl Reallocations {
    /// Returns the stacks in groups, in no particular order, with the reallocations of each group.
    /// The largest stack of a group is the one that copied most.
    pub fn grouped(&self, names: &mut Names<'_, '_>, by: RankBy) -> Vec<(Rank, ReallocationTotals)> {
        let mut groups: Vec<(Rank, ReallocationTotals)> = Vec::new();
        let mut places: HashMap<Key, (usize, u64)> = HashMap::new();
        for ((stack, part), site) in &self.sites {
            let (key, frame) = group(names, &self.stacks, (*stack, *part), by);
            let copied = site.bytes_copied_max.0;
            let (at, most) = places.entry(key).or_insert((groups.len(), copied));
            if *at == groups.len() {
                let rank = Rank { key, amount: Amount::default(), sites: 0, largest: *stack, frame };
                groups.push((rank, ReallocationTotals::default()));
            } else if copied > *most {
                *most = copied;
                (groups[*at].0.largest, groups[*at].0.frame) = (*stack, frame);
            }
            groups[*at].0.sites += 1;
            groups[*at].1.add(site);
        }
        groups
    }
}

/// A live block: its size, and the number of times that it was reallocated.
type Block = (Bytes, u32);

/// Returns the reallocations whose new blocks are in a selection; its moment does not matter. Goes
/// through all events, one image after the other. Takes 50 to 150 bytes for each block that is live
/// at once in one image, and 300 to 700 for each site. `split` keeps sites apart for
/// [`RankBy::Part`].
pub fn reallocations(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    split: Option<&PartSplit<'_>>,
    progress: Progress<'_>,
) -> Result<Reallocations, Error> {
    let recording = names.recording();
    let (filter, memory_max) = (&selection.filter, selection.memory_max);
    expect_events(recording)?;
    let images = filter.images(recording)?;
    let mut shared_progress = SharedProgress::new(progress, filter, false);
    let mut block_filter = BlockFilter::new(names, selection, &images, true, &mut shared_progress)?;
    let mut merged = MergedStacks::new(recording);
    let mut found = Reallocations::default();
    let mut sites: HashMap<(NodeId, Part), ReallocationTotals> = HashMap::new();
    let (mut done, all) = (0, events_in(recording, &images));
    shared_progress.pass(|progress| {
        for &image in &images {
            let mut live: HashMap<Serial, Block> = HashMap::new();
            if let Some(carried) = recording.carried(image) {
                let enter = |part: &[LiveBlock]| live.extend(part.iter().map(|block| (block.serial, (block.size, 0))));
                // Other questions report this damage; here, only the sizes of these blocks are
                // unknown.
                let _ = carried.for_each_part(enter);
            }
            for_each_chunk(recording, image, &mut found.damage, |events| {
                for event in events {
                    let Some(one) = reallocated(&mut live, event) else { continue };
                    let call = Some((event.thread, event.time));
                    let origin = Origin {
                        image,
                        serial: one.serial,
                        call,
                        size: one.new,
                        rate: event.sampled.rate,
                        stack: one.stack,
                        usable: None,
                    };
                    if let Verdict::Selected(stack) = block_filter.verdict(names, &mut merged, &origin) {
                        let part = PartSplit::part(split, recording, &origin);
                        sites.entry((stack, part)).or_default().add(&one.counted());
                    }
                }
                done += events.len() as u64;
                progress(done, all);
                if bytes_of(&live) + bytes_of(&sites) > memory_max.0 {
                    Err(Error::MemoryLimit(memory_max))
                } else {
                    Ok(())
                }
            })?;
            merged.forget(image);
        }
        Ok::<(), Error>(())
    })?;
    found.damage.append(&mut merged.damage);
    found.damage.extend(block_filter.damage());
    found.damage = each_once(found.damage);
    found.stacks = merged.stacks;
    sites.values().for_each(|site| found.whole.add(site));
    let mut labels = PartLabels::new(split);
    found.sites = sites.into_iter().map(|((stack, part), site)| ((stack, labels.of(names, part)), site)).collect();
    Ok(found)
}

/// A block in the place of another one.
struct ReallocatedBlock {
    serial: Serial,
    /// Its weight.
    weight: u64,
    stack: StackId,
    /// `None` if the old block's allocation was not seen.
    old: Option<Bytes>,
    new: Bytes,
    chain: u32,
}

impl ReallocatedBlock {
    fn counted(&self) -> ReallocationTotals {
        let old = self.old.unwrap_or(self.new);
        let all = self.weight;
        ReallocationTotals {
            reallocations: Blocks(all),
            grown: Blocks(if old < self.new { all } else { 0 }),
            shrunk: Blocks(if old > self.new { all } else { 0 }),
            unknown: Blocks(if self.old.is_none() { all } else { 0 }),
            bytes_copied_max: Bytes(old.min(self.new).0.saturating_mul(all)),
            variance: Variance::of(old.min(self.new), Blocks(all)),
            chain_max: self.chain.into(),
            size_max: self.new,
        }
    }
}

fn reallocated(live: &mut HashMap<Serial, Block>, event: &Event) -> Option<ReallocatedBlock> {
    match event.kind {
        EventKind::Alloc { serial, size, .. } | EventKind::Realloc { old: FreedBlock::None, serial, size, .. } => {
            live.insert(serial, (size, 0));
            None
        }
        EventKind::Free { block: FreedBlock::Known(serial) } => {
            live.remove(&serial);
            None
        }
        EventKind::Realloc { old, serial, size, stack } => {
            let replaced = if let FreedBlock::Known(old) = old { live.remove(&old) } else { None };
            let chain = replaced.map_or(1, |(_, chain)| chain.saturating_add(1));
            live.insert(serial, (size, chain));
            let weight = event.sampled.rate.weight(size, serial);
            Some(ReallocatedBlock { serial, weight, stack, old: replaced.map(|(size, _)| size), new: size, chain })
        }
        EventKind::Free { .. } | EventKind::Failed { .. } | EventKind::Reattributed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use heapledger_core::{Api, ThreadId};
    use heapledger_recording::{Sampled, Time};

    use super::*;

    #[test]
    fn chains_end_with_their_block() {
        let mut live = HashMap::new();
        let mut play = |kind| {
            let event =
                Event { time: Time(0), thread: ThreadId(0), call: Api::Realloc.into(), sampled: Sampled::NOT, kind };
            reallocated(&mut live, &event).map(|one| (one.old, one.new, one.chain))
        };
        let realloc = |old, serial, size| EventKind::Realloc {
            old,
            serial: Serial(serial),
            size: Bytes(size),
            stack: StackId(1),
        };
        let known = |serial| FreedBlock::Known(Serial(serial));
        assert_eq!(play(realloc(FreedBlock::None, 0, 10)), None);
        assert_eq!(play(realloc(known(0), 1, 20)), Some((Some(Bytes(10)), Bytes(20), 1)));
        assert_eq!(play(realloc(known(1), 2, 5)), Some((Some(Bytes(20)), Bytes(5), 2)));
        assert_eq!(play(EventKind::Free { block: known(2) }), None);
        assert_eq!(play(realloc(FreedBlock::Inherited, 3, 7)), Some((None, Bytes(7), 1)));
        assert_eq!(play(realloc(known(3), 4, 7)), Some((Some(Bytes(7)), Bytes(7), 2)));
        assert_eq!(live.len(), 1);
    }

    #[test]
    fn what_is_copied_is_the_smaller_one() {
        let one = |old, new| {
            ReallocatedBlock { weight: 1, serial: Serial(0), stack: StackId(0), old, new: Bytes(new), chain: 1 }
                .counted()
        };
        let grown = one(Some(Bytes(10)), 30);
        assert_eq!((grown.grown, grown.shrunk, grown.bytes_copied_max), (Blocks(1), Blocks(0), Bytes(10)));
        let shrunk = one(Some(Bytes(30)), 10);
        assert_eq!((shrunk.grown, shrunk.shrunk, shrunk.bytes_copied_max), (Blocks(0), Blocks(1), Bytes(10)));
        // If the old size is not known, all of the new block may have been copied.
        assert_eq!(one(None, 10).bytes_copied_max, Bytes(10));
        let mut sum = grown;
        sum.add(&shrunk);
        assert_eq!((sum.reallocations, sum.bytes_copied_max, sum.size_max), (Blocks(2), Bytes(20), Bytes(30)));
    }
}
