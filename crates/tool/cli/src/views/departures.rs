//! Departures: programs that recorded processes started, and processes that they forked, which ran
//! unrecorded; and programs of which an allocator was not recorded, because it was not redirected.

use std::collections::BTreeMap;
use std::path::Path;

use heapledger_collect::Outcome;
use heapledger_recording::{Departure, Recording};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use crate::code::Code;
use crate::error::Result;
use crate::format::{count, counted, seconds, time};
use crate::messages::{notify, warn};
use crate::output::Output;
use crate::target::{Effect, Finding, Target};

/// The number of rows listed.
const ROWS_MAX: usize = 20;
/// The number of warnings at the end of `record`.
const WARNINGS_MAX: usize = 4;
/// The number of executables that are examined at the end of `record`.
const EXECUTABLES_MAX: usize = 64;

/// Says how many programs ran unrecorded, and how many were recorded in part, for a line of totals.
/// `number` is that of all departures, of which `first` are known.
pub(crate) fn how_many(number: u64, first: &[Departure]) -> String {
    let in_part = first.iter().filter(|departure| is_in_part(departure)).count() as u64;
    let unrecorded = number.saturating_sub(in_part);
    let both = [
        (unrecorded, counted(unrecorded, "program ran unrecorded", "programs ran unrecorded")),
        (in_part, counted(in_part, "program was recorded in part", "programs were recorded in part")),
    ];
    let said: Vec<String> = both.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text).collect();
    said.join(" · ")
}

/// True for a recorded process of which some calls were not seen.
fn is_in_part(departure: &Departure) -> bool {
    departure.reason == Code::NotRedirected as u32
}

/// A departure, for `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DepartureJson {
    /// The pid; 0 if not known.
    pid: u32,
    path: String,
    /// The code, for `heapledger explain`.
    code: String,
    reason: &'static str,
    /// True if it is a forked process, not another program.
    fork: bool,
    /// True if it was recorded, and only some calls of its allocator were not seen.
    recorded_in_part: bool,
    time_seconds: f64,
    /// The process image that started it.
    image: u32,
}

impl From<&Departure> for DepartureJson {
    fn from(departure: &Departure) -> DepartureJson {
        DepartureJson {
            pid: departure.pid,
            path: path(departure),
            code: code(departure.reason),
            reason: reason(departure.reason),
            fork: departure.is_fork,
            recorded_in_part: is_in_part(departure),
            time_seconds: seconds(departure.time),
            image: departure.image.0,
        }
    }
}

/// Returns all departures of a recording, for `--json`.
pub(crate) fn json(recording: &Recording<'_>) -> Vec<DepartureJson> {
    recording.departures().iter().map(DepartureJson::from).collect()
}

/// Prints the departures of a recording, equal ones together.
pub(crate) fn print(recording: &Recording<'_>, out: &mut Output) -> Result<()> {
    let (in_part, unrecorded): (Vec<_>, Vec<_>) = recording.departures().iter().partition(|one| is_in_part(one));
    for (title, departures) in [("ran unrecorded", &unrecorded), ("recorded in part", &in_part)] {
        print_list(title, departures, out)?;
    }
    if !recording.departures().is_empty() {
        out.dim_line("heapledger explain CODE says why, and what to do")?;
    }
    Ok(())
}

/// Prints a list of departures under a title, if there are any.
fn print_list(title: &str, departures: &[&Departure], out: &mut Output) -> Result<()> {
    if departures.is_empty() {
        return Ok(());
    }
    out.line("")?;
    out.title(title)?;
    let mut table = Tree::new(["pid", "at", "times", "code"]);
    let groups = grouped(departures.iter().copied());
    for group in groups.iter().take(ROWS_MAX) {
        let Some(first) = group.first() else { continue };
        let pid = if first.pid == 0 { "?".to_owned() } else { first.pid.to_string() };
        let cells = [pid, time(first.time), count(group.len() as u64), code(first.reason)];
        let fork = if first.is_fork { " (forked)" } else { "" };
        table.push(0, Row::new(format!("{}{fork}", path(first))).note(reason(first.reason)).cells(cells));
    }
    out.tree(&table)?;
    if groups.len() > ROWS_MAX {
        let more = count((groups.len() - ROWS_MAX) as u64);
        out.dim_line(format_args!("and {more} more: --json lists them all"))?;
    }
    Ok(())
}

/// Warns at the end of `record` about programs that ran unrecorded, and about recorded programs
/// with allocators of their own, except the one that was launched.
pub(crate) fn notify_of(outcome: &Outcome, launched: &Target) {
    let mut groups = grouped(&outcome.departures);
    // The nested heapledger has reported this itself.
    groups.retain(|group| group.first().is_none_or(|first| first.reason != Code::Nested as u32));
    for group in groups.iter().take(WARNINGS_MAX) {
        let Some(first) = group.first() else { continue };
        let (path, reason) = (path(first), reason(first.reason));
        let ran = if is_in_part(first) { "was recorded in part" } else { "ran unrecorded" };
        let text = match group.len() {
            1 if first.pid != 0 => format!("`{path}` (process {}) {ran}: {reason}", first.pid),
            1 => format!("`{path}` {ran}: {reason}"),
            times => format!("`{path}` {ran} {times} times: {reason}"),
        };
        match Code::of_number(first.reason) {
            Some(explanation) => warn(explanation.code, text),
            None => notify(format_args!("heapledger: {text}")),
        }
    }
    if groups.len() > WARNINGS_MAX {
        notify(format_args!("heapledger: and others: `heapledger summary` lists what was not recorded"));
    }
    for finding in elsewhere(outcome, launched).into_iter().take(WARNINGS_MAX) {
        warn(finding.code, &finding);
    }
}

/// Returns findings about the executables of recorded processes whose heap is not malloc's.
fn elsewhere(outcome: &Outcome, launched: &Target) -> Vec<Finding> {
    use std::os::unix::ffi::OsStrExt;
    let images = outcome.processes.iter().flat_map(|process| &process.images);
    let mut executables: Vec<&[u8]> = images.map(|image| image.executable.as_slice()).collect();
    executables.sort_unstable();
    executables.dedup();
    let known = launched.file.as_ref().and_then(|file| file.canonicalize().ok());
    let executables = executables.into_iter().map(|path| Path::new(std::ffi::OsStr::from_bytes(path)));
    let others = executables.filter(|&path| Some(path) != known.as_deref()).take(EXECUTABLES_MAX);
    let findings = others.flat_map(Target::findings_of).filter(|finding| {
        // Findings about other rights do not apply: the process was recorded, so its caller had
        // them.
        let is_of_heap = matches!(finding.code, Code::OwnAllocator | Code::Sanitizer);
        !finding.is_redirected && (finding.effect == Effect::Partial || is_of_heap)
    });
    findings.collect()
}

/// Groups departures of the same program and reason, in the order of the first.
fn grouped<'d>(departures: impl IntoIterator<Item = &'d Departure>) -> Vec<Vec<&'d Departure>> {
    let mut places = BTreeMap::new();
    let mut groups: Vec<Vec<&Departure>> = Vec::new();
    for departure in departures {
        let place = *places.entry((&departure.path, departure.reason, departure.is_fork)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(departure),
            None => groups.push(vec![departure]),
        }
    }
    groups
}

fn path(departure: &Departure) -> String {
    match departure.path.is_empty() {
        true => "(unknown)".to_owned(),
        false => String::from_utf8_lossy(&departure.path).into_owned(),
    }
}

fn code(number: u32) -> String {
    format!("HL{number:04}")
}

/// Returns the reason, in a few words.
fn reason(number: u32) -> &'static str {
    let Some(explanation) = Code::of_number(number) else { return "of a newer version" };
    match explanation.code {
        Code::Static => "statically linked, with no allocator that is known",
        Code::NotFollowed => "statically linked, and the recorder could not be placed into it",
        Code::OtherRights => "it has other rights than its caller",
        Code::OtherMachine => "for another processor, or for 32 bits",
        Code::OtherLibrary => "built for another C library than glibc",
        Code::AddressSanitizer => "AddressSanitizer would refuse to start",
        Code::OtherNetwork => "in another network namespace",
        Code::LibraryUnreadable => "it may not read the recorder's library (another user, or another root directory)",
        Code::NoRoom => "no room for the recorder (see `ulimit -v`)",
        Code::Silent => "it never reached the recorder",
        Code::Sandboxed => "started in a sandbox",
        Code::NotRedirected => "functions of its own allocator were not redirected",
        Code::Nested => "seen by another heapledger alone, which was started here",
        _ => explanation.title(),
    }
}

#[cfg(test)]
mod tests;
