//! The document of `heapledger replay --json`.

use heapledger_replay::{OwnStatistics, Point, PointBlocks, Run, Sample, SizeClass};
use serde::Serialize;

use super::{Figures, Subject};
use crate::json::document::Document;

/// Replays of processes with several allocators.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReplayJson<'r> {
    /// The process, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<u64>,
    /// The calls of the processes that were made again.
    calls: u64,
    threads: u64,
    /// The most that was requested and live at once.
    bytes_requested_max: u64,
    /// The frees and reallocations of blocks that were not allocated here. The frees are left out;
    /// the reallocations are made as allocations.
    frees_unknown: u64,
    /// The blocks whose frees are missing: they stay allocated.
    frees_missing: u64,
    /// The processor time of the replay itself: it is not in the times of the allocators.
    player_ns: u64,
    /// The labels of the arenas that blocks were put into, by allocators that have arenas.
    arenas: Vec<String>,
    /// The allocators, in the order of the command line. For several processes, memory is the sum
    /// at the same moment of the recording, or at the same line of the log; the other figures are
    /// sums.
    rows: Vec<AllocatorJson<'r>>,
    /// The processes by themselves, in the order of the recording, if there are several.
    processes: Vec<ProcessJson<'r>>,
}

/// A process of several.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProcessJson<'r> {
    process: u64,
    /// The name of its program; empty in a log.
    program: &'r str,
    calls: u64,
    threads: u64,
    /// The most that it requested, and that was live at once.
    bytes_requested_max: u64,
    /// The blocks that it has inherited from the process that forked it. They were allocated before
    /// its figures begin.
    blocks_inherited: u64,
    rows: Vec<AllocatorJson<'r>>,
}

/// The figures of an allocator. Memory is what the process had beyond that before the first call.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AllocatorJson<'r> {
    allocator: &'r str,
    /// The processor time of all calls.
    cpu_ns: u64,
    /// The time from the first call to the last, with that of the replay itself.
    wall_ns: u64,
    /// The same time without that of the replay itself.
    wall_allocator_ns: u64,
    /// The most resident anonymous memory among the samples.
    bytes_resident_max: u64,
    bytes_resident_end: u64,
    /// The most mapped addresses among the samples.
    bytes_mapped_max: u64,
    /// The usable bytes of live blocks when most memory was resident.
    bytes_allocated_at_peak: u64,
    /// The rest of what was resident then.
    bytes_waste_at_peak: u64,
    /// Waste as a part of resident memory, from 0 to 1: the mean over the samples.
    fragmentation: f64,
    faults_minor: u64,
    faults_major: u64,
    /// Missing if the kernel does not let them be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    system_calls: Option<SystemCallsJson>,
    /// The requests that this allocator did not answer.
    failed: u64,
    /// The memory over time: up to 2,000 samples, and those at the points at which the program
    /// asked its allocator for statistics.
    samples: Vec<SampleJson>,
    /// The size classes of requests, four for each power of two.
    classes: Vec<ClassJson>,
    /// The live blocks by their usable sizes, when the usable bytes of all were the most. Empty
    /// for several processes.
    bins: Vec<ClassJson>,
    /// The points at which the program asked for statistics, in order. Empty for several processes.
    points: Vec<PointJson>,
}

/// A point at which the program asked its allocator for statistics.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PointJson {
    /// The calls before it.
    calls: u64,
    /// The live blocks.
    blocks: u64,
    /// The slots that blocks have had, live or not.
    slots: u64,
    bytes_requested: u64,
    bytes_usable: u64,
    bytes_resident: u64,
    bytes_mapped: u64,
    /// The live blocks that have more usable bytes than were requested.
    blocks_sloppy: u64,
    /// The usable bytes beyond the requested ones of all blocks so far.
    bytes_slop_all: u64,
    /// The allocator's own statistics. Missing if it is not Heapledger's.
    #[serde(skip_serializing_if = "Option::is_none")]
    own: Option<OwnJson>,
    /// The live blocks by their usable sizes.
    bins: Vec<ClassJson>,
    /// The live blocks by their requested sizes: each size below 32 bytes, then 16 buckets for each
    /// power of two.
    requests: Vec<BucketJson>,
}

/// The statistics of Heapledger's allocator.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OwnJson {
    bytes_mapped: u64,
    bytes_committed: u64,
    bytes_allocated: u64,
    bytes_waste: u64,
    bytes_dirty: u64,
    bytes_fresh: u64,
    bytes_madvised: u64,
    bytes_bookkeeping: u64,
    bytes_bin_unused: u64,
    /// The largest size of which there are bins one quantum apart.
    quantum_max: u64,
    /// The largest size that shares its pages with others.
    small_max: u64,
    /// The largest size that shares its chunk with others.
    large_max: u64,
    bins: Vec<OwnBinJson>,
}

/// The runs of one size.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OwnBinJson {
    /// The size of a block.
    size: u64,
    /// The live blocks.
    blocks: u64,
    runs: u64,
    /// The runs with a free block.
    runs_non_full: u64,
    /// Free blocks that were in use before.
    bytes_unused: u64,
    /// The bytes of all runs.
    bytes: u64,
}

/// Live blocks whose requested size is in a bucket.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BucketJson {
    /// The smallest size of the bucket.
    size_min: u64,
    blocks: u64,
}

/// The system calls that change mappings.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SystemCallsJson {
    mmap: u64,
    munmap: u64,
    mremap: u64,
    madvise: u64,
    mprotect: u64,
    brk: u64,
}

/// The memory after so many calls.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SampleJson {
    calls: u64,
    bytes_requested: u64,
    bytes_usable: u64,
    bytes_resident: u64,
    bytes_mapped: u64,
    /// Resident bytes that are in no live block.
    bytes_waste: u64,
    /// The live blocks that have more usable bytes than were requested.
    blocks_sloppy: u64,
    /// The time in the replay since the first call.
    time_ns: u64,
    /// True at a point at which the program asked for statistics.
    statistics: bool,
}

/// Blocks whose size is in a class.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ClassJson {
    /// The smallest size of the class; usable sizes up to 1,008 bytes are rounded up to a multiple
    /// of 16.
    size_min: u64,
    blocks: u64,
    bytes_requested: u64,
    bytes_usable: u64,
}

impl SystemCallsJson {
    fn new([mmap, munmap, mremap, madvise, mprotect, brk]: [u64; 6]) -> SystemCallsJson {
        SystemCallsJson { mmap, munmap, mremap, madvise, mprotect, brk }
    }
}

impl<'r> ReplayJson<'r> {
    pub(super) fn new(figures: &Figures<'r>) -> ReplayJson<'r> {
        let subjects = figures.subjects;
        let works = || subjects.iter().map(|subject| &subject.work);
        let mut arenas: Vec<String> =
            works().flat_map(|work| &work.arenas).map(|label| String::from_utf8_lossy(label).into_owned()).collect();
        arenas.sort();
        arenas.dedup();
        let alone = if let [alone] = subjects { Some(alone.process) } else { None };
        let points = if let [alone] = subjects { &alone.work.points[..] } else { &[] };
        let each = subjects.iter().zip(&figures.runs).filter(|_| alone.is_none());
        ReplayJson {
            process: alone,
            calls: figures.calls(),
            threads: works().map(|work| work.threads as u64).sum(),
            bytes_requested_max: figures.bytes_live_max,
            frees_unknown: works().map(|work| work.unknown).sum(),
            frees_missing: works().map(|work| work.lost).sum(),
            player_ns: figures.totals.first().map_or(0, |run| run.cpu_player_ns),
            arenas,
            rows: figures.rows().map(|(name, run)| AllocatorJson::new(name, run, points)).collect(),
            processes: each.map(|(subject, runs)| ProcessJson::new(subject, &figures.allocators, runs)).collect(),
        }
    }
}

impl<'r> ProcessJson<'r> {
    fn new(subject: &'r Subject, allocators: &[&'r str], runs: &[Run]) -> ProcessJson<'r> {
        ProcessJson {
            process: subject.process,
            program: &subject.program,
            calls: subject.work.calls,
            threads: subject.work.threads as u64,
            bytes_requested_max: subject.work.bytes_live_max,
            blocks_inherited: subject.work.inherited,
            rows: allocators
                .iter()
                .zip(runs)
                .map(|(name, run)| AllocatorJson::new(name, run, &subject.work.points))
                .collect(),
        }
    }
}

impl<'r> AllocatorJson<'r> {
    fn new(allocator: &'r str, run: &Run, points: &[Point]) -> AllocatorJson<'r> {
        let asked = run.samples.iter().filter(|sample| sample.is_statistics);
        let points = points.iter().zip(asked).zip(&run.points);
        AllocatorJson {
            allocator,
            cpu_ns: run.cpu_allocator_ns(),
            wall_ns: run.wall_ns,
            wall_allocator_ns: run.wall_allocator_ns(),
            bytes_resident_max: run.peak().resident,
            bytes_resident_end: run.end().resident,
            bytes_mapped_max: run.mapped_max(),
            bytes_allocated_at_peak: run.peak().usable,
            bytes_waste_at_peak: run.peak().waste(),
            fragmentation: run.fragmentation(),
            faults_minor: run.faults_minor,
            faults_major: run.faults_major,
            system_calls: run.system_calls.map(SystemCallsJson::new),
            failed: run.failed,
            samples: run.samples.iter().map(SampleJson::new).collect(),
            classes: run.classes.iter().map(ClassJson::new).collect(),
            bins: run.bins.iter().map(ClassJson::new).collect(),
            points: points.map(|((point, sample), blocks)| PointJson::new(point, sample, blocks)).collect(),
        }
    }
}

impl PointJson {
    fn new(point: &Point, sample: &Sample, blocks: &PointBlocks) -> PointJson {
        PointJson {
            calls: point.calls,
            blocks: point.blocks,
            slots: point.slots,
            bytes_requested: sample.requested,
            bytes_usable: sample.usable,
            bytes_resident: sample.resident,
            bytes_mapped: sample.mapped,
            blocks_sloppy: sample.sloppy,
            bytes_slop_all: sample.slop_all,
            own: sample.own.map(|own| OwnJson::new(&own, blocks)),
            bins: blocks.bins.iter().map(ClassJson::new).collect(),
            requests: blocks
                .requests
                .iter()
                .map(|bucket| BucketJson { size_min: bucket.size_min, blocks: bucket.blocks })
                .collect(),
        }
    }
}

impl OwnJson {
    fn new(own: &OwnStatistics, blocks: &PointBlocks) -> OwnJson {
        let bins = blocks.own_bins.iter().map(|bin| OwnBinJson {
            size: bin.size,
            blocks: bin.blocks,
            runs: bin.runs,
            runs_non_full: bin.runs_non_full,
            bytes_unused: bin.unused,
            bytes: bin.total,
        });
        OwnJson {
            bytes_mapped: own.mapped,
            bytes_committed: own.committed(),
            bytes_allocated: own.allocated,
            bytes_waste: own.waste,
            bytes_dirty: own.dirty,
            bytes_fresh: own.fresh,
            bytes_madvised: own.madvised,
            bytes_bookkeeping: own.bookkeeping,
            bytes_bin_unused: own.bin_unused,
            quantum_max: own.quantum_max,
            small_max: own.small_max,
            large_max: own.large_max,
            bins: bins.collect(),
        }
    }
}

impl SampleJson {
    fn new(sample: &Sample) -> SampleJson {
        SampleJson {
            calls: sample.calls,
            bytes_requested: sample.requested,
            bytes_usable: sample.usable,
            bytes_resident: sample.resident,
            bytes_mapped: sample.mapped,
            bytes_waste: sample.waste(),
            blocks_sloppy: sample.sloppy,
            time_ns: sample.time_ns,
            statistics: sample.is_statistics,
        }
    }
}

impl ClassJson {
    fn new(class: &SizeClass) -> ClassJson {
        ClassJson {
            size_min: class.size_min,
            blocks: class.blocks,
            bytes_requested: class.requested,
            bytes_usable: class.usable,
        }
    }
}

impl Document for ReplayJson<'_> {
    const SCHEMA: &'static str = "replay";
}
