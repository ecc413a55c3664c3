//! What is live at a moment, block by block.

use std::cmp::Reverse;
use std::collections::HashMap;

use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{Damage, ImageId, Time};

use crate::amount::Amount;
use crate::error::Error;
use crate::events::expect_events;
use crate::moment::{Moment, Selection, last_images};
use crate::names::Names;
use crate::replay::{Origin, Progress, ReplayedBlock, Span, replay};
use crate::sieve::{Rounds, Sieve, Verdict, each_once};
use crate::stacks::{MergedStacks, NodeId, Stacks};

/// A block that is live at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Where it is.
    pub image: ImageId,
    /// The ordinal of its allocation in the image, from 0.
    pub serial: Serial,
    /// Its requested size.
    pub size: Bytes,
    /// How many blocks of its size it stands for, where blocks were sampled; otherwise 1.
    pub stands_for: Blocks,
    /// By which thread it was allocated, and when. `None`: before the recording begins.
    pub call: Option<(ThreadId, Time)>,
    /// The moment.
    pub at: Time,
    /// Who allocated it.
    pub stack: NodeId,
}

impl LiveBlock {
    /// For how much it counts.
    pub fn amount(&self) -> Amount {
        Amount::of_block(self.size, self.stands_for)
    }
}

/// What is live at a moment, block by block.
#[derive(Debug, Default)]
pub struct LiveBlocks {
    /// The stacks.
    pub stacks: Stacks,
    /// The blocks, the largest first; of equals, the oldest first.
    pub blocks: Vec<LiveBlock>,
    /// Their sum.
    pub whole: Amount,
    /// What the selection leaves out of what its processes hold at the moment.
    pub left_out: Amount,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// What a block is counted under, instead of a stack.
const OUTSIDE: StackId = StackId(0);
const LEFT_OUT: StackId = StackId(1);
const STACKS_FIRST: u32 = 2;

/// The blocks of a selection that are live at its moment; of [`Moment::Total`], at the end. A replay of all events up to
/// then, and for the peak another one to find it. Memory: some 150 bytes for each block that
/// is live at once.
pub fn live_blocks(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<LiveBlocks, Error> {
    let recording = names.recording();
    let (filter, memory_max) = (&selection.filter, selection.memory_max);
    expect_events(recording)?;
    selection.expect_time(recording)?;
    let images = filter.images(recording)?;
    let is_at_peak = selection.moment == Moment::Peak;
    let mut rounds = Rounds::new(progress, filter, is_at_peak);
    let mut sieve = Sieve::new(names, filter, &images, true, memory_max, &mut rounds)?;
    let mut merged = MergedStacks::new(recording);
    let mut found = LiveBlocks::default();

    let mut span = Span { until: selection.moment.time(), wants_blocks: true, ..Span::default() };
    let mut peak = None;
    if is_at_peak {
        let all = |_: Origin| OUTSIDE;
        let replayed =
            rounds.round(|progress| replay(recording, &images, Span::default(), memory_max, all, progress))?;
        span.stop_at = Some(replayed.live.bytes_live_max);
        peak = Some(Time(replayed.live.bytes_live_max_time.0));
        found.damage = replayed.damage;
    }

    let mut numbers: HashMap<NodeId, StackId> = HashMap::new();
    let mut nodes: Vec<NodeId> = Vec::new();
    let group = |origin: Origin| match sieve.verdict(names, &mut merged, &origin) {
        Verdict::Outside => OUTSIDE,
        Verdict::LeftOut => LEFT_OUT,
        Verdict::Selected(node) => *numbers.entry(node).or_insert_with(|| {
            nodes.push(node);
            StackId(STACKS_FIRST + nodes.len() as u32 - 1)
        }),
    };
    let replayed = rounds.round(|progress| replay(recording, &images, span, memory_max, group, progress))?;
    found.damage.extend(replayed.damage);
    found.damage.extend(sieve.damage());

    let last = last_images(recording);
    for image in replayed.images {
        let is_live = if span.until.is_some() || is_at_peak { !image.ended } else { last.contains(&image.image) };
        if !is_live {
            continue;
        }
        let end = recording.image_end(image.image).map(|end| end.time).or(recording.footer().map(|footer| footer.time));
        let at = span.until.or(peak).or(end).unwrap_or_default();
        for ReplayedBlock { serial, size, stands_for, group, call, .. } in image.blocks {
            let one = Amount::of_block(size, stands_for);
            match group {
                OUTSIDE => {}
                LEFT_OUT => found.left_out += one,
                StackId(number) => {
                    found.whole += one;
                    let stack = nodes[(number - STACKS_FIRST) as usize];
                    found.blocks.push(LiveBlock { image: image.image, serial, size, stands_for, call, at, stack });
                }
            }
        }
    }
    found.blocks.sort_unstable_by_key(|block| (Reverse(block.size), block.image, block.serial));
    found.damage.append(&mut merged.damage);
    found.damage = each_once(found.damage);
    found.stacks = merged.stacks;
    Ok(found)
}
