//! `heapledger log record`: runs a program with a log of its allocator's calls.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use heapledger_collect::{self as collect, CommandLibraries, ExistingFile, LogOptions, LoggedFields, die_by};
use heapledger_recording::ExitStatus;

use crate::args::{LogFieldOptions, RecordLog};
use crate::code::Code;
use crate::error::{Failure, Result, hint_lines};
use crate::exit::Exit;
use crate::format::{bytes, counted};
use crate::launch::preload::{LIBRARY, LOGGER};
use crate::launch::{allocator, failure, nested, report_findings};
use crate::messages::{notify, warn};
use crate::target::Target;
use crate::text::{quoted, shown};

pub(super) fn run(arguments: &RecordLog) -> Result<ExitCode> {
    let target = arguments.command.first().map_or_else(Target::default, |program| Target::inspect(program));
    report_findings(&target, "log", "it will run without a log", arguments.quiet)?;
    nested::warn_of_nesting("log", arguments.quiet);
    let allocator = allocator::find(&arguments.allocator.name)?;
    let (path, existing) = output(arguments)?;
    let libraries = CommandLibraries { preload: LIBRARY, allocator: &allocator, heap_checker: None };
    let LogFieldOptions { times, usable, arenas } = arguments.fields;
    let options = LogOptions { output: &path, existing, fields: LoggedFields { times, usable, arenas } };
    let (exit, logged) = collect::log(&arguments.command, libraries, LOGGER, options).map_err(failure)?;
    if logged.processes_failed > 0 {
        let processes = counted(logged.processes_failed, "process is", "processes are");
        let hint = hint_lines("is there room for temporary files?\ndf -h /tmp");
        warn(Code::CallsLost, format_args!("{processes} not in the log\n{hint}"));
    }
    if logged.lines_dropped > 0 {
        let lines = counted(logged.lines_dropped, "call is", "calls are");
        let hint = hint_lines("is there room on the disk?\ndf -h .");
        warn(Code::CallsLost, format_args!("{lines} not in the log\n{hint}"));
    }
    if !arguments.quiet {
        if logged.processes_running > 0 {
            let processes = counted(logged.processes_running, "process still runs", "processes still run");
            notify(format_args!("heapledger: {processes}: the latest calls are not in the log"));
        }
        let calls = counted(logged.lines, "call", "calls");
        let processes = counted(logged.processes, "process", "processes");
        let length = path.metadata().ok().filter(|there| there.is_file()).map(|there| there.len());
        match length.filter(|_| !path.starts_with("/proc") && path != Path::new("-")) {
            Some(length) => {
                let (file, next) = (shown(&path), quoted(&path.to_string_lossy()));
                notify(format_args!("heapledger: wrote {file} ({}): {calls} of {processes}", bytes(length)));
                notify(format_args!("            next: heapledger log info {next}"));
            }
            None => notify(format_args!("heapledger: wrote {calls} of {processes}")),
        }
    }
    match exit {
        ExitStatus::Code(code) => Ok(ExitCode::from(code as u8)),
        ExitStatus::Signal(signal) => die_by(signal),
    }
}

/// Returns the path of the log, and what happens to a file that is there.
fn output(arguments: &RecordLog) -> Result<(PathBuf, ExistingFile)> {
    if let Some(path) = &arguments.output {
        let existing = if arguments.force { ExistingFile::Replaced } else { ExistingFile::Kept };
        return Ok((path.clone(), existing));
    }
    let name = env::var_os("MALLOC_LOG").filter(|name| !name.is_empty()).ok_or_else(|| {
        Failure::new(Exit::Usage, "it is not said where the log goes").hint("heapledger log record -o FILE -- COMMAND")
    })?;
    let digits = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let descriptor = digits.and_then(|digits| digits.parse::<u32>().ok()).filter(|number| *number < DESCRIPTORS);
    if descriptor == Some(0) {
        return Err(Failure::new(Exit::Usage, "MALLOC_LOG=0 means that no log is written")
            .hint("heapledger log record -o FILE -- COMMAND"));
    }
    let path = descriptor.map_or_else(|| PathBuf::from(&name), |number| format!("/proc/self/fd/{number}").into());
    Ok((path, ExistingFile::Continued))
}

/// Smaller numbers in MALLOC_LOG are descriptors.
const DESCRIPTORS: u32 = 10_000;
