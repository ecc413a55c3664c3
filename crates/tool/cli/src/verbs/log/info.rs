//! `heapledger log info`: what is in a log.

use heapledger_alloc_log::{Line, Survey};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use super::{Seen, read};
use crate::args::InfoLog;
use crate::error::Result;
use crate::format::{bytes, count, counted};
use crate::json::document::{Document, Form};
use crate::output::Output;

pub(super) fn run(arguments: &InfoLog, out: &mut Output) -> Result<()> {
    let (mut survey, mut lines_other) = (Survey::default(), 0_u64);
    read(&arguments.log, |line| match Line::parse(line) {
        Ok(line) => {
            survey.add(&line);
            Seen::Call
        }
        Err(_) => {
            lines_other += 1;
            Seen::Other
        }
    })?;
    if arguments.json {
        return out.document(&LogInfoJson::new(&survey, lines_other), Form::Json);
    }
    let form = if survey.is_munged() { "munged" } else { "with addresses" };
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
    /// True if blocks have slots, false if they have addresses.
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
    /// The functions that are called.
    rows: Vec<FunctionCallsJson>,
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
    fn new(survey: &Survey, lines_other: u64) -> LogInfoJson {
        let row = |(function, calls): (heapledger_alloc_log::Function, heapledger_alloc_log::FunctionCalls)| {
            FunctionCallsJson {
                function: function.name(),
                calls: calls.calls,
                failed: calls.failed,
                bytes_requested: calls.bytes_requested,
            }
        };
        LogInfoJson {
            munged: survey.is_munged(),
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
            rows: survey.functions().map(row).collect(),
        }
    }
}

impl Document for LogInfoJson {
    const SCHEMA: &'static str = "log-info";
}
