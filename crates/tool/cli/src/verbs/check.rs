//! `heapledger check`: runs a program with the checks, and reports what they have found.

mod found;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

use heapledger_collect::{self as collect, Checker, CommandLibraries, die_by};
use heapledger_core::Bytes;
use heapledger_recording::ExitStatus;
use heapledger_report_format::escape;
use serde::Serialize;

use self::found::{Findings, Misuse, Unverified};
use crate::args::Check;
use crate::code::Code;
use crate::error::Result;
use crate::format::{bytes, count, counted};
use crate::json::document::{self, Document, Form};
use crate::launch::preload::{CHECKER, LIBRARY};
use crate::launch::{allocator, failure, hook, nested, report_findings};
use crate::new_file::NewFile;
use crate::target::Target;

/// The number of frames shown of a stack.
const FRAMES_MAX: usize = 16;
/// The number of processes and libraries that are listed.
const UNVERIFIED_MAX: usize = 8;

pub(crate) fn run(arguments: &Check) -> Result<ExitCode> {
    let hooks = hook::libraries(&arguments.hook)?;
    let target = arguments.command.first().map_or_else(Target::default, |program| Target::inspect(program));
    report_findings(&target, "check", "it will run without checks", arguments.quiet)?;
    nested::warn_of_nesting("check", arguments.quiet);
    let allocator = allocator::find(&arguments.allocator.name)?;
    let target = arguments.output.as_ref().map(|path| NewFile::create(path, arguments.force, &[])).transpose()?;
    let libraries = CommandLibraries { preload: LIBRARY, allocator: &allocator, heap_checker: None };
    let (quarantine, canary) = (Bytes(arguments.quarantine), Bytes(arguments.past_end));
    let checker = Checker { library: CHECKER, quarantine, canary };
    let (exit, reports) = collect::check(&arguments.command, libraries, &checker, &hooks).map_err(failure)?;
    let findings = Findings::read(&reports, &arguments.symbols);
    let mut text = Vec::new();
    if arguments.json {
        document::write(&json(&findings), Form::Json, &mut text)?;
    } else if !(arguments.quiet && findings.misuses.is_empty()) {
        print(&findings, exit, &checker, &mut text)?;
    }
    match target {
        Some(target) => target.quiet().write(&mut io::stdout(), |file| file.write_all(&text))?,
        None if arguments.json => io::stdout().write_all(&text)?,
        None => io::stderr().write_all(&text)?,
    }
    if let Some(status) = arguments.error_exitcode.filter(|_| !findings.misuses.is_empty()) {
        return Ok(ExitCode::from(status));
    }
    match exit {
        ExitStatus::Code(code) => Ok(ExitCode::from(code as u8)),
        ExitStatus::Signal(signal) => die_by(signal),
    }
}

fn print(findings: &Findings, exit: ExitStatus, checker: &Checker<'_>, out: &mut impl Write) -> io::Result<()> {
    let times: u64 = findings.misuses.iter().map(|misuse| misuse.times).sum();
    match findings.misuses.len() as u64 {
        0 if findings.is_all() => writeln!(out, "heapledger: no misuse of the allocator was found")?,
        0 => writeln!(out, "heapledger: no misuse of the allocator was found, but not all was looked at")?,
        number => {
            let all = if times > number { format!(", found {} times in all", count(times)) } else { String::new() };
            writeln!(out, "heapledger: misuse of the allocator: {}{all}", counted(number, "thing", "things"))?;
        }
    }
    for misuse in &findings.misuses {
        let times = if misuse.times > 1 { format!(" ({} times)", count(misuse.times)) } else { String::new() };
        writeln!(out, "\n{}{times}", misuse.title())?;
        for stack in &misuse.stacks {
            writeln!(out, "    {} at", misuse.role(stack))?;
            for frame in stack.frames.iter().take(FRAMES_MAX) {
                writeln!(out, "        {}", frame.line())?;
            }
            match stack.frames.len().saturating_sub(FRAMES_MAX) {
                0 if stack.frames.is_empty() => writeln!(out, "        (no stack)")?,
                0 => {}
                more => writeln!(out, "        and {}", counted(more as u64, "more frame", "more frames"))?,
            }
        }
    }
    if findings.beyond > 0 {
        writeln!(out, "\nfound {} times more, at other places: not kept", count(findings.beyond))?;
    }
    if findings.missed > 0 {
        let calls = counted(findings.missed, "call", "calls");
        writeln!(
            out,
            "\n{calls} in signal handlers not looked at; after that writes past the end of blocks and frees of what is no \
             block were not reported"
        )?;
    }
    if !findings.unverified.is_empty() {
        let processes = counted(findings.unverified.len() as u64, "process", "processes");
        let signal = match exit {
            ExitStatus::Signal(signal) => format!("; the command died of signal {signal}"),
            ExitStatus::Code(_) => String::new(),
        };
        writeln!(
            out,
            "\n{processes} not searched at the end for writes past blocks that were live (killed, ended by a system call of \
             the program's own, or still running{signal}):"
        )?;
        print_processes(out, &findings.unverified)?;
    }
    if !findings.confined.is_empty() {
        let processes = counted(findings.confined.len() as u64, "process", "processes");
        let code = Code::Sandboxed;
        writeln!(out, "\n{processes} not looked at any more after a sandbox was entered (seccomp) [{code}]:")?;
        print_processes(out, &findings.confined)?;
    }
    for library in findings.stopped_by.iter().take(UNVERIFIED_MAX) {
        let code = Code::UnseenLibrary;
        let library = escape(library);
        writeln!(
            out,
            "\nnothing was looked at after `{library}` was opened, whose calls of the allocator are not seen [{code}]"
        )?;
    }
    if findings.unchecked > 0 {
        let processes = counted(findings.unchecked, "process", "processes");
        writeln!(out, "\n{processes} not checked: of an allocator of a program's own not every block is seen")?;
        writeln!(out, "hint: check a build without that allocator, or leave its library out of LD_PRELOAD")?;
    }
    print_limits(out, checker, findings.misuses.is_empty())?;
    if let Some(hint) = findings.hint.as_ref().filter(|_| !findings.misuses.is_empty()) {
        writeln!(out, "hint: {}", escape(hint))?;
    }
    Ok(())
}

/// Prints the kinds of misuse that the checks look for, and those that they do not see.
fn print_limits(out: &mut impl Write, checker: &Checker<'_>, is_clean: bool) -> io::Result<()> {
    if !is_clean {
        writeln!(out)?;
    }
    let kept = match checker.quarantine {
        Bytes(0) => String::new(),
        Bytes(size) => format!(", writes to the last {} that were freed", bytes(size)),
    };
    let around = match checker.canary {
        Bytes(16) => "within 16 bytes of a block".to_owned(),
        Bytes(size) => format!("within 16 bytes in front of a block and {} past its end", bytes(size)),
    };
    writeln!(out, "looked for: wrong frees, writes {around}{kept}")?;
    writeln!(out, "not seen: reads, and writes elsewhere (in a few blocks: heapledger run --phc -- COMMAND)")
}

/// Prints the ids and names of processes.
fn print_processes(out: &mut impl Write, processes: &[Unverified]) -> io::Result<()> {
    for Unverified { pid, name } in processes.iter().take(UNVERIFIED_MAX) {
        writeln!(out, "    {pid}  {}", escape(name))?;
    }
    if let more @ 1.. = processes.len().saturating_sub(UNVERIFIED_MAX) {
        writeln!(out, "    and {}", counted(more as u64, "more process", "more processes"))?;
    }
    Ok(())
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FindingsJson<'a> {
    misuses: &'a [Misuse],
    /// The number of findings at places beyond the 256 that are kept for each process.
    beyond: u64,
    /// The number of calls that were not checked.
    missed: u64,
    /// The number of processes that were not checked.
    unchecked: u64,
    /// Processes that were not searched at the end for writes past the end of live blocks.
    unverified: &'a [Unverified],
    /// Processes that entered a sandbox: nothing was reported in them from then on.
    confined: &'a [Unverified],
    /// Libraries whose calls are not seen: nothing was checked in a process after it opened one.
    stopped_by: &'a BTreeSet<String>,
}

impl Document for FindingsJson<'_> {
    const SCHEMA: &'static str = "check";
    const ROWS: Option<&'static str> = Some("misuses");
}

fn json(findings: &Findings) -> FindingsJson<'_> {
    FindingsJson {
        misuses: &findings.misuses,
        beyond: findings.beyond,
        missed: findings.missed,
        unchecked: findings.unchecked,
        unverified: &findings.unverified,
        confined: &findings.confined,
        stopped_by: &findings.stopped_by,
    }
}
