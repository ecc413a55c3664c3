//! `heapledger start`, `pause`, `sample` and `status`: requests to a `heapledger record` that runs,
//! or to a program with a ledger of its own.

mod linked;

use std::path::Path;
use std::time::Duration;

use heapledger_collect::{ArmError, ArmedProcess, ControlRequest, RunningSession, Status};
use heapledger_core::Bytes;
use heapledger_core::sample::Rate;
use heapledger_report_format::request::ledger::LedgerState;
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use self::linked::Linked;
use crate::args::{Control, OnFull, RunningOptions, Sample, Stacks, Start, Stop};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count, duration};
use crate::json::document::{Document, Form};
use crate::output::Output;
use crate::sessions::{is_meant, running};
use crate::text::shown;
use crate::verbs::{armed, attach};
use crate::views::sampled;

pub(crate) fn run(arguments: &Control, request: ControlRequest, out: &mut Output) -> Result<()> {
    let all = running()?;
    if let Some(linked) = linked_of(&all, arguments) {
        let linked = match request {
            ControlRequest::Start => linked.start()?,
            ControlRequest::Stop => linked.stop()?,
            ControlRequest::Sample(_) | ControlRequest::Status | ControlRequest::Save | ControlRequest::End => linked,
            ControlRequest::Resident(_) | ControlRequest::LivePages(_) | ControlRequest::Figures => linked,
        };
        return print_status(&[], &[linked], arguments.data.form(), out);
    }
    let is_for_all = request == ControlRequest::Status && arguments.target.is_none();
    let linked = if is_for_all { Linked::all() } else { Vec::new() };
    let chosen =
        if all.is_empty() && !linked.is_empty() { all } else { choose(all, arguments.target.as_deref(), request)? };
    print_status(&asked(&chosen, request)?, &linked, arguments.data.form(), out)
}

/// Begins to record an armed program, or to resume a recording.
pub(crate) fn start(arguments: &Start, out: &mut Output) -> Result<()> {
    let Some(target) = arguments.control.target.as_deref() else {
        // A recording is resumed; without one, the programs that could be recorded are listed.
        return match running()?.is_empty() && arguments.control.data.form().is_none() && armed::list(out)? {
            true => Ok(()),
            false => run(&arguments.control, ControlRequest::Start, out),
        };
    };
    let all = running()?;
    let is_known = all.iter().any(|running| is_meant(&running.status, target));
    let Ok(pid) = target.parse::<u32>() else { return run(&arguments.control, ControlRequest::Start, out) };
    if is_known && begins_recording(arguments) {
        return Err(armed::refusal(ArmError::Recorded { pid }));
    }
    if is_known {
        return run(&arguments.control, ControlRequest::Start, out);
    }
    match ArmedProcess::find(pid) {
        Ok(process) => armed::run(&process, &arguments.options, arguments.sandboxed),
        Err(ArmError::NotArmed { .. } | ArmError::Denied { .. }) if linked_of(&all, &arguments.control).is_some() => {
            run(&arguments.control, ControlRequest::Start, out)
        }
        Err(error) => Err(armed::refusal(error)),
    }
}

/// True if there are options that only a recording which begins can have.
fn begins_recording(arguments: &Start) -> bool {
    let RunningOptions { output, force, duration, sample, aggregate, usable, mappings, stacks, on_full, .. } =
        &arguments.options;
    output.is_some()
        || duration.is_some()
        || sample.is_some()
        || [*force, arguments.sandboxed, *aggregate, *usable, *mappings].contains(&true)
        || !matches!(stacks, Stacks::Mixed)
        || !matches!(on_full, OnFull::Wait)
}

/// Ends a recording that `start` began, or pauses one of `record`.
pub(crate) fn stop(arguments: &Stop, out: &mut Output) -> Result<()> {
    let all = running()?;
    let target = arguments.control.target.as_deref();
    let meant = all.iter().filter(|running| target.is_none_or(|target| is_meant(&running.status, target)));
    let is_attached = meant.clone().count() > 0 && meant.clone().all(|running| running.status.is_attached);
    run(&arguments.control, if is_attached { ControlRequest::End } else { ControlRequest::Stop }, out)
}

/// Sets the rate of a sampled recording, or of a program's own ledger.
pub(crate) fn sample(arguments: &Sample, out: &mut Output) -> Result<()> {
    let request = ControlRequest::Sample(arguments.rate);
    let all = running()?;
    if let Some(linked) = linked_of(&all, &arguments.control) {
        return print_status(&[], &[linked.sample(arguments.rate)?], arguments.control.data.form(), out);
    }
    let chosen = choose(all, arguments.control.target.as_deref(), request)?;
    if let Some(running) = chosen.iter().find(|running| running.status.sampling.is_none()) {
        let what = format!("the recording of process {} is no sample: it has all blocks", running.status.command);
        let hint = "begin a sampled one with: heapledger record --sample 512KiB -- COMMAND";
        return Err(Failure::new(Exit::Usage, what).hint(hint));
    }
    print_status(&asked(&chosen, request)?, &[], arguments.control.data.form(), out)
}

/// Returns the named program, if it is not recorded and has a ledger of its own.
fn linked_of(all: &[RunningSession], arguments: &Control) -> Option<Linked> {
    let target = arguments.target.as_deref()?;
    if all.iter().any(|running| is_meant(&running.status, target)) { None } else { Linked::find(target) }
}

/// Makes a request to each recorder, and returns their states after it.
fn asked(chosen: &[RunningSession], request: ControlRequest) -> Result<Vec<Status>> {
    let answered = |running: &RunningSession| {
        let what = format!("heapledger record (process {}) does not answer", running.status.recorder);
        running.ask(request).map_err(|error| Failure::caused(Exit::Unexpected, what, error))
    };
    chosen.iter().map(answered).collect()
}

/// Returns the recordings that are meant: the named one, or the only one; all, if the request only
/// asks for the state.
fn choose(all: Vec<RunningSession>, target: Option<&str>, request: ControlRequest) -> Result<Vec<RunningSession>> {
    let nothing =
        |what: &str| Failure::new(Exit::NothingRecorded, what).hint("`heapledger status` lists what is recorded");
    let Some(target) = target else {
        return match all.len() {
            0 => Err(Failure::new(Exit::NothingRecorded, "nothing is being recorded")
                .hint("begin with: heapledger record --start-paused -- COMMAND")),
            1 => Ok(all),
            _ if request == ControlRequest::Status => Ok(all),
            _ => Err(Failure::new(Exit::Usage, "several programs are being recorded")
                .hint("say which, by its process id; `heapledger status` lists them")),
        };
    };
    let chosen: Vec<RunningSession> = all.into_iter().filter(|running| is_meant(&running.status, target)).collect();
    if chosen.is_empty() {
        let is_to_begin = matches!(request, ControlRequest::Start | ControlRequest::Sample(_));
        let runs = target.parse::<u32>().is_ok_and(|pid| Path::new(&format!("/proc/{pid}")).exists());
        return Err(match is_to_begin && runs {
            true => attach::can_be_attached_to(target),
            false => nothing(&format!("`{target}` is not being recorded")),
        });
    }
    Ok(chosen)
}

fn print_status(states: &[Status], linked: &[Linked], form: Option<Form>, out: &mut Output) -> Result<()> {
    if let Some(form) = form {
        let all = states.iter().map(RecordingJson::from).chain(linked.iter().map(RecordingJson::from));
        return out.document(&StatusJson { rows: all.collect() }, form);
    }
    if !states.is_empty() {
        out.tree(&recordings(states))?;
    }
    if !states.is_empty() && !linked.is_empty() {
        out.line("")?;
    }
    if !linked.is_empty() {
        out.tree(&ledgers(linked))?;
    }
    Ok(())
}

fn recordings(states: &[Status]) -> Tree {
    let mut table = Tree::new(["recorder", "program", "recording", "for", "allocations", "live", "file"]);
    for status in states {
        let cells = [
            status.recorder.to_string(),
            status.command.to_string(),
            shown_state(state(status), status.sampling),
            duration(Duration::from_nanos(status.elapsed_ns)),
            count(status.allocations),
            bytes(status.bytes_live),
            bytes(status.bytes_written),
        ];
        table.push(0, Row::new(shown(&status.output)).cells(cells));
    }
    table
}

fn ledgers(linked: &[Linked]) -> Tree {
    let mut table = Tree::new(["program", "its own ledger", "for", "allocations", "live", "takes"]);
    for Linked { process, state } in linked {
        let cells = [
            process.to_string(),
            shown_state(if state.is_on { "on" } else { "off" }, rate(state)),
            duration(state.age),
            count(state.allocations),
            bytes(state.bytes_live),
            bytes(state.overhead),
        ];
        table.push(0, Row::new(command(*process)).cells(cells));
    }
    table
}

fn rate(state: &LedgerState) -> Option<Rate> {
    state.sample_every.map(|mean| Rate::nearest(Bytes(mean)))
}

/// Returns the name of a process as the kernel has it.
fn command(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/comm"))
        .map_or_else(|_| String::new(), |name| name.trim_end().to_owned())
}

fn state(status: &Status) -> &'static str {
    match (status.is_on, status.has_begun) {
        (true, _) => "on",
        (false, true) => "paused",
        (false, false) => "not begun",
    }
}

/// Returns text such as `on` or `on, one point in 512.0 KiB`.
fn shown_state(state: &str, sampling: Option<Rate>) -> String {
    match sampling {
        None => state.to_owned(),
        Some(rate) => format!("{state}, {}", sampled::rate(rate)),
    }
}

/// The document of `--json`: the recordings, then the programs with ledgers of their own.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StatusJson {
    rows: Vec<RecordingJson>,
}

impl Document for StatusJson {
    const SCHEMA: &'static str = "status";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RecordingJson {
    /// The recorder's pid; null if the program has a ledger of its own.
    recorder: Option<u32>,
    program: u32,
    processes: Vec<u32>,
    /// `on`, `paused` or `not begun`; for a program's own ledger, `on` or `off`.
    recording: &'static str,
    /// True if a sample of all blocks is recorded: figures are estimates then.
    sampled: bool,
    /// The mean distance between sample points; null while all blocks are recorded.
    sample_mean_bytes: Option<u64>,
    duration_seconds: f64,
    allocations: u64,
    bytes_live: u64,
    /// The memory that a program's own ledger takes; null for a recording.
    overhead_bytes: Option<u64>,
    /// The size of the recording; null if there is none.
    file_bytes: Option<u64>,
    file: Option<String>,
}

impl From<&Status> for RecordingJson {
    fn from(status: &Status) -> RecordingJson {
        RecordingJson {
            recorder: Some(status.recorder),
            program: status.command,
            processes: status.processes.clone(),
            recording: state(status),
            sampled: status.sampling.is_some(),
            sample_mean_bytes: status.sampling.and_then(|rate| rate.mean()).map(|mean| mean.0),
            duration_seconds: status.elapsed_ns as f64 / 1e9,
            allocations: status.allocations,
            bytes_live: status.bytes_live,
            overhead_bytes: None,
            file_bytes: Some(status.bytes_written),
            file: Some(status.output.to_string_lossy().into_owned()),
        }
    }
}

impl From<&Linked> for RecordingJson {
    fn from(&Linked { process, state }: &Linked) -> RecordingJson {
        RecordingJson {
            recorder: None,
            program: process,
            processes: vec![process],
            recording: if state.is_on { "on" } else { "off" },
            sampled: state.sample_every.is_some(),
            sample_mean_bytes: state.sample_every,
            duration_seconds: state.age.as_secs_f64(),
            allocations: state.allocations,
            bytes_live: state.bytes_live,
            overhead_bytes: Some(state.overhead),
            file_bytes: None,
            file: None,
        }
    }
}
