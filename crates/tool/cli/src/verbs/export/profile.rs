//! The profile of a selection, for formats that hold one.

use heapledger_analysis::{self as analysis, Metric, Moment, SiteTotals};
use heapledger_profile_formats::{Amount, Figure, Holds, Known, Profile, Sample, Snapshot};

use super::gather::{Gatherer, purges};
use super::history;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::question::Question;
use crate::views::sampled;

/// Returns the profile of a selection: what is live at its moment (at the peak, if it has none), at
/// the peak and at the end, and all that was allocated. Figures that need a replay are included
/// only if the format has a place for them.
pub(super) fn profile(mut question: Question<'_, '_>, holds: &Holds) -> Result<Profile> {
    let shown = shown(question.metric, question.selection.moment)?;
    let purges = purges(&question)?;
    if question.selection.moment == Moment::Total {
        question.selection.moment = Moment::Peak;
    }
    let (what, moment) = (question.what(), question.selection.moment);
    // A replay up to a time, such as 1.5s, does not know the later figures: these follow.
    let now = match moment {
        Moment::At(_) => {
            let now = question.site_totals()?;
            question.selection.moment = Moment::End;
            Some(now)
        }
        _ => None,
    };
    let mut site_totals = question.site_totals()?;
    let at_peak = match moment {
        Moment::Peak => None,
        _ => question.answer(|names, selection, progress| SiteTotals::at_peak(names, selection, progress))?,
    };
    let is_peak_known = moment == Moment::Peak || at_peak.is_some();
    let notice = sampled::notice(question.recording);
    // The first of several rates: figures are already estimates of everything, whatever the rate
    // is.
    let sampling_bytes = question.recording.sampling().first().and_then(|one| one.rate.mean()).map(|mean| mean.0);
    let found = at_peak.as_ref().unwrap_or(&site_totals).peak_time;
    let peak_ns = question.peak_time().or(found).map_or(0, |time| time.0);
    let timeline = if holds.timeline { history::timeline(&mut question, Moment::End, None)? } else { Vec::new() };
    let mut gatherer = Gatherer::new(question.recording, purges, &mut question.labels);
    gatherer.names_owners = holds.labels;
    let samples = gatherer.add(&site_totals.stacks, &site_totals.sites, |moment_amounts, sum| {
        add(&mut sum.allocated, moment_amounts.total);
        sum.temporaries += moment_amounts.total.temporaries.0;
        add(&mut sum.end, moment_amounts.live);
        if moment == Moment::Peak {
            add(&mut sum.peak, moment_amounts.peak);
        }
        if now.is_none() {
            add(&mut sum.live, moment_amounts.at(moment));
        }
    });
    if let Some(now) = &now {
        gatherer.add(&now.stacks, &now.sites, |moment_amounts, sum| add(&mut sum.live, moment_amounts.live));
    }
    if let Some(at_peak) = &at_peak {
        gatherer.add(&at_peak.stacks, &at_peak.sites, |moment_amounts, sum| add(&mut sum.peak, moment_amounts.peak));
    }
    let snapshots = history::snapshots(&mut gatherer, question.input, &question.selection, &timeline, peak_ns)?;
    let groups = gatherer.groups(samples, holds);
    let mut profile = gatherer.profile;
    profile.known = Known { allocated: true, temporaries: true, live: true, end: true, ..Known::default() };
    profile.known.peak = is_peak_known;
    let has_events = question.recording.session().is_some_and(|session| !session.totals_only);
    if has_events && (holds.amounts.most || holds.amounts.lifetimes) {
        let block_lifetimes = question.answer(|names, selection, progress| {
            analysis::block_lifetimes(names, &mut site_totals, &groups, selection, progress)
        })?;
        question.input.warn_of(&block_lifetimes.damage);
        for (sample, group) in profile.samples.iter_mut().zip(block_lifetimes.groups) {
            add(&mut sample.amounts.most, group.most);
            sample.amounts.lifetimes_ns = group.lifetimes_ns;
        }
        (profile.known.most, profile.known.lifetimes) = (true, true);
    }
    (profile.timeline, profile.snapshots) = (timeline, snapshots);
    if let Moment::At(time) = moment {
        let live = profile.samples.iter().map(|sample| sample.amounts.live).collect();
        profile.snapshots.push(Snapshot { time_ns: time.0, live });
    }
    sort(&mut profile);
    profile.comments.push(format!("inuse: {what}"));
    if let Some(notice) = notice {
        profile.comments.push(notice);
        profile.sampling_bytes = sampling_bytes;
    }
    (profile.moment, profile.shown, profile.peak_ns) = (what, shown, peak_ns);
    profile.moment_ns = moment.time().map_or(0, |time| time.0);
    Ok(profile)
}

/// Sorts the samples: sites come in no particular order, and the same recording gives the same
/// file.
fn sort(profile: &mut Profile) {
    let samples = std::mem::take(&mut profile.samples);
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (&samples[a], &samples[b]);
        let key = |sample: &Sample| (sample.amounts.live.bytes, sample.amounts.allocated.bytes);
        key(b).cmp(&key(a)).then_with(|| (&a.locations, &a.labels).cmp(&(&b.locations, &b.labels)))
    });
    for snapshot in &mut profile.snapshots {
        snapshot.live = order.iter().map(|&at| snapshot.live.get(at).copied().unwrap_or_default()).collect();
    }
    let mut samples: Vec<Option<Sample>> = samples.into_iter().map(Some).collect();
    profile.samples = order.into_iter().filter_map(|at| samples[at].take()).collect();
}

/// Returns the figure to show, for a metric and a moment.
fn shown(metric: Metric, moment: Moment) -> Result<Figure> {
    Ok(match (metric, moment) {
        (Metric::Slop, _) => {
            return Err(Failure::new(Exit::Usage, "no format that `export` writes has a place for slop")
                .hint("`heapledger flame --metric slop` draws it, and `heapledger dmd` has it in its logs"));
        }
        (Metric::Temporaries, _) => Figure::Temporaries,
        (Metric::Bytes, Moment::Total) => Figure::AllocatedBytes,
        (Metric::Blocks, Moment::Total) => Figure::Allocations,
        (Metric::Bytes, _) => Figure::LiveBytes,
        (Metric::Blocks, _) => Figure::LiveBlocks,
    })
}

fn add(sum: &mut Amount, amount: analysis::Amount) {
    sum.blocks += amount.blocks.0;
    sum.bytes += amount.bytes.0;
}
