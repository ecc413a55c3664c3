//! The totals of the session, its processes and images.

use heapledger_core::{Blocks, Bytes};
use heapledger_recording::{Counts, Damage, ExitStatus, ImageEndReason, ImageId, Recording};

use crate::error::Error;
use crate::images::largest;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::replay::results::Replayed;
use crate::replay::span::Span;
use crate::replay::visitor::Origin;
use crate::selection::Selection;

/// The totals of the session, its processes and images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The totals of all processes.
    pub counts: Counts,
    /// The processes, in the order of their first images.
    pub processes: Vec<ProcessOverview>,
    /// True if the totals had to be counted again because the recorder did not finish.
    pub recounted: bool,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// The totals of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessOverview {
    /// Its pid.
    pub pid: u32,
    /// The totals of all its images.
    pub counts: Counts,
    /// Its exit status, if it is known.
    pub exit: Option<ExitStatus>,
    /// True if it was still running when the recording ended.
    pub running: bool,
    /// Its images in order.
    pub images: Vec<ImageOverview>,
}

/// The totals of one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageOverview {
    /// The image.
    pub image: ImageId,
    /// Its totals.
    pub counts: Counts,
}

/// Returns the totals of a recording: as the recorder left them, or counted again if it did not
/// finish.
pub fn overview(recording: &Recording<'_>, progress: Progress<'_>) -> Result<Overview, Error> {
    if let Some(overview) = recorded(recording) {
        return Ok(overview);
    }
    let images: Vec<ImageId> = recording.images().iter().map(|start| start.image).collect();
    let memory_max = Selection::default().memory_max;
    let replay = Replay { recording, images: &images, span: Span::default(), memory_max };
    let replayed = replay.run(|origin: Origin| origin.stack, progress)?;
    Ok(recounted(recording, replayed))
}

/// Returns the totals as the recorder left them; `None` if it did not finish.
pub(crate) fn recorded(recording: &Recording<'_>) -> Option<Overview> {
    let footer = recording.footer()?;
    let mut overview = Overview { counts: footer.counts, ..Overview::default() };
    for process in recording.processes() {
        let image = |&image: &ImageId| Some(ImageOverview { image, counts: *recording.image_counts(image)? });
        let images: Vec<ImageOverview> = process.images.iter().map(image).collect::<Option<_>>()?;
        let first = process.images.first();
        let counts = recording.process_counts().iter().find(|counts| Some(&counts.first_image) == first)?.counts;
        overview.processes.push(describe(recording, process.pid, counts, images));
    }
    Some(overview)
}

/// Returns the totals that a replay of all images found.
pub(crate) fn recounted(recording: &Recording<'_>, replayed: Replayed) -> Overview {
    let mut overview = Overview { recounted: true, damage: replayed.damage, ..Overview::default() };
    for process in recording.processes() {
        let images = replayed.images.iter().filter(|image| process.images.contains(&image.image));
        let images: Vec<ImageOverview> =
            images.map(|image| ImageOverview { image: image.image, counts: image.counts }).collect();
        let counts = process_counts(&images);
        add_calls(&mut overview.counts, &counts);
        add_live(&mut overview.counts, &counts);
        overview.processes.push(describe(recording, process.pid, counts, images));
    }
    // Peaks of processes do not add up, because they are at different times.
    let live = replayed.live;
    overview.counts.bytes_live_max = live.bytes_live_max;
    overview.counts.bytes_live_max_time = heapledger_recording::Time(live.bytes_live_max_time.0);
    overview.counts.blocks_at_bytes_max = live.blocks_at_bytes_max;
    overview.counts.blocks_live_max = live.blocks_live_max;
    if let (Some(sum), Some(errors)) = (&mut overview.counts.errors, replayed.errors) {
        sum.live_at_peak = errors.live_at_peak;
    }
    overview
}

fn describe(recording: &Recording<'_>, pid: u32, counts: Counts, images: Vec<ImageOverview>) -> ProcessOverview {
    let end = images.last().and_then(|last| recording.image_end(last.image));
    ProcessOverview {
        pid,
        counts,
        exit: end.and_then(|end| end.exit),
        running: end.is_some_and(|end| end.reason == ImageEndReason::Detached),
        images,
    }
}

/// Returns the totals of a process. Its images follow each other, so what is live at its end is
/// what the last one has.
fn process_counts(images: &[ImageOverview]) -> Counts {
    let mut counts = Counts::default();
    for image in images {
        add_calls(&mut counts, &image.counts);
        counts.blocks_live_max = counts.blocks_live_max.max(image.counts.blocks_live_max);
    }
    if let Some(last) = images.last() {
        add_live(&mut counts, &last.counts);
    }
    let peak = largest(images.iter().map(|image| (image.image, image.counts.bytes_live_max)));
    if let Some(peak) = images.iter().find(|image| Some(image.image) == peak) {
        counts.bytes_live_max = peak.counts.bytes_live_max;
        counts.bytes_live_max_time = peak.counts.bytes_live_max_time;
        counts.blocks_at_bytes_max = peak.counts.blocks_at_bytes_max;
        if let (Some(sum), Some(errors)) = (&mut counts.errors, peak.counts.errors) {
            sum.live_at_peak = errors.live_at_peak;
        }
    }
    counts
}

/// Adds the totals that are sums over calls.
pub(crate) fn add_calls(sum: &mut Counts, counts: &Counts) {
    let blocks = |sum: &mut Blocks, more: Blocks| sum.0 = sum.0.saturating_add(more.0);
    blocks(&mut sum.allocations, counts.allocations);
    blocks(&mut sum.reallocations, counts.reallocations);
    blocks(&mut sum.frees, counts.frees);
    blocks(&mut sum.failed, counts.failed);
    sum.bytes_allocated.0 = sum.bytes_allocated.0.saturating_add(counts.bytes_allocated.0);
    blocks(&mut sum.temporary_allocations, counts.temporary_allocations);
    blocks(&mut sum.frees_unknown, counts.frees_unknown);
    blocks(&mut sum.frees_inherited, counts.frees_inherited);
    for (sum, more) in [
        (&mut sum.events_lost, counts.events_lost),
        (&mut sum.events_lost_full, counts.events_lost_full),
        (&mut sum.events_lost_nested, counts.events_lost_nested),
        (&mut sum.events_lost_no_ring, counts.events_lost_no_ring),
        (&mut sum.events_lost_unreadable, counts.events_lost_unreadable),
        (&mut sum.events_lost_pools, counts.events_lost_pools),
        (&mut sum.stamps_unknown, counts.stamps_unknown),
        (&mut sum.events_late, counts.events_late),
        (&mut sum.events_reordered, counts.events_reordered),
    ] {
        *sum = sum.saturating_add(more);
    }
    blocks(&mut sum.frees_paused, counts.frees_paused);
    blocks(&mut sum.frees_missed, counts.frees_missed);
    sum.threads = sum.threads.saturating_add(counts.threads);
    sum.stacks.add(&counts.stacks);
    if let Some(errors) = counts.errors {
        let sum = sum.errors.get_or_insert_default();
        sum.allocated = sum.allocated.with_error(errors.allocated);
    }
}

/// Adds the totals that are live at the end.
pub(crate) fn add_live(sum: &mut Counts, counts: &Counts) {
    let blocks = |sum: &mut Blocks, more: Blocks| sum.0 = sum.0.saturating_add(more.0);
    let bytes = |sum: &mut Bytes, more: Bytes| sum.0 = sum.0.saturating_add(more.0);
    if let Some(errors) = counts.errors {
        let sum = sum.errors.get_or_insert_default();
        sum.live_end = sum.live_end.with_error(errors.live_end);
    }
    bytes(&mut sum.bytes_live_end, counts.bytes_live_end);
    blocks(&mut sum.blocks_live_end, counts.blocks_live_end);
    bytes(&mut sum.bytes_inherited_live_end, counts.bytes_inherited_live_end);
    blocks(&mut sum.blocks_inherited_live_end, counts.blocks_inherited_live_end);
}
