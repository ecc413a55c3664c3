//! Live memory over time, beside the system's figures for the same processes.

use std::collections::{BTreeMap, HashMap};

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_recording::{
    Damage, ExitStatus, ImageEndReason, ImageId, ImageOrigin, ImageStart, Live, MemorySample, Pause, Recording, Sample,
    Time, Timeline,
};

use crate::block_filter::{BlockFilter, SharedProgress, Verdict, each_once};
use crate::error::Error;
use crate::events::expect_events;
use crate::names::Names;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::replay::span::Span;
use crate::replay::visitor::{BlockEnd, BlockVisitor, EndReason, Origin};
use crate::selection::Selection;
use crate::slop::{SlopRules, SlopSource};
use crate::stacks::MergedStacks;

/// Live memory over time, and what else happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The time when the recording begins.
    pub begins: Time,
    /// The time when it ends.
    pub ends: Time,
    /// The largest of [`live`](Self::live), the first of equals: the peak.
    pub peak: Sample,
    /// Live memory of the selected processes, in time order: for each interval, the moment with the
    /// most bytes. Between two samples of neighbouring intervals, no more was live than in the
    /// larger one. An interval without a sample is one in which nothing happened.
    pub live: Vec<Sample>,
    /// The slop of the selected blocks, in place of their bytes, in time order: for each interval,
    /// the moment with the most. Empty unless the selection [asks for
    /// it](Selection::counts_slop).
    pub slop: Vec<Sample>,
    /// The system's figures, summed over the selected processes, each time that one of them was
    /// measured, in time order. Memory that they share counts for each of them. Empty if no
    /// measurements were made, or if not all blocks of the processes are selected: the system does
    /// not tell blocks apart.
    pub memory: Vec<MemorySample>,
    /// Changes of the processes, in time order.
    pub process_changes: Vec<ProcessChange>,
    /// The pauses of the recording.
    pub pauses: Vec<Pause>,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// A change of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessChange {
    /// The time of the change.
    pub time: Time,
    /// The image of the process.
    pub image: ImageId,
    /// The kind of change.
    pub what: ProcessChangeKind,
}

/// The kinds of changes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessChangeKind {
    /// The process began, or was there already when the recording began.
    Began,
    /// The process runs another program from now on.
    Exec,
    /// The process ended, with its exit status if that is known.
    Ended(Option<ExitStatus>),
}

impl History {
    /// Loads the history of the selected blocks. Takes no time if these are all blocks of their
    /// processes, the recorder finished, and slop is not asked for; otherwise it is a replay.
    pub fn load(names: &mut Names<'_, '_>, selection: &Selection, progress: Progress<'_>) -> Result<History, Error> {
        let recording = names.recording();
        let images = selection.filter.images(recording)?;
        let is_of_all = selection.filter.is_of_all_blocks();
        let mut history = History { pauses: recording.pauses().to_vec(), ..History::default() };
        history.begins = recording.session().map_or(Time(0), |session| session.begins);
        let recorded = if is_of_all { recorded(recording, selection, &images) } else { None };
        let mut replayed = None;
        if selection.counts_slop || !is_of_all {
            let (live, slop) = selected(names, selection, &images, &mut history, progress)?;
            (replayed, history.slop) = (Some(live), slop);
        }
        history.live = match recorded.or(replayed) {
            Some(live) => live,
            None => {
                let memory_max = selection.memory_max;
                let replay = Replay { recording, images: &images, span: Span::default(), memory_max };
                let replayed = replay.run(|it: Origin| it.stack, progress)?;
                history.damage.extend(replayed.damage);
                replayed.timeline
            }
        };
        if is_of_all {
            history.memory = memory(recording, &images, &mut history.damage);
        }
        history.process_changes = process_changes(recording, &images);
        let last = [
            recording.footer().map(|footer| footer.time),
            history.live.last().map(|sample| sample.time),
            history.memory.last().map(|sample| sample.time),
            history.process_changes.last().map(|change| change.time),
        ];
        history.ends = last.into_iter().flatten().max().unwrap_or_default().max(history.begins);
        for sample in &history.live {
            if sample.live.bytes > history.peak.live.bytes {
                history.peak = *sample;
            }
        }
        Ok(history)
    }
}

/// Returns live memory of the selected blocks over time, and their slop if that is asked for, by a
/// replay.
fn selected(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    images: &[ImageId],
    history: &mut History,
    progress: Progress<'_>,
) -> Result<(Vec<Sample>, Vec<Sample>), Error> {
    let recording = names.recording();
    expect_events(recording)?;
    let slop = match selection.counts_slop {
        true => {
            SlopSource::of(recording, images)?;
            Some(Slop::new(SlopRules::of(recording)))
        }
        false => None,
    };
    let (filter, memory_max) = (&selection.filter, selection.memory_max);
    let mut shared_progress = SharedProgress::new(progress, filter, false);
    let block_filter = BlockFilter::new(names, selection, images, false, &mut shared_progress)?;
    let (merged, timeline) = (MergedStacks::new(recording), Timeline::new());
    let mut visitor =
        LiveVisitor { names, merged, block_filter, timeline, live: Live::default(), slop, begins: history.begins };
    let replay = Replay { recording, images, span: Span::default(), memory_max };
    let replayed = shared_progress.pass(|progress| replay.run(&mut visitor, progress))?;
    history.damage.extend(replayed.damage);
    history.damage.append(&mut visitor.merged.damage);
    history.damage.extend(visitor.block_filter.damage());
    history.damage = each_once(std::mem::take(&mut history.damage));
    let slop = visitor.slop.map(|slop| slop.timeline.finish());
    Ok((visitor.timeline.finish(), slop.unwrap_or_default()))
}

/// The visitor that follows live memory of the selected blocks.
struct LiveVisitor<'n, 'r, 'a, 'f> {
    names: &'n mut Names<'r, 'a>,
    merged: MergedStacks<'r, 'a>,
    block_filter: BlockFilter<'f>,
    timeline: Timeline,
    live: Live,
    slop: Option<Slop>,
    begins: Time,
}

/// The groups that the replay counts blocks in: from the second on, one for each slop that selected
/// blocks have.
const NOT_SELECTED: StackId = StackId(0);
const SELECTED: StackId = StackId(1);
/// The most different slops that are told apart; blocks with others count as if they had none.
const SLOPS_MAX: usize = 1 << 20;

/// The slop of the selected blocks.
struct Slop {
    rules: SlopRules,
    timeline: Timeline,
    live: Live,
    /// The slop of each group, from `SELECTED` on, which has none.
    slops: Vec<Bytes>,
    groups: HashMap<Bytes, StackId>,
}

impl Slop {
    fn new(rules: SlopRules) -> Slop {
        let groups = HashMap::from([(Bytes(0), SELECTED)]);
        Slop { rules, timeline: Timeline::new(), live: Live::default(), slops: vec![Bytes(0)], groups }
    }

    /// Adds a block, and returns its group.
    fn add(&mut self, origin: &Origin, time: Time) -> StackId {
        let slop = self.rules.slop(origin);
        let group = match self.groups.get(&slop) {
            Some(group) => *group,
            None if self.slops.len() >= SLOPS_MAX => SELECTED,
            None => {
                let group = StackId(SELECTED.0 + self.slops.len() as u32);
                self.slops.push(slop);
                self.groups.insert(slop, group);
                group
            }
        };
        let bytes = self.of_group(group, origin.amount().blocks);
        self.live.bytes.0 = self.live.bytes.0.saturating_add(bytes);
        self.add_sample(time);
        group
    }

    /// Takes a block out.
    fn remove(&mut self, block_end: &BlockEnd) {
        let bytes = self.of_group(block_end.group, block_end.amount.blocks);
        self.live.bytes.0 = self.live.bytes.0.saturating_sub(bytes);
        self.add_sample(block_end.at);
    }

    fn of_group(&self, group: StackId, blocks: Blocks) -> u64 {
        let slop = self.slops.get((group.0 - SELECTED.0) as usize).map_or(0, |slop| slop.0);
        slop.saturating_mul(blocks.0)
    }

    fn add_sample(&mut self, time: Time) {
        self.timeline.add(time.max(self.timeline.last_time()), self.live);
    }
}

impl LiveVisitor<'_, '_, '_, '_> {
    fn add_sample(&mut self, time: Time) {
        self.timeline.add(time.max(self.timeline.last_time()), self.live);
    }
}

impl BlockVisitor for &mut LiveVisitor<'_, '_, '_, '_> {
    fn wants_frees(&self) -> bool {
        true
    }

    fn on_alloc(&mut self, origin: Origin) -> StackId {
        if !matches!(self.block_filter.verdict(self.names, &mut self.merged, &origin), Verdict::Selected(_)) {
            return NOT_SELECTED;
        }
        let amount = origin.amount();
        self.live.bytes.0 = self.live.bytes.0.saturating_add(amount.bytes.0);
        self.live.blocks.0 = self.live.blocks.0.saturating_add(amount.blocks.0);
        let time = origin.call.map_or(self.begins, |(_, time)| time);
        self.add_sample(time);
        self.slop.as_mut().map_or(SELECTED, |slop| slop.add(&origin, time))
    }

    fn on_free(&mut self, block_end: BlockEnd) {
        if block_end.group == NOT_SELECTED || block_end.reason == EndReason::ReplayEnded {
            return;
        }
        if let Some(slop) = &mut self.slop {
            slop.remove(&block_end);
        }
        self.live.bytes.0 = self.live.bytes.0.saturating_sub(block_end.amount.bytes.0);
        self.live.blocks.0 = self.live.blocks.0.saturating_sub(block_end.amount.blocks.0);
        self.add_sample(block_end.at);
    }
}

/// Returns the timeline that the recorder left; `None` if it did not finish, or if the timeline is
/// damaged.
fn recorded(recording: &Recording<'_>, selection: &Selection, images: &[ImageId]) -> Option<Vec<Sample>> {
    recording.footer()?;
    let sound = |rows: heapledger_recording::Rows<Sample>| rows.damage.is_empty().then_some(rows.rows);
    if selection.filter.processes.is_empty() {
        return sound(recording.timeline()).filter(|live| !live.is_empty());
    }
    let mut steps = Vec::new();
    for &image in images {
        let rows = sound(recording.image_timeline(image))?;
        if rows.is_empty() && recording.event_chunks(image).next().is_some() {
            return None;
        }
        let end = recording.image_end(image).map(|end| end.time);
        steps.extend(rows.iter().map(|sample| (sample.time, image, [sample.live.bytes.0, sample.live.blocks.0])));
        steps.extend(end.map(|end| (end, image, [0; 2])));
    }
    let live = |(time, [bytes, blocks]): (Time, [u64; 2])| Sample {
        time,
        live: Live { bytes: Bytes(bytes), blocks: Blocks(blocks) },
    };
    Some(summed(steps).into_iter().map(live).collect())
}

/// Returns the sample with the most resident memory, over all processes. Memory that they share
/// counts for each of them. `None` if no measurements were made.
pub fn resident_max(recording: &Recording<'_>, damage: &mut Vec<Damage>) -> Option<MemorySample> {
    let images: Vec<ImageId> = recording.images().iter().map(|start| start.image).collect();
    memory(recording, &images, damage).into_iter().max_by_key(|sample| sample.resident)
}

/// Returns the system's figures for memory, summed over these images.
fn memory(recording: &Recording<'_>, images: &[ImageId], damage: &mut Vec<Damage>) -> Vec<MemorySample> {
    let mut steps = Vec::new();
    for &image in images {
        let samples = recording.memory(image);
        damage.extend(samples.damage);
        let end = recording.image_end(image).map(|end| end.time).filter(|_| !samples.rows.is_empty());
        steps.extend(samples.rows.iter().map(|sample| {
            let MemorySample { time, resident, resident_anonymous, resident_file, heap, mappings, swapped } = *sample;
            let row = [resident, resident_anonymous, resident_file, heap, mappings, swapped].map(|bytes| bytes.0);
            (end.map_or(time, |end| time.min(end)), image, row)
        }));
        steps.extend(end.map(|end| (end, image, [0; 6])));
    }
    let sample = |(time, row): (Time, [u64; 6])| {
        let [resident, resident_anonymous, resident_file, heap, mappings, swapped] = row.map(Bytes);
        MemorySample { time, resident, resident_anonymous, resident_file, heap, mappings, swapped }
    };
    summed(steps).into_iter().map(sample).collect()
}

/// Returns the sums over all images each time that one of them changes. Steps at the same time
/// count in the order given.
fn summed<const N: usize>(mut steps: Vec<(Time, ImageId, [u64; N])>) -> Vec<(Time, [u64; N])> {
    steps.sort_by_key(|(time, ..)| *time);
    let mut held: BTreeMap<ImageId, [u64; N]> = BTreeMap::new();
    let mut sum = [0_u64; N];
    let mut sums: Vec<(Time, [u64; N])> = Vec::with_capacity(steps.len());
    for (time, image, row) in steps {
        let before = std::mem::replace(held.entry(image).or_insert([0; N]), row);
        for ((sum, before), now) in sum.iter_mut().zip(before).zip(row) {
            *sum = sum.wrapping_sub(before).wrapping_add(now);
        }
        sums.push((time, sum));
    }
    sums
}

fn process_changes(recording: &Recording<'_>, images: &[ImageId]) -> Vec<ProcessChange> {
    let mut process_changes = Vec::new();
    for start in images.iter().filter_map(|&image| recording.image(image)) {
        let &ImageStart { image, time, how, .. } = start;
        let what = if how == ImageOrigin::Exec { ProcessChangeKind::Exec } else { ProcessChangeKind::Began };
        process_changes.push(ProcessChange { time, image, what });
        let end = recording.image_end(image).filter(|end| end.reason == ImageEndReason::Exit);
        process_changes.extend(end.map(|end| ProcessChange {
            time: end.time,
            image,
            what: ProcessChangeKind::Ended(end.exit),
        }));
    }
    process_changes.sort_by_key(|change| change.time);
    process_changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_steps() {
        let step = |time, image, value| (Time(time), ImageId(image), [value]);
        let steps = vec![step(1, 0, 5), step(3, 0, 7), step(9, 0, 0), step(2, 1, 10), step(9, 1, 20), step(9, 1, 0)];
        let sums: Vec<(u64, u64)> = summed(steps).iter().map(|(time, [sum])| (time.0, *sum)).collect();
        assert_eq!(sums, [(1, 5), (2, 15), (3, 17), (9, 10), (9, 20), (9, 0)]);
    }
}
