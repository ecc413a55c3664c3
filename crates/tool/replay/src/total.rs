//! The figures of several processes as one.

use std::collections::BTreeMap;

use crate::figures::{Run, Sample, SizeClass};
use crate::work::Work;

/// The largest number of samples of the sum.
const SAMPLES_MAX: usize = 2000;

impl Run {
    /// Adds up the runs of several processes with one allocator. Memory is that of all processes at
    /// the same moment: the one of the recording, whose times the works have, or the line of the
    /// log. A process has none after its end. Of bins, which are of no common moment, there are
    /// none.
    pub fn total(runs: &[(&Work, &Run)]) -> Run {
        if let [(_, alone)] = runs {
            return (*alone).clone();
        }
        let mut total = Run { system_calls: Some(Default::default()), ..Run::default() };
        let mut classes: BTreeMap<u64, SizeClass> = BTreeMap::new();
        for (_, run) in runs {
            total.cpu_ns += run.cpu_ns;
            total.cpu_player_ns += run.cpu_player_ns;
            total.wall_ns += run.wall_ns;
            total.wall_player_ns += run.wall_player_ns;
            total.faults_minor += run.faults_minor;
            total.faults_major += run.faults_major;
            total.failed += run.failed;
            total.system_calls = total.system_calls.zip(run.system_calls).map(|(mut sums, calls)| {
                sums.iter_mut().zip(calls).for_each(|(sum, calls)| *sum += calls);
                sums
            });
            for class in &run.classes {
                let size_min = class.size_min;
                let sum = classes.entry(size_min).or_insert(SizeClass { size_min, ..SizeClass::default() });
                sum.blocks += class.blocks;
                sum.requested += class.requested;
                sum.usable += class.usable;
            }
        }
        total.classes = classes.into_values().collect();
        total.samples = thinned(&samples(runs));
        total
    }
}

/// Returns the sums at each moment at which a process has a sample, in order.
fn samples(runs: &[(&Work, &Run)]) -> Vec<Sample> {
    let last = runs.iter().map(|(work, _)| work.ends).max().unwrap_or(0);
    // Ends come after all samples of their moment.
    let mut steps: Vec<(u64, bool, usize, Option<&Sample>)> = Vec::new();
    for (process, (work, run)) in runs.iter().enumerate() {
        steps.extend(run.samples.iter().map(|sample| (sample.moment, false, process, Some(sample))));
        steps.extend((work.ends < last).then_some((work.ends, true, process, None)));
    }
    steps.sort_by_key(|&(moment, is_end, process, _)| (moment, is_end, process));
    let mut now = vec![Sample::default(); runs.len()];
    let mut sum = Sample::default();
    let mut sums = Vec::with_capacity(steps.len());
    for (moment, _, process, sample) in steps {
        let before = now[process];
        // The calls of a process that has ended have been made.
        let after = sample.map_or(Sample { calls: before.calls, ..Sample::default() }, |sample| *sample);
        for (figure, before, after) in [
            (&mut sum.calls, before.calls, after.calls),
            (&mut sum.requested, before.requested, after.requested),
            (&mut sum.usable, before.usable, after.usable),
            (&mut sum.resident, before.resident, after.resident),
            (&mut sum.mapped, before.mapped, after.mapped),
            (&mut sum.sloppy, before.sloppy, after.sloppy),
        ] {
            *figure = *figure - before + after;
        }
        now[process] = after;
        sum.moment = moment;
        sum.is_statistics = sample.is_some_and(|sample| sample.is_statistics);
        sums.push(sum);
    }
    sums
}

/// Keeps at most so many samples as a run has: of each part the one with the most resident memory,
/// and the last one. Beside these, those at which a program asked for statistics are kept.
fn thinned(samples: &[Sample]) -> Vec<Sample> {
    if samples.len() <= SAMPLES_MAX {
        return samples.to_vec();
    }
    let part = samples.len().div_ceil(SAMPLES_MAX - 1);
    let mut kept: Vec<Sample> = Vec::new();
    for part in samples.chunks(part) {
        let most = (0..part.len()).max_by_key(|&at| part[at].resident);
        let chosen = part.iter().enumerate().filter(|(at, sample)| Some(*at) == most || sample.is_statistics);
        kept.extend(chosen.map(|(_, sample)| sample));
    }
    kept.extend(samples.last());
    kept
}
