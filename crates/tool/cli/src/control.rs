//! `heapledger start`, `stop` and `status`: speaking to a `heapledger record` that runs.

use std::time::Duration;

use heapledger_collect::{Request, Running, Status};
use heapledger_reports::{Row, Tree};
use serde::Serialize;

use crate::args::Control;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, count, duration};
use crate::input::shown;
use crate::output::Output;

pub(crate) fn run(arguments: &Control, request: Request, out: &mut Output) -> Result<()> {
    let all = Running::all().map_err(|error| Failure::caused(Exit::Unexpected, "cannot look for recordings", error))?;
    let chosen = choose(all, arguments.target.as_deref(), request)?;
    let answered = |running: &Running| {
        let what = format!("heapledger record (process {}) does not answer", running.status.recorder);
        running.ask(request).map_err(|error| Failure::caused(Exit::Unexpected, what, error))
    };
    let states = chosen.iter().map(answered).collect::<Result<Vec<Status>>>()?;
    if arguments.json {
        out.json(&states.iter().map(StatusJson::from).collect::<Vec<_>>())
    } else {
        print(&states, out)
    }
}

/// The recordings that are meant: the one that was named, or the only one; all of them if they are only asked.
fn choose(all: Vec<Running>, target: Option<&str>, request: Request) -> Result<Vec<Running>> {
    let nothing =
        |what: &str| Failure::new(Exit::NothingRecorded, what).hint("`heapledger status` lists what is recorded");
    let Some(target) = target else {
        return match all.len() {
            0 => Err(Failure::new(Exit::NothingRecorded, "nothing is being recorded")
                .hint("begin with: heapledger record --start-paused -- COMMAND")),
            1 => Ok(all),
            _ if request == Request::Status => Ok(all),
            _ => Err(Failure::new(Exit::Usage, "several programs are being recorded")
                .hint("say which, by its process id; `heapledger status` lists them")),
        };
    };
    let chosen: Vec<Running> = all.into_iter().filter(|running| is_meant(&running.status, target)).collect();
    if chosen.is_empty() { Err(nothing(&format!("`{target}` is not being recorded"))) } else { Ok(chosen) }
}

/// Whether a process of a recording, or its file, has this name.
fn is_meant(status: &Status, target: &str) -> bool {
    match target.parse::<u32>() {
        Ok(pid) => [status.recorder, status.command].contains(&pid) || status.processes.contains(&pid),
        Err(_) => std::fs::canonicalize(target)
            .is_ok_and(|path| path == std::fs::canonicalize(&status.output).unwrap_or_else(|_| status.output.clone())),
    }
}

fn print(states: &[Status], out: &mut Output) -> Result<()> {
    let mut table = Tree::new(["recorder", "program", "recording", "for", "allocations", "live", "file"]);
    for status in states {
        let cells = [
            status.recorder.to_string(),
            status.command.to_string(),
            state(status).to_owned(),
            duration(Duration::from_nanos(status.elapsed_ns)),
            count(status.allocations),
            bytes(status.bytes_live),
            bytes(status.bytes_written),
        ];
        table.push(0, Row::new(shown(&status.output)).cells(cells));
    }
    out.tree(&table)?;
    Ok(())
}

fn state(status: &Status) -> &'static str {
    match (status.is_on, status.has_begun) {
        (true, _) => "on",
        (false, true) => "paused",
        (false, false) => "not begun",
    }
}

#[derive(Debug, Serialize)]
struct StatusJson {
    recorder: u32,
    program: u32,
    processes: Vec<u32>,
    /// `on`, `paused` or `not begun`.
    recording: &'static str,
    duration_seconds: f64,
    allocations: u64,
    bytes_live: u64,
    file_bytes: u64,
    file: String,
}

impl From<&Status> for StatusJson {
    fn from(status: &Status) -> StatusJson {
        StatusJson {
            recorder: status.recorder,
            program: status.command,
            processes: status.processes.clone(),
            recording: state(status),
            duration_seconds: status.elapsed_ns as f64 / 1e9,
            allocations: status.allocations,
            bytes_live: status.bytes_live,
            file_bytes: status.bytes_written,
            file: status.output.to_string_lossy().into_owned(),
        }
    }
}
