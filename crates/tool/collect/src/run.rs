//! Runs a command with hooks, without recording it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heapledger_recording::ExitStatus;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::command;
use crate::error::RecordError;
use crate::heap_checker::Checker;
use crate::launch::Launch;
use crate::libraries::{CommandAllocator, CommandLibraries};
use crate::session::Library;
use crate::signals::Signals;

/// Runs a command with these libraries and hook libraries in it and in the processes that it
/// starts, and waits for its end. Hooks are absolute paths; without any, and with the system's
/// allocator alone, the command runs as it would by itself. Processes that still run then continue
/// unchanged; processes that they start later have none of the libraries. Returns the texts of the
/// heap checker's reports, one for each process that has written any.
///
/// Signals are handled as [`RecordOptions::handle_signals`](crate::RecordOptions::handle_signals)
/// says.
///
/// # Errors
///
/// Fails if the command was not started.
pub fn run(
    command: &[OsString],
    libraries: CommandLibraries<'_>,
    hooks: &[PathBuf],
) -> Result<(ExitStatus, Vec<String>), RecordError> {
    let launch = Launch::find(command)?;
    let is_alone = hooks.is_empty() && libraries.heap_checker.is_none();
    if is_alone && *libraries.allocator == CommandAllocator::System {
        return Ok((run_with(&launch, None)?, Vec::new()));
    }
    let mut library = Library::install(libraries.preload, hooks)?;
    library.add_below(&libraries)?;
    let exit = run_with(&launch, Some(&library))?;
    Ok((exit, reports(library.directory())))
}

/// Runs a command with these libraries, with hook libraries, and with the checks, a hook library
/// that writes files whose names end with `.reports` into its own directory. Returns their texts,
/// one for each process that has written a file. Otherwise works like [`run`].
///
/// # Errors
///
/// Fails if the command was not started.
pub fn check(
    command: &[OsString],
    libraries: CommandLibraries<'_>,
    checker: &Checker<'_>,
    hooks: &[PathBuf],
) -> Result<(ExitStatus, Vec<String>), RecordError> {
    let launch = Launch::find(command)?;
    let mut library = Library::install(libraries.preload, hooks)?;
    library.add_checker(checker)?;
    library.add_below(&libraries)?;
    let exit = run_with(&launch, Some(&library))?;
    Ok((exit, reports(library.directory())))
}

/// Returns the reports in a directory, in the order of their names.
pub(crate) fn reports(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "reports"));
    paths.sort();
    // The program has written them, so they may have any contents.
    let read = |path: &PathBuf| {
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(REPORTS_LENGTH_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    paths.iter().take(REPORTS_MAX).filter_map(read).collect()
}

/// The maximum number of files of reports that are read, and of bytes read from each.
const REPORTS_MAX: usize = 4096;
const REPORTS_LENGTH_MAX: u64 = 64 << 20;

pub(crate) fn run_with(launch: &Launch, library: Option<&Library>) -> Result<ExitStatus, RecordError> {
    let signals = Signals::handle();
    let pid = launch.start(library, None)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(RecordError::session("a handle of the command"));
    let pidfd = pidfd.inspect_err(|_| command::give_up(pid))?;
    if let Some(signals) = &signals {
        signals.command_runs(pidfd.as_fd());
    }
    let orphans = command::Orphans::reap(signals.is_some(), pid, Arc::default());
    let exit = command::wait(pid, &pidfd, signals.is_some());
    drop(orphans);
    if let Some(signals) = &signals {
        signals.command_ended();
    }
    Ok(exit)
}
