//! Merges recordings of which at least one has no events: the totals of each, side by side.
//!
//! Without events it is not known how much one session had live when another had its peak. Sessions
//! that ran at different times have an exact common peak: the highest of theirs. For sessions that
//! ran at once, the sum of their peaks is an upper bound, and the highest peak is a lower bound;
//! the footer keeps both.

use std::collections::HashMap;
use std::io::Write;

use heapledger_core::{Blocks, Bytes};
use heapledger_recording::{
    Counts, Damage, Footer, ImageCounts, ImageId, Live, ProcessCounts, Record, Recording, Sample, Site, SitesEncoder,
    Time, TimelineEncoder,
};

use super::source::Source;
use super::{Draft, Error};
use crate::overview::{Overview, add_calls, add_live, recorded, recounted};
use crate::replay::Replay;
use crate::replay::span::Span;
use crate::replay::visitor::Origin;
use crate::selection::Selection;

/// The totals of one session.
pub(super) struct Totals {
    /// Its number among all recordings.
    at: usize,
    overview: Overview,
    /// The sites and the timeline of each image; only if they had to be replayed.
    replayed: HashMap<ImageId, (Vec<Site>, Vec<Sample>)>,
    /// A lower bound of the peak; less than the peak itself if that is a sum.
    peak_least: Live,
}

impl Totals {
    /// Takes the totals that the recorder left, or counts them again if it did not finish.
    ///
    /// Fails if there are neither totals nor events.
    pub(super) fn of(at: usize, recording: &Recording<'_>) -> Result<Totals, Error> {
        let mut rows = HashMap::new();
        let overview = match recorded(recording) {
            Some(overview) => overview,
            None if recording.session().is_some_and(|session| session.totals_only) => {
                return Err(Error::TotalsMissing(at));
            }
            None => {
                let images: Vec<ImageId> = recording.images().iter().map(|start| start.image).collect();
                let memory_max = Selection::default().memory_max;
                let by_stack = |origin: Origin| origin.stack;
                let replay = Replay { recording, images: &images, span: Span::default(), memory_max };
                let mut replayed = replay.run(by_stack, &mut |_, _| ())?;
                for image in &mut replayed.images {
                    rows.insert(image.image, (std::mem::take(&mut image.sites), std::mem::take(&mut image.timeline)));
                }
                recounted(recording, replayed)
            }
        };
        let peak_least = recording.footer().and_then(|footer| footer.peak_least).unwrap_or(peak(&overview.counts));
        Ok(Totals { at, overview, replayed: rows, peak_least })
    }
}

/// Returns the most bytes and the most blocks that were live at once, which may be at different
/// times.
fn peak(counts: &Counts) -> Live {
    Live { bytes: counts.bytes_live_max, blocks: counts.blocks_live_max }
}

/// Writes the totals of all sessions, and fills in those of the footer.
pub(super) fn write<W: Write>(
    sources: &[Source<'_, '_>],
    totals: Vec<Totals>,
    footer: &mut Footer,
    draft: &mut Draft<W>,
    damage: &mut [Vec<Damage>],
) -> Result<(), Error> {
    let counts: Vec<Counts> =
        sources.iter().zip(&totals).map(|(source, totals)| source.counts(&totals.overview.counts)).collect();
    let spans: Vec<(Time, Time)> = sources.iter().map(Source::span).collect();
    let groups = concurrent(&spans);
    let at_peak = add_up(&counts, &groups, footer);
    let least = totals.iter().map(|it| it.peak_least).fold(Live::default(), |one, other| Live {
        bytes: one.bytes.max(other.bytes),
        blocks: one.blocks.max(other.blocks),
    });
    footer.peak_least = (least != peak(&footer.counts)).then_some(least);

    let mut records = Vec::new();
    for (index, (source, mut totals)) in sources.iter().zip(totals).enumerate() {
        let damage = &mut damage[totals.at];
        damage.append(&mut totals.overview.damage);
        for process in &totals.overview.processes {
            for one in &process.images {
                let image = source.image(one.image);
                let (mut sites, mut samples) = match totals.replayed.remove(&one.image) {
                    Some(rows) => rows,
                    None => source.recorded_rows(one.image, damage),
                };
                for site in sites.iter_mut().filter(|_| !at_peak.contains(&index)) {
                    site.live_at_session_peak = Live::default();
                    site.errors.live_at_session_peak = Live::default();
                }
                samples.iter_mut().for_each(|sample| sample.time = source.time(sample.time));
                draft.put(|compressor| SitesEncoder::encode(image, &sites, compressor))?;
                draft.put(|compressor| TimelineEncoder::encode(Some(image), &samples, compressor))?;
                records.push(Record::ImageCounts(ImageCounts { image, counts: source.counts(&one.counts) }));
            }
            let Some(first) = process.images.first() else { continue };
            let (first_image, counts) = (source.image(first.image), source.counts(&process.counts));
            records.push(Record::ProcessCounts(ProcessCounts { first_image, pid: process.pid, counts }));
        }
    }
    draft.records(&records)
}

/// Adds up the totals of sessions. Returns the sessions that contribute to the peak.
fn add_up<'g>(counts: &[Counts], groups: &'g [Vec<usize>], footer: &mut Footer) -> &'g [usize] {
    let sum = &mut footer.counts;
    for one in counts {
        add_calls(sum, one);
        add_live(sum, one);
    }
    let bytes = |group: &[usize]| {
        group.iter().fold(Bytes(0), |sum, &at| Bytes(sum.0.saturating_add(counts[at].bytes_live_max.0)))
    };
    let blocks = |group: &[usize], figure: fn(&Counts) -> Blocks| {
        group.iter().fold(Blocks(0), |sum, &at| Blocks(sum.0.saturating_add(figure(&counts[at]).0)))
    };
    let most = groups.iter().map(|group| blocks(group, |counts| counts.blocks_live_max)).max();
    sum.blocks_live_max = most.unwrap_or_default();
    // The first of equal groups counts, as everywhere; `max_by_key` returns the last.
    let Some(at_peak) = groups.iter().rev().max_by_key(|group| bytes(group)) else { return &[] };
    sum.bytes_live_max = bytes(at_peak);
    sum.blocks_at_bytes_max = blocks(at_peak, |counts| counts.blocks_at_bytes_max);
    let highest = at_peak.iter().rev().max_by_key(|&&at| counts[at].bytes_live_max);
    sum.bytes_live_max_time = highest.map_or(Time(0), |&at| counts[at].bytes_live_max_time);
    for errors in at_peak.iter().filter_map(|&at| counts[at].errors) {
        let sum = sum.errors.get_or_insert_default();
        sum.live_at_peak = sum.live_at_peak.with_error(errors.live_at_peak);
    }
    at_peak
}

/// Sorts sessions into groups, in order of time. Sessions in different groups never ran at the same
/// moment.
fn concurrent(spans: &[(Time, Time)]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&at| spans[at]);
    let mut groups: Vec<(Time, Vec<usize>)> = Vec::new();
    for at in order {
        let (from, until) = spans[at];
        match groups.last_mut().filter(|(end, _)| from <= *end) {
            Some((end, group)) => {
                *end = (*end).max(until);
                group.push(at);
            }
            None => groups.push((until, vec![at])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}
