//! Live memory over time, beside the system's figures for the same processes.

use std::collections::BTreeMap;

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_recording::{
    Damage, ExitStatus, ImageEndReason, ImageId, ImageOrigin, ImageStart, Live, MemorySample, Pause, Recording, Sample,
    Time, Timeline,
};

use crate::error::Error;
use crate::events::expect_events;
use crate::moment::Selection;
use crate::names::Names;
use crate::replay::{Follower, Gone, Origin, Progress, Span, Why, replay};
use crate::sieve::{Rounds, Sieve, Verdict, each_once};
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
    /// The system's figures, summed over the selected processes, each time that one of them was
    /// measured, in time order. Memory that they share counts for each of them. Empty if no
    /// measurements were made, or if not all blocks of the processes are selected: the system does
    /// not tell blocks apart.
    pub memory: Vec<MemorySample>,
    /// Changes of the processes, in time order.
    pub marks: Vec<Mark>,
    /// The pauses of the recording.
    pub pauses: Vec<Pause>,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// A change of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The time of the change.
    pub time: Time,
    /// The image of the process.
    pub image: ImageId,
    /// The kind of change.
    pub what: Change,
}

/// The kinds of changes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The process began, or was there already when the recording began.
    Began,
    /// The process runs another program from now on.
    Exec,
    /// The process ended, with its exit status if that is known.
    Ended(Option<ExitStatus>),
}

impl History {
    /// Loads the history of the selected blocks. Takes no time if these are all blocks of their
    /// processes and the recorder finished; otherwise it is a replay.
    pub fn load(names: &mut Names<'_, '_>, selection: &Selection, progress: Progress<'_>) -> Result<History, Error> {
        let recording = names.recording();
        let images = selection.filter.images(recording)?;
        let is_of_all = selection.filter.is_of_all_blocks();
        let mut history = History { pauses: recording.pauses().to_vec(), ..History::default() };
        history.begins = recording.session().map_or(Time(0), |session| session.begins);
        let recorded = if is_of_all { recorded(recording, selection, &images) } else { None };
        history.live = match recorded {
            Some(live) => live,
            None if !is_of_all => selected(names, selection, &images, &mut history, progress)?,
            None => {
                let replayed =
                    replay(recording, &images, Span::default(), selection.memory_max, |it: Origin| it.stack, progress)?;
                history.damage.extend(replayed.damage);
                replayed.timeline
            }
        };
        if is_of_all {
            history.memory = memory(recording, &images, &mut history.damage);
        }
        history.marks = marks(recording, &images);
        let last = [
            recording.footer().map(|footer| footer.time),
            history.live.last().map(|sample| sample.time),
            history.memory.last().map(|sample| sample.time),
            history.marks.last().map(|mark| mark.time),
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

/// Returns live memory of the selected blocks over time, by a replay.
fn selected(
    names: &mut Names<'_, '_>,
    selection: &Selection,
    images: &[ImageId],
    history: &mut History,
    progress: Progress<'_>,
) -> Result<Vec<Sample>, Error> {
    let recording = names.recording();
    expect_events(recording)?;
    let (filter, memory_max) = (&selection.filter, selection.memory_max);
    let mut rounds = Rounds::new(progress, filter, false);
    let sieve = Sieve::new(names, filter, images, false, memory_max, &mut rounds)?;
    let (merged, timeline) = (MergedStacks::new(recording), Timeline::new());
    let mut course = Course { names, merged, sieve, timeline, live: Live::default(), begins: history.begins };
    let replayed =
        rounds.round(|progress| replay(recording, images, Span::default(), memory_max, &mut course, progress))?;
    history.damage.extend(replayed.damage);
    history.damage.append(&mut course.merged.damage);
    history.damage.extend(course.sieve.damage());
    history.damage = each_once(std::mem::take(&mut history.damage));
    Ok(course.timeline.finish())
}

/// The visitor that follows live memory of the selected blocks.
struct Course<'n, 'r, 'a, 'f> {
    names: &'n mut Names<'r, 'a>,
    merged: MergedStacks<'r, 'a>,
    sieve: Sieve<'f>,
    timeline: Timeline,
    live: Live,
    begins: Time,
}

/// The two groups that the replay counts blocks in.
const NOT_SELECTED: StackId = StackId(0);
const SELECTED: StackId = StackId(1);

impl Course<'_, '_, '_, '_> {
    fn note(&mut self, time: Time) {
        self.timeline.add(time.max(self.timeline.last_time()), self.live);
    }
}

impl Follower for &mut Course<'_, '_, '_, '_> {
    const WANTS_GONE: bool = true;

    fn enters(&mut self, origin: Origin) -> StackId {
        if !matches!(self.sieve.verdict(self.names, &mut self.merged, &origin), Verdict::Selected(_)) {
            return NOT_SELECTED;
        }
        let amount = origin.amount();
        self.live.bytes.0 = self.live.bytes.0.saturating_add(amount.bytes.0);
        self.live.blocks.0 = self.live.blocks.0.saturating_add(amount.blocks.0);
        self.note(origin.call.map_or(self.begins, |(_, time)| time));
        SELECTED
    }

    fn goes(&mut self, gone: Gone) {
        if gone.group != SELECTED || gone.why == Why::ReplayOver {
            return;
        }
        self.live.bytes.0 = self.live.bytes.0.saturating_sub(gone.amount.bytes.0);
        self.live.blocks.0 = self.live.blocks.0.saturating_sub(gone.amount.blocks.0);
        self.note(gone.at);
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

fn marks(recording: &Recording<'_>, images: &[ImageId]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for start in images.iter().filter_map(|&image| recording.image(image)) {
        let &ImageStart { image, time, how, .. } = start;
        let what = if how == ImageOrigin::Exec { Change::Exec } else { Change::Began };
        marks.push(Mark { time, image, what });
        let end = recording.image_end(image).filter(|end| end.reason == ImageEndReason::Exit);
        marks.extend(end.map(|end| Mark { time: end.time, image, what: Change::Ended(end.exit) }));
    }
    marks.sort_by_key(|mark| mark.time);
    marks
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
