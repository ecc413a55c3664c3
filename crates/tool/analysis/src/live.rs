//! Live memory at a moment, block by block.

use std::cmp::Reverse;

use heapledger_core::{Blocks, Bytes, Serial, ThreadId};
use heapledger_recording::{Damage, ImageId, Recording, Time};

use crate::allocation_calls::allocation_calls;
use crate::amount::Amount;
use crate::block_filter::{BlockFilter, SharedProgress, Verdict, each_once};
use crate::error::Error;
use crate::events::expect_events;
use crate::images::last_images;
use crate::moment::Moment;
use crate::names::Names;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::replay::results::{Replayed, ReplayedBlock};
use crate::replay::span::Span;
use crate::replay::visitor::Origin;
use crate::selection::Selection;
use crate::slop::{SlopRules, SlopSource};
use crate::stacks::{MergedStacks, NodeId, Stacks};

/// A block that is live at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// The process image that holds it.
    pub image: ImageId,
    /// The ordinal of its allocation in the image, from 0.
    pub serial: Serial,
    /// Its requested size.
    pub size: Bytes,
    /// The weight: the number of blocks that it counts for, 1 if it was not sampled.
    pub weight: Blocks,
    /// The thread that allocated it and the time; `None` if that was before the recording begins.
    pub call: Option<(ThreadId, Time)>,
    /// The moment at which it is live.
    pub at: Time,
    /// The stack that allocated it.
    pub stack: NodeId,
    /// Its usable size, recorded or computed; `None` if it is not known.
    pub usable: Option<Bytes>,
}

impl LiveBlock {
    /// Returns the amount that it counts for.
    pub fn amount(&self) -> Amount {
        Amount::of_block(self.size, self.weight)
    }
}

/// The blocks that are live at a moment.
#[derive(Debug, Default)]
pub struct LiveBlocks {
    /// The stacks of the blocks.
    pub stacks: Stacks,
    /// The blocks, the largest first; among equals, the oldest first.
    pub blocks: Vec<LiveBlock>,
    /// The sum of the blocks.
    pub whole: Amount,
    /// The source of their usable sizes; `None` if they are not known.
    pub slop_source: Option<SlopSource>,
    /// The blocks that the processes hold at the moment and the selection leaves out.
    pub left_out: Amount,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// Returns the blocks of a selection that are live at its moment; for [`Moment::Total`], at the
/// end. Replays from the last checkpoints before that moment, and reads the events that allocated
/// these blocks. For the peak of several images, which the recording does not contain, replays
/// twice from the beginning. Memory: some 100 bytes for each block that is live at once.
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
    let mut shared_progress = SharedProgress::new(progress, filter, selection.moment == Moment::Peak);
    let mut block_filter = BlockFilter::new(names, selection, &images, true, &mut shared_progress)?;
    let slop_source = SlopSource::of(recording, &images).ok();
    // Also if they are computed: those of a pool's blocks are not.
    let wants_usable_sizes = slop_source.is_some();
    let rules = SlopRules::of(recording);
    let (blocks, damage) = (Vec::new(), Vec::new());
    let mut held = BlocksAtMoment { recording, images: &images, memory_max, wants_usable_sizes, blocks, damage };
    match selection.moment {
        Moment::At(time) => held.at(time, &mut shared_progress)?,
        Moment::End | Moment::Total => held.at_end(&mut shared_progress)?,
        Moment::Peak => held.at_peak(&mut shared_progress)?,
    }

    let mut merged = MergedStacks::new(recording);
    let mut found = LiveBlocks { slop_source, damage: held.damage, ..LiveBlocks::default() };
    for (image, at, mut blocks) in held.blocks {
        blocks.sort_unstable_by_key(|block| block.serial);
        let serials: Vec<Serial> = blocks.iter().map(|block| block.serial).collect();
        let calls = allocation_calls(recording, image, &serials, &mut found.damage)?;
        for (block, call) in blocks.into_iter().zip(calls) {
            let ReplayedBlock { serial, size, rate, weight, usable, group: stack } = block;
            let origin = Origin { image, serial, call, size, rate, stack, usable };
            match block_filter.verdict(names, &mut merged, &origin) {
                Verdict::Outside => {}
                Verdict::LeftOut => found.left_out += origin.amount(),
                Verdict::Selected(stack) => {
                    found.whole += origin.amount();
                    let usable = rules.usable(image, size, usable);
                    found.blocks.push(LiveBlock { image, serial, size, weight, call, at, stack, usable });
                }
            }
        }
    }
    found.damage.extend(block_filter.damage());
    found.blocks.sort_unstable_by_key(|block| (Reverse(block.size), block.image, block.serial));
    found.damage.append(&mut merged.damage);
    found.damage = each_once(found.damage);
    found.stacks = merged.stacks;
    Ok(found)
}

/// The blocks that images hold at a moment, with the stacks of their images.
struct BlocksAtMoment<'i, 'r> {
    recording: &'r Recording<'r>,
    images: &'i [ImageId],
    memory_max: Bytes,
    /// True if usable sizes are recorded or computed.
    wants_usable_sizes: bool,
    /// The images, each with its moment and its blocks.
    blocks: Vec<(ImageId, Time, Vec<ReplayedBlock>)>,
    damage: Vec<Damage>,
}

impl BlocksAtMoment<'_, '_> {
    fn at(&mut self, time: Time, shared_progress: &mut SharedProgress<'_>) -> Result<(), Error> {
        let span = Span { from: Some(time), until: Some(time), wants_blocks: true, ..Span::default() };
        let replayed = shared_progress.pass(|progress| self.replay(self.images, span, progress))?;
        self.take(replayed, time);
        Ok(())
    }

    /// Each process has its own end, so each last image is replayed alone.
    fn at_end(&mut self, shared_progress: &mut SharedProgress<'_>) -> Result<(), Error> {
        let last = last_images(self.recording);
        let images: Vec<ImageId> = self.images.iter().copied().filter(|image| last.contains(image)).collect();
        let of = images.len() as u64;
        shared_progress.pass(|progress| {
            for (image, done) in images.into_iter().zip(0..) {
                let end = self.recording.image_end(image).map(|end| end.time);
                let from = Some(end.unwrap_or(Time(u64::MAX)));
                let span = Span { from, wants_blocks: true, ..Span::default() };
                let mut progress = |events, all| progress(all * done + events, all * of);
                let replayed = self.replay(&[image], span, &mut progress)?;
                self.damage.extend(replayed.damage);
                let end = end.or(self.recording.footer().map(|footer| footer.time)).unwrap_or_default();
                self.blocks.extend(replayed.images.into_iter().map(|image| (image.image, end, image.blocks)));
            }
            Ok(())
        })
    }

    fn at_peak(&mut self, shared_progress: &mut SharedProgress<'_>) -> Result<(), Error> {
        if let &[image] = self.images
            && let Some(counts) = self.recording.image_counts(image).filter(|counts| counts.bytes_live_max.0 > 0)
        {
            // Times of events are rounded: a checkpoint of the same tick may lie after the peak.
            let tick = self.recording.event_chunks(image).map(|chunk| chunk.head().tick_ns).max().unwrap_or(0);
            let from = Time(counts.bytes_live_max_time.0.saturating_sub(tick.into()));
            let (from, stop_at) = (Some(from), Some(counts.bytes_live_max));
            let span = Span { from, stop_at, wants_blocks: true, ..Span::default() };
            let replayed = shared_progress.pass(|progress| self.replay(self.images, span, progress))?;
            // If parts of the recording are missing, the peak may be missing too.
            if replayed.live.bytes_live_max >= counts.bytes_live_max {
                let peak = Time(replayed.live.bytes_live_max_time.0);
                self.take(replayed, peak);
                return Ok(());
            }
        }
        let first = shared_progress.pass(|progress| self.replay(self.images, Span::default(), progress))?;
        let span = Span { stop_at: Some(first.live.bytes_live_max), wants_blocks: true, ..Span::default() };
        let replayed = shared_progress.pass(|progress| self.replay(self.images, span, progress))?;
        self.take(replayed, Time(first.live.bytes_live_max_time.0));
        Ok(())
    }

    fn replay(&self, images: &[ImageId], span: Span, progress: Progress<'_>) -> Result<Replayed, Error> {
        let span = Span { wants_usable_sizes: self.wants_usable_sizes, ..span };
        let replay = Replay { recording: self.recording, images, span, memory_max: self.memory_max };
        replay.run(|origin: Origin| origin.stack, progress)
    }

    /// Adds the blocks of the images that have not ended.
    fn take(&mut self, replayed: Replayed, at: Time) {
        self.damage.extend(replayed.damage);
        let running = replayed.images.into_iter().filter(|image| !image.ended);
        self.blocks.extend(running.map(|image| (image.image, at, image.blocks)));
    }
}

#[cfg(test)]
mod tests {
    use heapledger_symbols::{Symbolizer, SymbolizerOptions};

    use super::*;
    use crate::testing::{steps_around_a_checkpoint, write};

    #[test]
    fn only_what_follows_a_checkpoint_is_replayed() {
        let (finished, _, _) = write(&steps_around_a_checkpoint(500, 4));
        let recording = Recording::open(&finished).unwrap();
        let end = recording.footer().unwrap().time;
        for moment in [Moment::Peak, Moment::End, Moment::At(end)] {
            let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
            let (selection, mut events) = (Selection::at(moment), 0);
            let found = live_blocks(&mut names, &selection, &mut |done, _| events = done).unwrap();
            assert_eq!(found.blocks.len(), 504, "{moment:?}");
            assert!(found.blocks.iter().all(|block| block.call.is_some()), "{moment:?}");
            assert!(events <= 20, "{moment:?}: {events}");
        }
    }
}
