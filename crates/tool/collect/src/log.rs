//! Runs a command with a log of its allocator's calls.
//!
//! Each process has a buffer: a file beside the hook library, which it maps (see
//! `crates/hook/log-preload/src/buffer.rs`). Full buffers are appended to the log by the process
//! itself, if the log is a regular file; otherwise they go through a pipe beside the library, which
//! a thread copies to the log. So no process ever waits for a reader that has gone away, or shares
//! an offset with the log. What is left in the buffers of processes that have ended is appended by
//! that thread, too.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use heapledger_recording::ExitStatus;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use crate::error::RecordError;
use crate::launch::Launch;
use crate::libraries::CommandLibraries;
use crate::proc_maps;
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
    /// line was written, or a thread waited too long for another one.
    pub lines_dropped: u64,
    /// The processes that still run. Their latest lines, less than 64 KiB each, are missing.
    pub processes_running: u64,
    /// The processes that could not make a buffer. Their lines are missing, and not counted.
    pub processes_failed: u64,
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

/// The log to write.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions<'a> {
    /// Its file; `-` is standard output.
    pub output: &'a Path,
    /// The treatment of a file that is there already.
    pub existing: ExistingFile,
    /// The fields behind each call.
    pub fields: LoggedFields,
}

/// The fields that lines have behind the call: none in logalloc's format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedFields {
    /// The nanoseconds since the log began.
    pub times: bool,
    /// The usable size of the returned block.
    pub usable: bool,
    /// The label of the arena of the returned block.
    pub arenas: bool,
}

impl LoggedFields {
    /// Returns the file for the hook library: see `crates/hook/log-preload/src/fields.rs`.
    fn to_text(self) -> String {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let began = (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1);
        let lines = [(self.times, "time", began), (self.usable, "usable", 1), (self.arenas, "arena", 1)];
        let lines = lines.into_iter().filter(|(is_asked, ..)| *is_asked);
        lines.map(|(_, name, number)| format!("{name} {number}\n")).collect()
    }
}

/// Runs a command with these libraries and with a hook library given by its bytes, which writes
/// the allocator's calls to a file: each process appends whole lines. Otherwise works like
/// [`run`](crate::run).
///
/// # Errors
///
/// Fails if the command was not started.
pub fn log(
    command: &[OsString],
    libraries: CommandLibraries<'_>,
    logger: &[u8],
    options: LogOptions<'_>,
) -> Result<(ExitStatus, Logged), RecordError> {
    let LogOptions { output, existing, fields } = options;
    let launch = Launch::find(command)?;
    let mut library = Library::install(libraries.preload, &[])?;
    library.add_hook("log.so", logger)?;
    if fields != LoggedFields::default() {
        library.add_file("log.fields", fields.to_text().as_bytes())?;
    }
    library.add_below(&libraries)?;
    let cannot = |source: io::Error| match source.kind() {
        ErrorKind::AlreadyExists => RecordError::OutputExists { path: output.to_owned() },
        _ => RecordError::CreateOutput { path: output.to_owned(), source },
    };
    let directory = library.directory().to_owned();
    let ended = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(RecordError::session("an eventfd"))?);
    let log = Log::create(output, existing, &directory).map_err(cannot)?;
    let writer = thread::spawn({
        let ended = Arc::clone(&ended);
        move || log.write_until(ended.as_fd())
    });
    let exit = run_with(&launch, Some(&library));
    // The counter is far from its limit, so this neither fails nor waits.
    let _ = rustix::io::write(&ended, &1_u64.to_ne_bytes());
    let logged = writer.join().unwrap_or_default();
    Ok((exit?, logged))
}

/// The log, and what is still to be written to it.
struct Log {
    file: File,
    /// The end of the pipe for logs that are no regular files.
    pipe: Option<File>,
    /// The directory of the library.
    directory: PathBuf,
    processes: BTreeSet<u32>,
    logged: Logged,
}

/// The time between two looks at the buffers of processes that have ended, in parts of a second.
const LOOK: Duration = Duration::from_millis(200);
/// The looks between two that search the directory.
const SEARCH: u32 = 10;

impl Log {
    /// Opens the log, and leads the processes to it by a file beside the library.
    fn create(output: &Path, existing: ExistingFile, directory: &Path) -> io::Result<Log> {
        let new = |file, pipe| {
            let (processes, logged) = (BTreeSet::new(), Logged::default());
            Log { file, pipe, directory: directory.to_owned(), processes, logged }
        };
        let is_regular = fs::metadata(output).map_or(true, |there| there.is_file());
        let is_own = ["/proc/self", "/dev/fd", "/dev/std"].iter().any(|start| output.starts_with(start));
        if output != Path::new("-") && is_regular && !is_own {
            let mut options = OpenOptions::new();
            options.append(true);
            let file = match existing {
                ExistingFile::Kept => options.create_new(true).open(output)?,
                _ => options.create(true).open(output)?,
            };
            if existing == ExistingFile::Replaced {
                file.set_len(0)?;
            }
            symlink(fs::canonicalize(output)?, directory.join("log"))?;
            return Ok(new(file, None));
        }
        let file = match output.to_str() {
            // The program has the same open file: what both write to it stays in order.
            Some("-" | "/proc/self/fd/1") => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            Some("/proc/self/fd/2") => File::from(io::stderr().as_fd().try_clone_to_owned()?),
            _ => OpenOptions::new().append(true).open(output)?,
        };
        let path = directory.join("log.pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // Open for writing, too: the pipe has never no writer, whose end would be its end.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let pipe = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        Ok(new(file, Some(pipe)))
    }

    /// Writes until the command has ended, of which a counter tells, and then what is left.
    fn write_until(mut self, ended: BorrowedFd<'_>) -> Logged {
        for look in 1_u32.. {
            let is_over = self.wait(ended);
            self.copy();
            if is_over || look.is_multiple_of(SEARCH) {
                self.take_buffers(is_over);
            }
            if is_over {
                break;
            }
        }
        self.logged.processes = self.processes.len() as u64;
        self.logged
    }

    /// Waits until there is something in the pipe, or the command has ended, or for some time. True
    /// if the command has ended.
    fn wait(&self, ended: BorrowedFd<'_>) -> bool {
        let mut polled = vec![PollFd::from_borrowed_fd(ended, PollFlags::IN)];
        polled.extend(self.pipe.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let time = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        // An interrupted wait is a short one.
        poll(&mut polled, Some(&time)).is_ok() && polled[0].revents().contains(PollFlags::IN)
    }

    /// Writes what is in the pipe.
    fn copy(&mut self) {
        let Some(mut pipe) = self.pipe.as_ref() else { return };
        let mut bytes = vec![0; 64 << 10];
        while let Ok(length @ 1..) = pipe.read(&mut bytes) {
            write(&mut self.file, &bytes[..length], &mut self.logged);
        }
    }

    /// Writes the lines that are still in the buffers of processes that have ended, in the order of
    /// the names of their files. At the end, those of the others are counted.
    fn take_buffers(&mut self, is_over: bool) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "lines"));
        paths.sort();
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some(pid) = name.split('.').next().and_then(|pid| pid.parse::<u32>().ok()) else { continue };
            // Before the end, a process that has just made its file may not have mapped it, and the
            // number may be that of another PID namespace.
            let is_running = if is_over { proc_maps::has_name(pid, name.as_bytes()) } else { process::is_running(pid) };
            if is_running {
                self.logged.processes_running += u64::from(is_over);
                self.processes.extend(is_over.then_some(pid));
                if !is_over {
                    continue;
                }
            }
            let Ok(bytes) = fs::read(&path) else { continue };
            if !is_over {
                // Nobody has it mapped any more, and there may be thousands.
                let _ = fs::remove_file(&path);
            }
            let Some((header, lines)) = bytes.split_at_checked(HEADER) else {
                self.logged.processes_failed += 1;
                continue;
            };
            self.processes.insert(pid);
            // The program can write to the file, so it may have any contents.
            let number = |at: usize| header[at * 8..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            let [filled, count, dropped] = [0, 1, 2].map(number);
            self.logged.lines = self.logged.lines.saturating_add(count);
            self.logged.lines_dropped = self.logged.lines_dropped.saturating_add(dropped);
            if !is_running {
                write(&mut self.file, &lines[..lines.len().min(filled as usize)], &mut self.logged);
            }
        }
    }
}

/// Writes lines; those that cannot be written are counted as dropped.
fn write(file: &mut File, lines: &[u8], logged: &mut Logged) {
    if file.write_all(lines).is_err() {
        let lost = lines.iter().filter(|&&byte| byte == b'\n').count() as u64;
        logged.lines = logged.lines.saturating_sub(lost);
        logged.lines_dropped = logged.lines_dropped.saturating_add(lost);
    }
}

/// The bytes in front of the lines in a buffer: see `crates/hook/log-preload/src/buffer.rs`.
const HEADER: usize = 32;
