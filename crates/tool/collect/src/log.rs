//! Runs a command with a log of its allocator's calls.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use heapledger_recording::ExitStatus;

use crate::error::RecordError;
use crate::launch::Launch;
use crate::process;
use crate::run::run_with;
use crate::session::Library;

/// The calls that a log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// The processes that have written lines.
    pub processes: u64,
    /// The lines.
    pub lines: u64,
    /// The lines that were lost: they could not be written, or a signal handler allocated while a
    /// line was written.
    pub lines_dropped: u64,
    /// The processes that still run. Their latest lines, less than 64 KiB each, are missing.
    pub processes_running: u64,
}

/// Says what happens to a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingFile {
    /// It stays as it is, and nothing is run.
    Kept,
    /// It is replaced.
    Replaced,
    /// The log is appended to it.
    Continued,
}

/// Runs a command with the preload library and with a hook library given by its bytes, which writes
/// the allocator's calls to a file: each process appends whole lines. `-` is standard output.
/// Otherwise works like [`run`](crate::run).
///
/// # Errors
///
/// Fails if the command was not started.
pub fn log(
    command: &[OsString],
    library: &[u8],
    logger: &[u8],
    output: &Path,
    existing: ExistingFile,
) -> Result<(ExitStatus, Logged), RecordError> {
    let launch = Launch::find(command)?;
    let mut library = Library::install(library, &[])?;
    library.add_hook("log.so", logger)?;
    let cannot = |source: io::Error| match source.kind() {
        ErrorKind::AlreadyExists => RecordError::OutputExists { path: output.to_owned() },
        _ => RecordError::CreateOutput { path: output.to_owned(), source },
    };
    let (mut file, path, name) = create(output, existing).map_err(cannot)?;
    symlink(path, library.directory().join(name)).map_err(cannot)?;
    let exit = run_with(&launch, Some(&library))?;
    Ok((exit, write_rest(library.directory(), &mut file)))
}

/// Opens the log, and returns a path by which other processes can open it, and the name of the link
/// to it beside the library.
fn create(output: &Path, existing: ExistingFile) -> io::Result<(File, PathBuf, &'static str)> {
    let output = if output == Path::new("-") { Path::new("/proc/self/fd/1") } else { output };
    let is_stream = fs::metadata(output).is_ok_and(|there| !there.is_file());
    // Other processes have other files under such a name.
    let is_own = output.starts_with("/proc/self") || output.starts_with("/dev/fd") || output.starts_with("/dev/std");
    let mut options = OpenOptions::new();
    options.append(true);
    if is_stream || is_own {
        let file = options.open(output)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        return Ok((file, path, if is_stream { "log.pipe" } else { "log" }));
    }
    let file = match existing {
        ExistingFile::Kept => options.create_new(true).open(output)?,
        _ => options.create(true).open(output)?,
    };
    if existing == ExistingFile::Replaced {
        file.set_len(0)?;
    }
    Ok((file, fs::canonicalize(output)?, "log"))
}

/// Writes the lines that are still in the buffers of processes that have ended, in the order of the
/// names of their files.
fn write_rest(directory: &Path, log: &mut File) -> Logged {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "lines"));
    paths.sort();
    let (mut logged, mut processes, mut running) = (Logged::default(), BTreeSet::new(), BTreeSet::new());
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let pid = name.split('.').next().and_then(|pid| pid.parse::<u32>().ok());
        processes.extend(pid);
        let Ok(bytes) = fs::read(&path) else { continue };
        // The program can write to the file, so it may have any contents.
        let Some((header, lines)) = bytes.split_at_checked(HEADER) else { continue };
        let number = |at: usize| header[at * 8..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let [filled, count, dropped] = [0, 1, 2].map(number);
        logged.lines = logged.lines.saturating_add(count);
        logged.lines_dropped = logged.lines_dropped.saturating_add(dropped);
        // A process that runs may write these lines itself.
        match pid.filter(|&pid| process::is_running(pid)) {
            Some(pid) => drop(running.insert(pid)),
            None => {
                let lines = &lines[..lines.len().min(filled as usize)];
                if log.write_all(lines).is_err() {
                    let lost = lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
                    logged.lines = logged.lines.saturating_sub(lost);
                    logged.lines_dropped = logged.lines_dropped.saturating_add(lost);
                }
            }
        }
    }
    logged.processes = processes.len() as u64;
    logged.processes_running = running.len() as u64;
    logged
}

/// The bytes in front of the lines in a buffer: see `crates/hook/log-preload/src/buffer.rs`.
const HEADER: usize = 32;
