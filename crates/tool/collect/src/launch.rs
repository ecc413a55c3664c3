//! Starts the command: finds it as a shell would, and leads it to the session.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use heapledger_wire::session::{ENVIRONMENT_VARIABLE, HOOKS_VARIABLE};
use rustix::fs::Access;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::error::RecordError;
use crate::exec;
use crate::placed::{Placement, PlacementError};
use crate::session::Library;
use crate::way::{INTERPRETERS_MAX, Way, way};

const PRELOAD: &str = "LD_PRELOAD";

/// A command that can be started.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    name: &'a OsStr,
    arguments: &'a [OsString],
    file: PathBuf,
}

impl<'a> Launch<'a> {
    /// Looks the command up.
    pub(crate) fn find(command: &'a [OsString]) -> Result<Launch<'a>, RecordError> {
        let (name, arguments) = command.split_first().ok_or(RecordError::NoCommand)?;
        // The path that execvp searches if PATH is not set.
        let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
        Ok(Launch { name, arguments, file: find(name, &path)? })
    }

    /// Returns the last part of the program's path.
    pub(crate) fn program(&self) -> &OsStr {
        self.file.file_name().unwrap_or(self.name)
    }

    /// Starts the program with the libraries at the front of `LD_PRELOAD`, and with the variables
    /// that they look for. The program keeps our standard streams, directory and process group. All
    /// our descriptors are closed on exec, and all signals that we handle are reset to their
    /// defaults.
    pub(crate) fn start(&self, library: Option<&Library>, session: Option<&OsStr>) -> Result<Pid, RecordError> {
        let way = self.way();
        // In a static program, nothing would remove the additions from the environment again.
        let of_program = library.and_then(|library| Some((library, library.path_for(way)?)));
        self.spawn(of_program, session, false)
    }

    /// Starts the program as [`start`](Launch::start) does, or places a library into it if it is
    /// statically linked. If that fails, it runs unrecorded.
    pub(crate) fn start_recorded(
        &self,
        library: Option<&Library>,
        placement: &Placement<'_>,
    ) -> Result<Started, RecordError> {
        if self.way() != Way::Placed || placement.library.is_empty() {
            let pid = self.start(library, Some(placement.session))?;
            return Ok(Started { pid, not_placed: None });
        }
        match self.spawn(None, None, true) {
            Ok(pid) => Ok(Started { pid, not_placed: placement.place(pid).err() }),
            // Nobody may trace, or somebody else does.
            Err(RecordError::Launch { source, .. }) if is_refused(&source) => {
                let pid = self.spawn(None, None, false)?;
                Ok(Started { pid, not_placed: Some(PlacementError::not_traced(source)) })
            }
            Err(error) => Err(error),
        }
    }

    fn way(&self) -> Way {
        way(&self.file, INTERPRETERS_MAX)
    }

    /// Starts the program. If `is_traced`, it stops before its first instruction, and this thread
    /// is its tracer.
    fn spawn(
        &self,
        library: Option<(&Library, &Path)>,
        session: Option<&OsStr>,
        is_traced: bool,
    ) -> Result<Pid, RecordError> {
        let environment = match library {
            Some((library, path)) => environment(library, path, session),
            None => exec::environment().iter().map(|entry| text(entry)).collect(),
        };
        let spawn = |mut command: Command, file: &Path, arguments: Vec<CString>| {
            let image = exec::Image::new(file, arguments, &environment)?;
            exec::exec_instead(&mut command, image, is_traced);
            command.spawn().map(|child| child.id())
        };
        let arguments = || self.arguments.iter().map(|argument| text(argument));
        let command = std::iter::once(text(self.name)).chain(arguments()).collect();
        let id = spawn(Command::new(&self.file), &self.file, command).or_else(|error| {
            if error.raw_os_error() != Some(Errno::NOEXEC.raw_os_error()) {
                return Err(error);
            }
            // A script without an interpreter in its first line is run by the shell, by tradition.
            let command = [text("/bin/sh".as_ref()), text(self.file.as_os_str())].into_iter().chain(arguments());
            spawn(Command::new("/bin/sh"), Path::new("/bin/sh"), command.collect())
        });
        let failed = |source| RecordError::Launch { program: self.name.to_owned(), source };
        let id = id.map_err(failed)?;
        // Process ids of the kernel are positive.
        Pid::from_raw(id as i32).ok_or_else(|| failed(io::Error::from(io::ErrorKind::Other)))
    }
}

/// A program that was started.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: Pid,
    /// The reason why the library was not placed into it.
    pub(crate) not_placed: Option<PlacementError>,
}

/// True for the error of [`trace_me`](heapledger_inject::trace_me), which execve(2) of a file that
/// may be executed has for other reasons, too: then the second attempt fails in the same way.
fn is_refused(error: &io::Error) -> bool {
    [Errno::PERM, Errno::ACCESS].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Converts a text that came from the system and so has no NUL.
fn text(text: &OsStr) -> CString {
    let bytes = text.as_bytes();
    CString::new(&bytes[..bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len())]).unwrap_or_default()
}

/// Returns our environment in its order, with the additions for a program that loads the library at
/// `path`.
fn environment(library: &Library, path: &Path, session: Option<&OsStr>) -> Vec<CString> {
    let entries = with_additions(exec::environment(), path, library.hooks(), session);
    entries.iter().map(|entry| text(entry)).collect()
}

/// Returns an environment in its order, with the libraries at the front of `LD_PRELOAD`, the
/// session if there is one, and the names of hook libraries if there are any.
pub(crate) fn with_additions(
    mut entries: Vec<OsString>,
    library: &Path,
    hooks: &[PathBuf],
    session: Option<&OsStr>,
) -> Vec<OsString> {
    let prefix = |name: &str| [name.as_bytes(), b"="].concat();
    let entry = |name: &str, value: &OsStr| OsString::from_vec([&prefix(name), value.as_bytes()].concat());
    let hooks = (!hooks.is_empty()).then(|| joined(hooks));
    let preload = prefix(PRELOAD);
    let existing = entries.iter_mut().find(|entry| entry.as_bytes().starts_with(&preload));
    let value = existing.as_ref().map(|entry| OsStr::from_bytes(&entry.as_bytes()[preload.len()..]));
    let value = joined([Some(library.as_os_str()), hooks.as_deref(), value].into_iter().flatten());
    match existing {
        Some(existing) => *existing = entry(PRELOAD, &value),
        None => entries.push(entry(PRELOAD, &value)),
    }
    for (name, value) in [(ENVIRONMENT_VARIABLE, session), (HOOKS_VARIABLE, hooks.as_deref())] {
        entries.retain(|entry| !entry.as_bytes().starts_with(&prefix(name)));
        entries.extend(value.map(|value| entry(name, value)));
    }
    entries
}

/// Joins parts with colons. An empty part is kept.
fn joined(parts: impl IntoIterator<Item = impl AsRef<OsStr>>) -> OsString {
    let mut joined = OsString::new();
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 {
            joined.push(":");
        }
        joined.push(part);
    }
    joined
}

/// Returns the file that `execvp` would run.
fn find(name: &OsStr, path: &OsStr) -> Result<PathBuf, RecordError> {
    let not_found = || RecordError::CommandNotFound { program: name.to_owned() };
    if name.is_empty() {
        return Err(not_found());
    }
    let not_executable = |source| RecordError::NotExecutable { program: name.to_owned(), source };
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match check(&file) {
            Ok(()) => Ok(file),
            Err(error) if is_absent(&error) => Err(not_found()),
            Err(error) => Err(not_executable(error)),
        };
    }
    let mut refused = None;
    for directory in std::env::split_paths(path) {
        // An empty entry is the current directory; with `./`, the path is not searched for again.
        let directory = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
        let file = directory.join(name);
        match check(&file) {
            Ok(()) => return Ok(file),
            Err(error) if is_absent(&error) => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.map_or_else(not_found, not_executable))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn check(file: &Path) -> io::Result<()> {
    if std::fs::metadata(file)?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(rustix::fs::access(file, Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests;
