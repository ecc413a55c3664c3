//! The lines of `heapledger live --json`.

use serde::Serialize;

use super::picture::{LiveRow, Picture};
use crate::format::seconds;
use crate::json::document::Document;
use crate::views::table::limit;

/// The figures at a moment. `heapledger live --json` prints one of these a second, each in a line.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LiveJson<'p> {
    /// The time since the recording began.
    time_seconds: f64,
    /// True in the last line of a program that `live` has started: it has ended, and these are the
    /// figures of its recording.
    ended: bool,
    program: &'p str,
    pid: u32,
    /// The recorded processes that run.
    processes: &'p [u32],
    /// False while the recording is paused.
    recording: bool,
    /// True if a sample of all blocks is recorded: figures are estimates then.
    sampled: bool,
    bytes_live: u64,
    blocks_live: u64,
    /// The most bytes that were live at once so far.
    bytes_live_max: u64,
    /// The resident memory of the processes; null if it cannot be read.
    bytes_resident: Option<u64>,
    /// All allocations and reallocations so far, also those of processes that have ended.
    allocations: u64,
    /// The allocations that were freed by the next call of their thread.
    temporary: u64,
    /// The rate since the line before; null in the first line.
    allocations_per_second: Option<f64>,
    /// The stacks that allocate.
    sites: u64,
    /// The smallest of the stacks, which are summed up as `[no stack]`.
    sites_left_out: u64,
    /// The time in which the recorder took no events for this line.
    copy_seconds: f64,
    /// The property by which rows are summed up.
    by: &'static str,
    /// The number of rows, also those that are not listed.
    rows_all: usize,
    /// The rows with the most live bytes.
    rows: Vec<LiveRowJson<'p>>,
}

impl Document for LiveJson<'_> {
    const SCHEMA: &'static str = "live";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LiveRowJson<'p> {
    name: &'p str,
    /// The source location, module or callers; empty if not known.
    place: &'p str,
    bytes_live: u64,
    blocks_live: u64,
    /// The live bytes of all stacks with the function on them; only for `--by function`.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_through: Option<u64>,
    allocations: u64,
    temporary: u64,
    allocations_per_second: Option<f64>,
}

impl<'p> LiveJson<'p> {
    pub(crate) fn new(picture: &'p Picture, ended: bool, rows: usize) -> LiveJson<'p> {
        let row = |row: &'p LiveRow| LiveRowJson {
            name: &row.name.name,
            place: &row.name.place,
            bytes_live: row.bytes,
            blocks_live: row.blocks,
            bytes_through: row.bytes_through,
            allocations: row.allocations,
            temporary: row.temporary,
            allocations_per_second: row.allocations_per_second,
        };
        LiveJson {
            time_seconds: seconds(picture.time),
            ended,
            program: &picture.program,
            pid: picture.pid,
            processes: &picture.processes,
            recording: picture.is_on && !ended,
            sampled: picture.is_sample,
            bytes_live: picture.bytes,
            blocks_live: picture.blocks,
            bytes_live_max: picture.bytes_max,
            bytes_resident: picture.bytes_resident,
            allocations: picture.allocations,
            temporary: picture.temporary,
            allocations_per_second: picture.allocations_per_second,
            sites: picture.sites,
            sites_left_out: picture.sites_left_out,
            copy_seconds: picture.copy_time.as_secs_f64(),
            by: picture.by.map_or("", |by| by.name()),
            rows_all: picture.rows.len(),
            rows: picture.rows.iter().take(limit(rows)).map(row).collect(),
        }
    }
}
