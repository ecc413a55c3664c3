//! Live memory over time, for formats that have a place for it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use heapledger_analysis::{self as analysis, Filter, HeapEventKind, Heaps, History, Moment, NodeId, Selection};
use heapledger_profile_formats::{Amount, Point, Snapshot, massif};
use heapledger_recording::Time;

use super::gather::Gatherer;
use crate::error::Result;
use crate::input::Input;
use crate::progress::Progress;
use crate::question::Question;

/// Returns what was live over time until a moment, in one process or in all; empty if not all
/// blocks of the processes are selected.
pub(super) fn timeline(question: &mut Question<'_, '_>, moment: Moment, pid: Option<u32>) -> Result<Vec<Point>> {
    if !question.selection.filter.is_of_all_blocks() {
        return Ok(Vec::new());
    }
    let until = moment.time().unwrap_or(Time(u64::MAX));
    let mut selection = question.selection.with_moment(moment);
    selection.filter = pid.map_or(selection.filter, Filter::process);
    let history = question.answer(|names, _, progress| History::load(names, &selection, progress))?;
    question.input.warn_of(&history.damage);
    let points = history.live.iter().filter(|sample| sample.time <= until).map(|sample| Point {
        time_ns: sample.time.0,
        live: Amount { blocks: sample.live.blocks.0, bytes: sample.live.bytes.0 },
    });
    Ok(points.collect())
}

/// Returns what each stack held at further moments: the time is divided into `PARTS`, and the
/// moment when the most was live is taken from each, except for the peak. Needs a replay; empty if
/// the recording has no events.
pub(super) fn snapshots(
    gatherer: &mut Gatherer<'_, '_, '_>,
    input: &Input,
    selection: &Selection,
    timeline: &[Point],
    peak_ns: u64,
) -> Result<Vec<Snapshot>> {
    const PARTS: usize = 8;
    let mut times: Vec<u64> = massif::highest(timeline, PARTS).into_iter().map(|point| point.time_ns).collect();
    times.retain(|&time| time != peak_ns);
    let Some(&last) = times.last() else { return Ok(Vec::new()) };
    let (mut samples, mut live): (HashMap<NodeId, usize>, Vec<Amount>) = (HashMap::new(), Vec::new());
    let (mut times, mut taken) = (times.into_iter().peekable(), Vec::new());
    let mut progress = Progress::new();
    let outcome = analysis::heap_events(
        gatherer,
        &selection.with_moment(Moment::At(Time(last))),
        Heaps::One,
        &mut |done, all| progress.events(done, all),
        |gatherer, stacks, event| {
            while let Some(time_ns) = times.next_if(|&time| time < event.time.0) {
                taken.push(Snapshot { time_ns, live: live.clone() });
            }
            let at = *samples.entry(event.stack).or_insert_with(|| gatherer.sample(stacks, event.stack));
            live.resize(live.len().max(at + 1), Amount::default());
            let (live, bytes, blocks) = (&mut live[at], event.size.0, event.weight.0);
            (live.blocks, live.bytes) = match event.what {
                HeapEventKind::Allocated => (live.blocks.saturating_add(blocks), live.bytes.saturating_add(bytes)),
                HeapEventKind::Freed | HeapEventKind::ImageEnded => {
                    (live.blocks.saturating_sub(blocks), live.bytes.saturating_sub(bytes))
                }
            };
            ControlFlow::Continue(())
        },
    );
    drop(progress);
    match outcome {
        // Damage is reported elsewhere, once.
        Ok(_) => taken.extend(times.map(|time_ns| Snapshot { time_ns, live: live.clone() })),
        Err(analysis::Error::NoEvents) => {}
        Err(error) => return Err(input.unanswered(error)),
    }
    Ok(taken)
}
