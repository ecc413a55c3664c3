//! The result of one run, as the player leaves it in a file.

use heapledger_wire::replay::{
    BINS, BUCKETS, CLASSES, LAST_SAMPLE, OWN_BIN, OWN_BINS, OWN_STATISTICS, SYSTEM_CALLS, bin_size, bucket_start,
    class_start,
};

use crate::figures::{OwnBin, OwnStatistics, PointBlocks, RequestBucket, Sample, SizeClass};
use crate::work::Work;

/// The largest number of samples of a run, without those at peaks.
const SAMPLES_MAX: u64 = 2000;
/// The words in front of the size classes in a result, those of a class, of a sample, and of a
/// table.
const HEAD: usize = 10 + SYSTEM_CALLS + 2;
const CLASS: usize = 3;
const SAMPLE: usize = 9 + OWN_STATISTICS;
const TABLE: usize = CLASS * BINS + BUCKETS + OWN_BIN * OWN_BINS;

/// The room in a result.
pub(crate) struct Layout {
    stride: u64,
    samples: u64,
    tables: u64,
}

impl Layout {
    /// Returns the room for a work: without samples if they are not asked for.
    pub(crate) fn new(work: &Work, takes_samples: bool) -> Layout {
        if !takes_samples {
            return Layout { stride: u64::MAX, samples: 0, tables: 0 };
        }
        let (stride, points) = (work.samples().div_ceil(SAMPLES_MAX).max(1), work.points.len() as u64);
        Layout { stride, samples: work.samples().div_ceil(stride) + work.always + points + 1, tables: 1 + points }
    }

    /// Returns a result without figures: the wishes for a run.
    pub(crate) fn empty(&self, flags: u64, scale: u64) -> Vec<u8> {
        let mut result = Vec::new();
        for word in [flags, self.stride, self.samples, scale, self.tables] {
            result.extend_from_slice(&word.to_le_bytes());
        }
        let (samples, tables) = (SAMPLE * self.samples as usize, TABLE * self.tables as usize);
        result.resize((HEAD + CLASS * (CLASSES + BINS) + BUCKETS + samples + tables) * 8, 0);
        result
    }
}

/// The result of one run.
#[derive(Default)]
pub(crate) struct Played {
    pub(crate) state: u64,
    pub(crate) cpu: u64,
    pub(crate) wall: u64,
    pub(crate) faults_minor: u64,
    pub(crate) faults_major: u64,
    pub(crate) system_calls: [u64; SYSTEM_CALLS],
    pub(crate) failed: u64,
    pub(crate) samples: Vec<Sample>,
    pub(crate) classes: Vec<SizeClass>,
    pub(crate) bins: Vec<SizeClass>,
    pub(crate) points: Vec<PointBlocks>,
}

impl Played {
    /// Reads the words of an `Outcome`, and what follows it.
    pub(crate) fn read(bytes: &[u8], layout: &Layout, work: &Work) -> Played {
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
        let [_, _, _, _, _, state, cpu, wall, faults_minor, faults_major, rest @ ..] = &words[..] else {
            return Played::default();
        };
        let Some((system_calls, rest)) = rest.split_first_chunk::<SYSTEM_CALLS>() else { return Played::default() };
        let [failed, taken, rest @ ..] = rest else { return Played::default() };
        let Some((all_classes, rest)) = rest.split_at_checked(CLASS * CLASSES) else { return Played::default() };
        let Some(rest) = rest.get(CLASS * BINS + BUCKETS..) else { return Played::default() };
        let room = (layout.samples as usize).saturating_mul(SAMPLE);
        let Some((all_samples, tables)) = rest.split_at_checked(room) else { return Played::default() };
        let mut tables = tables.chunks_exact(TABLE).map(table);
        let samples = all_samples.chunks_exact(SAMPLE).take(usize::try_from(*taken).unwrap_or(usize::MAX));
        Played {
            state: *state,
            cpu: *cpu,
            wall: *wall,
            faults_minor: *faults_minor,
            faults_major: *faults_major,
            system_calls: *system_calls,
            failed: *failed,
            samples: samples.filter_map(|words| sample(words, work)).collect(),
            classes: classes(all_classes, class_start),
            bins: tables.next().unwrap_or_default().bins,
            points: tables.collect(),
        }
    }
}

fn sample(words: &[u64], work: &Work) -> Option<Sample> {
    let [number, requested, usable, resident, mapped, is_statistics, time_ns, sloppy, slop_all, ref own @ ..] = *words
    else {
        return None;
    };
    let is_statistics = is_statistics != 0;
    let (calls, requested, moment) = match number {
        LAST_SAMPLE => (work.calls, work.bytes_live_end, work.ends),
        _ if is_statistics => {
            let point = work.points.get(number as usize).copied().unwrap_or_default();
            (point.calls, requested, point.moment)
        }
        _ => {
            let place = work.places.get(number as usize);
            place.map_or((work.calls, requested, work.ends), |place| (place.calls, requested, place.moment))
        }
    };
    let own = match *own {
        [
            mapped,
            allocated,
            waste,
            dirty,
            fresh,
            madvised,
            bookkeeping,
            bin_unused,
            quantum_max,
            small_max,
            large_max,
        ] if mapped > 0 => Some(OwnStatistics {
            mapped,
            allocated,
            waste,
            dirty,
            fresh,
            madvised,
            bookkeeping,
            bin_unused,
            quantum_max,
            small_max,
            large_max,
        }),
        _ => None,
    };
    Some(Sample { calls, requested, usable, resident, mapped, is_statistics, moment, time_ns, sloppy, slop_all, own })
}

/// Reads a table of live blocks.
fn table(words: &[u64]) -> PointBlocks {
    let (bins, rest) = words.split_at(CLASS * BINS);
    let (requests, own) = rest.split_at(BUCKETS);
    let bucket = |(number, &blocks): (usize, &u64)| {
        (blocks > 0).then_some(RequestBucket { size_min: bucket_start(number) as u64, blocks })
    };
    let own_bin = |words: &[u64]| match *words {
        [size, runs, runs_non_full, unused, total, _, _, blocks] if runs > 0 => {
            Some(OwnBin { size, runs, runs_non_full, unused, total, blocks })
        }
        _ => None,
    };
    PointBlocks {
        bins: classes(bins, bin_size),
        requests: requests.iter().enumerate().filter_map(bucket).collect(),
        own_bins: own.chunks_exact(OWN_BIN).filter_map(own_bin).collect(),
    }
}

/// Reads classes, and leaves out those without blocks.
fn classes(words: &[u64], size: fn(usize) -> usize) -> Vec<SizeClass> {
    let class = |(number, words): (usize, &[u64])| match *words {
        [blocks, requested, usable] if blocks > 0 => {
            Some(SizeClass { size_min: size(number) as u64, blocks, requested, usable })
        }
        _ => None,
    };
    words.chunks_exact(CLASS).enumerate().filter_map(class).collect()
}
