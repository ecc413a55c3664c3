//! The document of `rss FILE --json`.

use heapledger_analysis::{ImageSnapshots, ResidentGroup, ResidentGroups};
use heapledger_recording::{ImageId, ResidentSnapshot, SnapshotPart, SnapshotSite};
use serde::Serialize;

use super::{Chosen, cause, freed_meanwhile, memory_of};
use crate::json::document::Document;
use crate::json::group::GroupJson;
use crate::json::names::FrameJson;
use crate::question::Question;
use crate::verbs::rss::advice::{self, AdviceJson};

/// A resident snapshot of a recording.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RecordedRssJson {
    process: u32,
    program: String,
    #[serde(flatten)]
    moment: MomentJson,
    /// The most resident memory that the process had, as the kernel and the recorder saw it.
    bytes_resident_max: u64,
    /// The sum of the parts.
    bytes_found: u64,
    /// The bytes that the kernel counts beyond that sum; negative if the parts are more.
    bytes_difference: i64,
    bytes_mapped: u64,
    /// The mappings that may neither be read nor written to.
    bytes_reserved: u64,
    /// The resident memory that belongs to no file.
    bytes_anonymous: u64,
    /// The part of this that is in huge pages.
    bytes_huge: u64,
    bytes_huge_tlb: u64,
    bytes_swapped: u64,
    bytes_page_tables: u64,
    /// The resident bytes that `malloc_trim(0)` would have given back.
    bytes_trimmable: u64,
    /// Bytes of live blocks that were freed while the process was read, and are in no part.
    bytes_freed: u64,
    threads: u64,
    /// False if pages of zeroes in heaps are counted, because the kernel does not tell them apart.
    knows_zeroes: bool,
    /// The time for which the process was read. It was not stopped.
    read_seconds: f64,
    /// The time for which the recorder took no events.
    copy_seconds: f64,
    /// The parts, by kind; within a kind, the largest first.
    parts: Vec<RecordedPartJson>,
    /// How full the pages of heaps are.
    pages: PagesJson,
    /// The word of `--by`.
    by: &'static str,
    /// The sums over all rows.
    total: KeptJson,
    /// The number of rows that there would be without a limit.
    rows_all: usize,
    /// The groups of live blocks, first the one that keeps the most memory.
    rows: Vec<ResidentGroupJson>,
    /// All snapshots of the selected processes, in order of time.
    snapshots: Vec<ProcessMomentJson>,
    /// Changes that would make less resident, in descending order of bytes.
    advice: Vec<AdviceJson>,
}

/// A snapshot of a process, in short.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProcessMomentJson {
    process: u32,
    #[serde(flatten)]
    moment: MomentJson,
}

/// A snapshot, in short.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MomentJson {
    /// Seconds since the session began.
    time_seconds: f64,
    /// The reason why it was made.
    cause: &'static str,
    /// Resident memory, as the kernel counts it.
    bytes_resident: u64,
    /// The requested bytes of live blocks, resident or not.
    bytes_live: u64,
    blocks_live: u64,
}

/// A part of resident memory.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RecordedPartJson {
    /// The use of the memory, such as `glibc-used`, `file`, `thread-stack` or `anonymous`.
    kind: String,
    /// The path of a file, or the name of private memory; empty if it has none.
    name: String,
    count: u64,
    bytes_mapped: u64,
    bytes_resident: u64,
    /// The resident bytes of live blocks in it; at most `bytes_resident`.
    bytes_live: u64,
    bytes_private_dirty: u64,
    bytes_shared: u64,
}

/// Resident pages of heaps.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PagesJson {
    page_bytes: u64,
    /// All pages of heaps.
    heap: u64,
    /// The pages without a live byte.
    empty: u64,
    /// The pages with live bytes: less than a quarter full, a half, three quarters, fuller.
    by_fill: [u64; 4],
    /// The pages that are not full and have one live block.
    alone: u64,
}

/// Live blocks, and the pages that they keep.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct KeptJson {
    blocks: u64,
    /// Requested bytes.
    bytes: u64,
    /// The part of these in resident pages.
    bytes_resident: u64,
    /// Usable beyond requested bytes, of the blocks whose usable size was recorded.
    bytes_slop: u64,
    /// The share of resident pages: each is divided among its live blocks by their bytes in it.
    bytes_kept: u64,
    /// The pages that are not full and have one of these blocks alone.
    pages_alone: u64,
    /// The pages less than a quarter full of whose live bytes these are the most.
    pages_sparse: u64,
}

/// A group of live blocks. The names that are present depend on `by`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ResidentGroupJson {
    #[serde(flatten)]
    kept: KeptJson,
    #[serde(flatten)]
    group: GroupJson,
    /// The number of sites in the group.
    sites: usize,
    /// The stack of the site that keeps the most, innermost first.
    stack: Vec<FrameJson>,
}

impl Document for RecordedRssJson {
    const SCHEMA: &'static str = "rss-recorded";
}

impl RecordedRssJson {
    pub(crate) fn new(
        question: &mut Question<'_, '_>,
        chosen: &Chosen<'_>,
        all: &ImageSnapshots,
        (by, groups): (&'static str, &ResidentGroups),
        rows: usize,
    ) -> RecordedRssJson {
        let (snapshot, figures) = (chosen.snapshot, &chosen.snapshot.figures);
        let found = snapshot.found().0;
        let difference = i128::from(figures.resident.0) - i128::from(found);
        let recording = question.recording;
        let process_moment = |(image, snapshot): &(ImageId, ResidentSnapshot)| ProcessMomentJson {
            process: recording.image(*image).map_or(0, |start| start.pid),
            moment: moment(snapshot),
        };
        RecordedRssJson {
            process: chosen.pid,
            program: chosen.program.clone(),
            moment: moment(snapshot),
            bytes_resident_max: chosen.resident_max.0,
            bytes_found: found,
            bytes_difference: i64::try_from(difference).unwrap_or(i64::MAX),
            bytes_mapped: figures.mapped.0,
            bytes_reserved: figures.reserved.0,
            bytes_anonymous: figures.anonymous.0,
            bytes_huge: figures.huge.0,
            bytes_huge_tlb: figures.huge_tlb.0,
            bytes_swapped: figures.swapped.0,
            bytes_page_tables: figures.page_tables.0,
            bytes_trimmable: figures.trimmable.0,
            bytes_freed: freed_meanwhile(snapshot),
            threads: figures.threads,
            knows_zeroes: figures.knows_zeroes,
            read_seconds: figures.read_ns as f64 / 1e9,
            copy_seconds: figures.copy_ns as f64 / 1e9,
            parts: snapshot.parts.iter().map(part).collect(),
            pages: PagesJson {
                page_bytes: figures.page_size.0,
                heap: figures.heap_pages,
                empty: figures.heap_pages.saturating_sub(snapshot.pages_live()),
                by_fill: figures.pages_by_fill,
                alone: figures.pages_alone,
            },
            by,
            total: kept(&groups.whole),
            rows_all: groups.groups.len(),
            rows: groups.groups.iter().take(rows).map(|row| group(question, groups, row)).collect(),
            snapshots: all.snapshots.iter().map(process_moment).collect(),
            advice: advice::document(&memory_of(chosen), None),
        }
    }
}

fn moment(snapshot: &ResidentSnapshot) -> MomentJson {
    let figures = &snapshot.figures;
    MomentJson {
        time_seconds: snapshot.time.0 as f64 / 1e9,
        cause: cause(figures.cause),
        bytes_resident: figures.resident.0,
        bytes_live: figures.live.bytes.0,
        blocks_live: figures.live.blocks.0,
    }
}

fn part(part: &SnapshotPart) -> RecordedPartJson {
    RecordedPartJson {
        kind: part.kind.clone(),
        name: part.name.clone(),
        count: part.count,
        bytes_mapped: part.mapped.0,
        bytes_resident: part.resident.0,
        bytes_live: part.live.0.min(part.resident.0),
        bytes_private_dirty: part.private_dirty.0,
        bytes_shared: part.shared.0,
    }
}

fn kept(sum: &SnapshotSite) -> KeptJson {
    KeptJson {
        blocks: sum.blocks.0,
        bytes: sum.bytes.0,
        bytes_resident: sum.resident.0,
        bytes_slop: sum.slop.0,
        bytes_kept: sum.kept.0,
        pages_alone: sum.pages_alone,
        pages_sparse: sum.pages_sparse,
    }
}

fn group(question: &mut Question<'_, '_>, groups: &ResidentGroups, row: &ResidentGroup) -> ResidentGroupJson {
    let (labels, rank) = (&mut question.labels, &row.rank);
    ResidentGroupJson {
        kept: kept(&row.sum),
        group: GroupJson::new(labels, &groups.stacks, rank),
        sites: rank.sites,
        stack: labels.stack(&groups.stacks, rank.largest),
    }
}
