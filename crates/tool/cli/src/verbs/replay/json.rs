//! The document of `heapledger replay --json`.

use heapledger_replay::{Run, Work};
use serde::Serialize;

use crate::json::document::Document;

/// Replays of one process with several allocators.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReplayJson<'r> {
    process: u64,
    /// The calls of the process that were made again.
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
    /// The allocators, in the order of the command line.
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
    /// The most resident anonymous memory among the samples.
    bytes_resident_max: u64,
    bytes_resident_end: u64,
    /// The most mapped addresses among the samples.
    bytes_mapped_max: u64,
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
    /// True at a point at which the program asked for statistics.
    statistics: bool,
}

/// The blocks whose requested size is in a class.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ClassJson {
    /// The smallest size of the class.
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
    pub(super) fn new(work: &Work, process: u64, runs: &[(&'r str, &Run)]) -> ReplayJson<'r> {
        ReplayJson {
            process,
            calls: work.calls,
            threads: work.threads as u64,
            bytes_requested_max: work.bytes_live_max,
            frees_unknown: work.unknown,
            frees_missing: work.lost,
            player_ns: runs.first().map_or(0, |(_, run)| run.cpu_player_ns),
            rows: runs.iter().map(|(name, run)| AllocatorJson::new(name, run)).collect(),
        }
    }
}

impl<'r> AllocatorJson<'r> {
    fn new(allocator: &'r str, run: &Run) -> AllocatorJson<'r> {
        let samples = run.samples.iter().map(|sample| SampleJson {
            calls: sample.calls,
            bytes_requested: sample.requested,
            bytes_usable: sample.usable,
            bytes_resident: sample.resident,
            bytes_mapped: sample.mapped,
            statistics: sample.is_statistics,
        });
        let classes = run.classes.iter().map(|class| ClassJson {
            size_min: class.size_min,
            blocks: class.blocks,
            bytes_requested: class.requested,
            bytes_usable: class.usable,
        });
        AllocatorJson {
            allocator,
            cpu_ns: run.cpu_allocator_ns(),
            wall_ns: run.wall_ns,
            bytes_resident_max: run.peak().resident,
            bytes_resident_end: run.end().resident,
            bytes_mapped_max: run.samples.iter().map(|sample| sample.mapped).max().unwrap_or(0),
            faults_minor: run.faults_minor,
            faults_major: run.faults_major,
            system_calls: run.system_calls.map(SystemCallsJson::new),
            failed: run.failed,
            samples: samples.collect(),
            classes: classes.collect(),
        }
    }
}

impl Document for ReplayJson<'_> {
    const SCHEMA: &'static str = "replay";
}
