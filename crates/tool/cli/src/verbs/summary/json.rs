//! The document that `heapledger summary --json` prints.

use heapledger_analysis::{ImageOverview, ProcessOverview};
use heapledger_recording::{Counts, ImageOrigin, Recording};
use serde::Serialize;

use super::declared::Declared;
use super::mapped::MappedJson;
use super::slop::SlopJson;
use super::{Totals, last_image};
use crate::format::seconds;
use crate::json::amounts::{RateJson, TotalErrorsJson, rates_json};
use crate::json::document::Document;
use crate::json::recording::{DamageJson, ExitJson};
use crate::notices::lost::LostJson;
use crate::notices::stack_checks::StackChecksJson;
use crate::notices::unseen::{self, UnseenLibrary};
use crate::text::command;
use crate::views::departures::{self, DepartureJson};

/// The counts in the object that `--json` prints: for the session and, except for a few fields, for
/// each process and image.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CountsJson {
    allocations: u64,
    reallocations: u64,
    frees: u64,
    failed: u64,
    bytes_allocated: u64,
    bytes_live_max: u64,
    bytes_live_max_time_seconds: f64,
    blocks_at_bytes_live_max: u64,
    blocks_live_max: u64,
    bytes_live_end: u64,
    blocks_live_end: u64,
    temporary_allocations: u64,
    frees_unknown: u64,
    frees_missed: u64,
    stamps_unknown: u64,
    frees_inherited: u64,
    bytes_inherited_live_end: u64,
    blocks_inherited_live_end: u64,
    events_lost: u64,
    events_lost_by_cause: LostJson,
    frees_paused: u64,
    events_late: u64,
    events_reordered: u64,
    threads: u64,
    stacks_truncated: u64,
    stacks_dropped: u64,
    stacks_folded: u64,
    /// The number of allocations whose stacks go through code without unwind information, such as
    /// generated code, where callers were found by frame pointers.
    stacks_unproven: u64,
    #[serde(flatten)]
    stack_checks: StackChecksJson,
    /// The standard errors, if the recording is a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    standard_errors: Option<TotalErrorsJson>,
}

impl CountsJson {
    fn new(counts: &Counts) -> CountsJson {
        CountsJson {
            allocations: counts.allocations.0,
            reallocations: counts.reallocations.0,
            frees: counts.frees.0,
            failed: counts.failed.0,
            bytes_allocated: counts.bytes_allocated.0,
            bytes_live_max: counts.bytes_live_max.0,
            bytes_live_max_time_seconds: seconds(counts.bytes_live_max_time),
            blocks_at_bytes_live_max: counts.blocks_at_bytes_max.0,
            blocks_live_max: counts.blocks_live_max.0,
            bytes_live_end: counts.bytes_live_end.0,
            blocks_live_end: counts.blocks_live_end.0,
            temporary_allocations: counts.temporary_allocations.0,
            frees_unknown: counts.frees_unknown.0,
            frees_missed: counts.frees_missed.0,
            stamps_unknown: counts.stamps_unknown,
            frees_inherited: counts.frees_inherited.0,
            bytes_inherited_live_end: counts.bytes_inherited_live_end.0,
            blocks_inherited_live_end: counts.blocks_inherited_live_end.0,
            events_lost: counts.events_lost,
            events_lost_by_cause: LostJson::new(counts),
            frees_paused: counts.frees_paused.0,
            events_late: counts.events_late,
            events_reordered: counts.events_reordered,
            threads: counts.threads,
            stacks_truncated: counts.stacks.truncated,
            stacks_dropped: counts.stacks.dropped,
            stacks_folded: counts.stacks.folded,
            stacks_unproven: counts.stacks.unproven,
            stack_checks: StackChecksJson::new(&counts.stacks),
            standard_errors: counts.errors.map(TotalErrorsJson::from),
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SessionJson {
    #[serde(flatten)]
    counts: CountsJson,
    complete: bool,
    /// The least bytes that can have been live at once, in a recording merged from totals:
    /// `bytes_live_max` and `blocks_live_max` are then the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_live_max_least: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks_live_max_least: Option<u64>,
    /// The moment at which the processes had the most resident memory, among those at which the
    /// recorder measured it. Shared pages count for each process. Null if it was never measured.
    resident_max: Option<ResidentJson>,
    /// The slop. Absent if it is not known, or if the recording is too long to be replayed for it:
    /// then `heapledger top --metric slop --json` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    slop: Option<SlopJson>,
    /// The memory that was mapped. Absent if mappings were not recorded (`record --mappings`).
    #[serde(skip_serializing_if = "Option::is_none")]
    mapped: Option<MappedJson>,
    /// The rates at which blocks were sampled, if they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sampling: Vec<RateJson>,
    /// True if the totals were counted again from the events.
    recounted: bool,
    command: Vec<String>,
    duration_seconds: Option<f64>,
    exit: Option<ExitJson>,
    costs: Option<CostsJson>,
    #[serde(flatten)]
    declared: Declared,
    processes: Vec<ProcessJson>,
    /// The libraries whose calls of the allocator are not recorded.
    unseen_libraries: Vec<UnseenLibrary>,
    /// The programs that recorded processes started and that were not recorded.
    unrecorded: Vec<DepartureJson>,
    damage: Vec<DamageJson>,
}

impl Document for SessionJson {
    const SCHEMA: &'static str = "summary";
    const ROWS: Option<&'static str> = Some("processes");
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ResidentJson {
    time_seconds: f64,
    bytes: u64,
    /// The part of it that is pages without a file.
    anonymous_bytes: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProcessJson {
    pid: u32,
    command: String,
    exit: Option<ExitJson>,
    /// True if the process was still running when the recording ended.
    running: bool,
    #[serde(flatten)]
    counts: CountsJson,
    images: Vec<ImageJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ImageJson {
    image: u32,
    command: String,
    executable: String,
    how: &'static str,
    /// The time for which the process had run before it was attached to; null if it was recorded
    /// from its start.
    age_seconds: Option<f64>,
    start_time_seconds: Option<f64>,
    end_time_seconds: Option<f64>,
    #[serde(flatten)]
    counts: CountsJson,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CostsJson {
    hook_seconds: Option<f64>,
    program_cpu_seconds: Option<f64>,
    program_wall_seconds: Option<f64>,
    collector_cpu_seconds: Option<f64>,
    collector_rss_max_bytes: Option<u64>,
    ring_bytes: Option<u64>,
    target_private_bytes: Option<u64>,
}

impl SessionJson {
    pub(super) fn new(totals: Totals<'_, '_>) -> SessionJson {
        let Totals { recording, overview, resident, declared, slop, mapped, .. } = totals;
        let footer = recording.footer();
        let session = recording.session();
        let nanoseconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
        let peak_least = footer.and_then(|footer| footer.peak_least);
        SessionJson {
            counts: CountsJson::new(&overview.counts),
            complete: recording.complete(),
            bytes_live_max_least: peak_least.map(|least| least.bytes.0),
            blocks_live_max_least: peak_least.map(|least| least.blocks.0),
            resident_max: resident.map(|sample| ResidentJson {
                time_seconds: seconds(sample.time),
                bytes: sample.resident.0,
                anonymous_bytes: sample.resident_anonymous.0,
            }),
            slop: slop.as_ref().map(SlopJson::from),
            mapped: mapped.as_ref().map(MappedJson::new),
            sampling: rates_json(recording),
            recounted: overview.recounted,
            command: session.map_or(vec![], |session| {
                session.command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
            }),
            duration_seconds: footer.map(|footer| seconds(footer.time)),
            exit: footer.and_then(|footer| footer.exit).map(ExitJson::from),
            costs: footer.map(|footer| CostsJson {
                hook_seconds: nanoseconds(footer.costs.hook_ns),
                program_cpu_seconds: nanoseconds(footer.costs.program_cpu_ns),
                program_wall_seconds: nanoseconds(footer.costs.program_wall_ns),
                collector_cpu_seconds: nanoseconds(footer.costs.collector_cpu_ns),
                collector_rss_max_bytes: footer.costs.collector_rss_max.map(|bytes| bytes.0),
                ring_bytes: footer.costs.ring_bytes.map(|bytes| bytes.0),
                target_private_bytes: footer.costs.target_private_bytes.map(|bytes| bytes.0),
            }),
            declared,
            processes: overview.processes.iter().map(|process| process_json(recording, process)).collect(),
            unseen_libraries: unseen::libraries(recording),
            unrecorded: departures::json(recording),
            damage: recording.damage().iter().chain(&overview.damage).map(DamageJson::from).collect(),
        }
    }
}

fn process_json(recording: &Recording<'_>, process: &ProcessOverview) -> ProcessJson {
    ProcessJson {
        pid: process.pid,
        command: last_image(recording, process).map(command).unwrap_or_default(),
        exit: process.exit.map(ExitJson::from),
        running: process.running,
        counts: CountsJson::new(&process.counts),
        images: process.images.iter().map(|image| image_json(recording, image)).collect(),
    }
}

fn image_json(recording: &Recording<'_>, image: &ImageOverview) -> ImageJson {
    let start = recording.image(image.image);
    ImageJson {
        image: image.image.0,
        command: start.map(command).unwrap_or_default(),
        executable: start.map_or(String::new(), |start| String::from_utf8_lossy(&start.executable).into_owned()),
        how: match start.map_or(ImageOrigin::Unknown, |start| start.how) {
            ImageOrigin::Launched => "launched",
            ImageOrigin::Exec => "exec",
            ImageOrigin::Fork => "fork",
            ImageOrigin::Attached => "attached",
            _ => "unknown",
        },
        age_seconds: start.filter(|start| start.age_ns > 0).map(|start| start.age_ns as f64 / 1e9),
        start_time_seconds: start.map(|start| seconds(start.time)),
        end_time_seconds: recording.image_end(image.image).map(|end| seconds(end.time)),
        counts: CountsJson::new(&image.counts),
    }
}
