//! Imports other tools' files as recordings.
//!
//! A [`Profile`] has amounts only, and so has its recording, like one made by `record --aggregate`.
//! Places keep the [names](heapledger_recording::ImportedLocation) that the file has; those without
//! names are looked up in the modules, as always. If a file has events, [`ImportedEvents`] makes a
//! recording with events; so does [`ImportedLog`] from a log of calls.

use std::collections::HashMap;
use std::io::Write;

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_profile_formats::{Amount, Amounts, Known, Point, Profile};
use heapledger_recording::{
    self as recording, Counts, Footer, ImageCounts, ImageId, Live, ProcessCounts, Record, Site, SitesEncoder, Time,
    TimelineEncoder,
};

use crate::rewrite::{Draft, Error};

mod events;
mod log;
mod places;
mod tree;

pub use events::ImportedEvents;
pub use log::{ImportedLog, LOG_CALL_NS, LogFacts, LogLineError};
use places::Common;
use tree::{Tree, image_end, image_start, session};

/// Writes a recording from one profile for each process. `source` describes the file that they came
/// from. Amounts that a profile does not have are replaced: an unknown peak or end by what was
/// live, or else by another known amount, and an unknown total of allocations by the largest of the
/// other amounts. [`assumed`] lists them.
///
/// # Errors
///
/// Fails if `out` does, or if there are more stacks than a recording may have.
pub fn import<W: Write>(profiles: &[Profile], source: &str, out: W) -> Result<(), Error> {
    let mut draft = Draft::new(out);
    let mut common = Common::default();
    let mut records: Vec<Record> = profiles.first().map(|first| session(first, source, true)).into_iter().collect();
    let ends = profiles.iter().map(|it| it.duration_ns.max(it.timeline.last().map_or(0, |point| point.time_ns)));
    let time = Time(ends.max().unwrap_or(0));
    let mut images = Vec::new();
    for (image, profile) in (1..).map(ImageId).zip(profiles) {
        let places = common.add(profile);
        let mut tree = Tree::new(profile, &places, 0);
        let mut sites: HashMap<StackId, Site> = HashMap::new();
        for sample in &profile.samples {
            let stack = tree.stack(sample, &mut common);
            let amounts = completed(sample.amounts, profile.known);
            add(sites.entry(stack).or_insert(Site { stack, ..Site::default() }), amounts);
        }
        let mut sites: Vec<Site> = sites.into_values().collect();
        sites.sort_unstable_by_key(|site| site.stack);
        records.push(image_start(image, profile.pid, &profile.command, profile));
        records.extend(tree.mappings(image));
        images.push((image, profile, tree.nodes, sites));
    }
    records.extend(common.records(source));
    draft.records(&records)?;
    records.clear();
    let timelines: Vec<&[Point]> = profiles.iter().map(|profile| &profile.timeline[..]).collect();
    for (image, profile, nodes, sites) in &mut images {
        let image = *image;
        draft.nodes(image, std::mem::take(nodes))?;
        draft.put(|compressor| SitesEncoder::encode(image, sites, compressor))?;
        draft.put(|compressor| TimelineEncoder::encode(Some(image), &samples(&profile.timeline), compressor))?;
        let counts = counts(sites, &profile.timeline, profile.peak_ns);
        records.extend([
            image_end(image, time),
            Record::ImageCounts(ImageCounts { image, counts }),
            Record::ProcessCounts(ProcessCounts { first_image: image, pid: profile.pid, counts }),
        ]);
    }
    let whole = together(&timelines);
    draft.put(|compressor| TimelineEncoder::encode(None, &samples(&whole), compressor))?;
    draft.records(&records)?;
    let sites: Vec<Site> = images.into_iter().flat_map(|(.., sites)| sites).collect();
    let counts = counts(&sites, &whole, profiles.first().map_or(0, |first| first.peak_ns));
    let complete = !profiles.iter().any(|profile| profile.is_cut);
    draft.finish(&Footer { time, complete, counts, ..Footer::default() }).map(drop)
}

/// Returns what was live over time in all processes together.
fn together(timelines: &[&[Point]]) -> Vec<Point> {
    let mut changes: Vec<(u64, usize, Amount)> = Vec::new();
    for (process, timeline) in timelines.iter().enumerate() {
        changes.extend(timeline.iter().map(|point| (point.time_ns, process, point.live)));
    }
    changes.sort_by_key(|&(time_ns, ..)| time_ns);
    let (mut latest, mut sum) = (vec![Amount::default(); timelines.len()], Amount::default());
    let mut whole: Vec<Point> = Vec::new();
    for (time_ns, process, live) in changes {
        let before = std::mem::replace(&mut latest[process], live);
        sum.blocks = sum.blocks.saturating_sub(before.blocks).saturating_add(live.blocks);
        sum.bytes = sum.bytes.saturating_sub(before.bytes).saturating_add(live.bytes);
        match whole.last_mut().filter(|last| last.time_ns == time_ns) {
            Some(last) => last.live = sum,
            None => whole.push(Point { time_ns, live: sum }),
        }
    }
    whole
}

fn samples(timeline: &[Point]) -> Vec<recording::Sample> {
    timeline.iter().map(|point| recording::Sample { time: Time(point.time_ns), live: live(point.live) }).collect()
}

/// Returns descriptions of the amounts that the file does not have and the recording assumes.
pub fn assumed(known: Known) -> Vec<&'static str> {
    [
        (!known.peak, "what was live at the peak"),
        (!known.end, "what was live at the end"),
        (!known.allocated, "what was allocated in all"),
    ]
    .into_iter()
    .filter_map(|(is_assumed, what)| is_assumed.then_some(what))
    .collect()
}

/// Replaces each unknown amount by the nearest known one.
fn completed(mut amounts: Amounts, known: Known) -> Amounts {
    let largest = |amounts: &[Amount]| amounts.iter().copied().max_by_key(|amount| amount.bytes).unwrap_or_default();
    let Amounts { live, peak, end, .. } = amounts;
    if !known.peak {
        amounts.peak = if known.live {
            live
        } else if known.end {
            end
        } else {
            amounts.allocated
        };
    }
    if !known.end {
        amounts.end = if known.live { live } else { peak };
    }
    if !known.allocated {
        amounts.allocated = largest(&[amounts.peak, amounts.end, live]);
    }
    amounts
}

fn live(amount: Amount) -> Live {
    Live { bytes: Bytes(amount.bytes), blocks: Blocks(amount.blocks) }
}

fn add(site: &mut Site, amounts: Amounts) {
    let plus = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
    let plus_live = |sum: &mut Live, amount: Amount| {
        plus(&mut sum.bytes.0, amount.bytes);
        plus(&mut sum.blocks.0, amount.blocks);
    };
    plus(&mut site.allocations.0, amounts.allocated.blocks);
    plus(&mut site.bytes_allocated.0, amounts.allocated.bytes);
    plus(&mut site.temporaries.0, amounts.temporaries);
    plus_live(&mut site.live_end, amounts.end);
    plus_live(&mut site.live_at_image_peak, amounts.peak);
    plus_live(&mut site.live_at_session_peak, amounts.peak);
}

fn counts(sites: &[Site], timeline: &[Point], peak_ns: u64) -> Counts {
    let sum = |of: fn(&Site) -> u64| sites.iter().fold(0, |sum: u64, site| sum.saturating_add(of(site)));
    let allocations = sum(|site| site.allocations.0);
    let blocks_live_end = sum(|site| site.live_end.blocks.0);
    let blocks_at_bytes_max = sum(|site| site.live_at_session_peak.blocks.0);
    let most = timeline.iter().map(|point| point.live.blocks).max().unwrap_or(0);
    Counts {
        allocations: Blocks(allocations),
        frees: Blocks(allocations.saturating_sub(blocks_live_end)),
        bytes_allocated: Bytes(sum(|site| site.bytes_allocated.0)),
        bytes_live_max: Bytes(sum(|site| site.live_at_session_peak.bytes.0)),
        bytes_live_max_time: Time(peak_ns),
        blocks_at_bytes_max: Blocks(blocks_at_bytes_max),
        blocks_live_max: Blocks(most.max(blocks_at_bytes_max).max(blocks_live_end)),
        bytes_live_end: Bytes(sum(|site| site.live_end.bytes.0)),
        blocks_live_end: Blocks(blocks_live_end),
        temporary_allocations: Blocks(sum(|site| site.temporaries.0)),
        ..Counts::default()
    }
}
