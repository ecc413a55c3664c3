//! `heapledger log info`: what is in a log.

use std::time::Duration;

use heapledger_alloc_log::Survey;
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use super::for_each_call;
use crate::args::InfoLog;
use crate::error::Result;
use crate::format::{bytes, count, counted, duration, percent};
use crate::json::document::{Document, Form};
use crate::output::Output;

pub(super) fn run(arguments: &InfoLog, out: &mut Output) -> Result<()> {
    let (mut survey, mut lines_other) = (Survey::default(), 0_u64);
    let is_recording = for_each_call(&arguments.log, |call| match call {
        Some((line, fields)) => {
            survey.add(line);
            survey.add_fields(line, fields);
        }
        None => lines_other += 1,
    })?;
    if arguments.json {
        return out.document(&LogInfoJson::new(&survey, is_recording, lines_other), Form::Json);
    }
    let form = match (is_recording, survey.is_munged()) {
        (true, _) => "a recording",
        (false, true) => "munged",
        (false, false) => "with addresses",
    };
    let (processes, threads) = (survey.processes(), survey.threads());
    out.title(format_args!(
        "{form}: {} in {} and {}",
        counted(survey.calls(), "call", "calls"),
        counted(processes, "process", "processes"),
        counted(threads, "thread", "threads"),
    ))?;
    let blocks = |number| counted(number, "block", "blocks");
    out.line(format_args!(
        "peak{}: {} requested; at most {} · at the end {} in {}",
        if processes > 1 { " of one process" } else { "" },
        bytes(survey.bytes_live_max()),
        blocks(survey.blocks_live_max()),
        bytes(survey.bytes_live()),
        blocks(survey.blocks_live()),
    ))?;
    let (usable, mut holds) = (survey.usable(), Vec::new());
    if let Some((first, last)) = survey.times_ns() {
        holds.push(format!("times, {} in all", duration(Duration::from_nanos(last - first))));
    }
    if usable.blocks > 0 {
        let slop = usable.bytes_usable.saturating_sub(usable.bytes_requested);
        holds.push(format!("usable sizes, {} of slop", percent(slop, usable.bytes_requested)));
    }
    let (arenas, blocks_in_arenas) = survey.arenas().fold((0, 0), |sum, (_, calls)| (sum.0 + 1, sum.1 + calls.blocks));
    if arenas > 0 {
        holds.push(format!("{} in {}", blocks(blocks_in_arenas), counted(arenas, "arena", "arenas")));
    }
    if !holds.is_empty() {
        out.line(format_args!("with {}", holds.join("; ")))?;
    }
    for (number, says) in [
        (lines_other, "lines are no calls"),
        (survey.frees_unknown(), "frees of blocks that the log has not allocated"),
        (survey.allocations_of_live(), "allocations of blocks that were live: the log lacks their frees"),
    ] {
        if number > 0 {
            out.line(format_args!("{} {says}", count(number)))?;
        }
    }
    let mut table = Tree::new(["calls", "failed", "requested"]);
    for (function, calls) in survey.functions() {
        let cells = [count(calls.calls), count(calls.failed), bytes(calls.bytes_requested)];
        table.push(0, Row::new(function.name()).cells(cells));
    }
    out.line("")?;
    Ok(out.tree(&table)?)
}

/// The document of `--json`. Bytes are requested ones.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LogInfoJson {
    /// True if it is a recording.
    recording: bool,
    /// True if blocks of a log have slots, false if they have addresses.
    munged: bool,
    calls: u64,
    /// The lines that are no calls.
    lines_other: u64,
    processes: u64,
    /// The threads of all processes.
    threads: u64,
    /// The peak of the process with the most.
    bytes_live_max: u64,
    /// The peak of the process with the most.
    blocks_live_max: u64,
    /// The sum over all processes, also over those that have ended.
    bytes_live_end: u64,
    blocks_live_end: u64,
    /// The frees and reallocations of blocks that the log has not allocated.
    frees_unknown: u64,
    /// The allocations of blocks that were live: the log lacks their frees.
    allocations_of_live: u64,
    /// The time from the first call to the last; null if the log has no times.
    duration_ns: Option<u64>,
    /// The allocations whose usable size the log has.
    usable_blocks: u64,
    /// Their requested bytes.
    usable_bytes_requested: u64,
    /// Their usable bytes.
    usable_bytes: u64,
    /// The arenas by their labels: the first 4,096 of them.
    arenas: Vec<ArenaCallsJson>,
    /// The functions that are called.
    rows: Vec<FunctionCallsJson>,
}

/// The blocks that arenas of one label gave out.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ArenaCallsJson {
    label: String,
    blocks: u64,
    bytes_requested: u64,
}

/// The calls of one function.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FunctionCallsJson {
    function: &'static str,
    calls: u64,
    /// The calls that returned null, though they requested bytes.
    failed: u64,
    /// Also those of failed calls.
    bytes_requested: u64,
}

impl LogInfoJson {
    fn new(survey: &Survey, is_recording: bool, lines_other: u64) -> LogInfoJson {
        let row = |(function, calls): (heapledger_alloc_log::Function, heapledger_alloc_log::FunctionCalls)| {
            FunctionCallsJson {
                function: function.name(),
                calls: calls.calls,
                failed: calls.failed,
                bytes_requested: calls.bytes_requested,
            }
        };
        let arena = |(label, calls): (&[u8], heapledger_alloc_log::ArenaCalls)| ArenaCallsJson {
            label: String::from_utf8_lossy(label).into_owned(),
            blocks: calls.blocks,
            bytes_requested: calls.bytes_requested,
        };
        LogInfoJson {
            recording: is_recording,
            munged: !is_recording && survey.is_munged(),
            calls: survey.calls(),
            lines_other,
            processes: survey.processes(),
            threads: survey.threads(),
            bytes_live_max: survey.bytes_live_max(),
            blocks_live_max: survey.blocks_live_max(),
            bytes_live_end: survey.bytes_live(),
            blocks_live_end: survey.blocks_live(),
            frees_unknown: survey.frees_unknown(),
            allocations_of_live: survey.allocations_of_live(),
            duration_ns: survey.times_ns().map(|(first, last)| last - first),
            usable_blocks: survey.usable().blocks,
            usable_bytes_requested: survey.usable().bytes_requested,
            usable_bytes: survey.usable().bytes_usable,
            arenas: survey.arenas().map(arena).collect(),
            rows: survey.functions().map(row).collect(),
        }
    }
}

impl Document for LogInfoJson {
    const SCHEMA: &'static str = "log-info";
}
