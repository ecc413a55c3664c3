//! The output file: created before the command starts, and named once its pid is known.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::error::RecordError;
use crate::session::random_digits;

/// A new, empty output file. Unless it is kept, it is removed when dropped.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    path: PathBuf,
    /// True until the default name is given.
    is_unnamed: bool,
    /// True if the file is ours to remove.
    is_ours: bool,
    /// The path of the file that it will replace.
    replaces: Option<PathBuf>,
    segments: Option<Segments>,
}

/// The files of an output that continues in further files.
#[derive(Debug)]
struct Segments {
    /// The name without a number.
    base: PathBuf,
    /// The number of the current file, from 1.
    number: u32,
    /// The files that exist, the oldest first.
    kept: VecDeque<PathBuf>,
}

impl Output {
    /// Creates the file under the name that was asked for, or under a temporary one.
    pub(crate) fn create(path: Option<&Path>, force: bool, has_segments: bool) -> Result<Output, RecordError> {
        let segments = has_segments.then(|| Segments {
            base: path.map(Path::to_owned).unwrap_or_default(),
            number: 1,
            kept: path.map(|path| segment_path(path, 1)).into_iter().collect(),
        });
        let first = path.map(|path| if has_segments { segment_path(path, 1) } else { path.to_owned() });
        let Some(path) = first.as_deref() else {
            let failed = |source| RecordError::CreateOutput { path: PathBuf::from("."), source };
            let path = temporary_path(None).map_err(failed)?;
            let file = new_file(&path).map_err(failed)?;
            return Ok(Output { file, path, is_unnamed: true, is_ours: true, replaces: None, segments });
        };
        let failed = |source| RecordError::CreateOutput { path: path.to_owned(), source };
        let output = |file, is_ours| Output {
            file,
            path: path.to_owned(),
            is_unnamed: false,
            is_ours,
            replaces: None,
            segments,
        };
        match new_file(path) {
            Ok(file) => Ok(output(file, true)),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
            // A device or a pipe is written to as it is, and so is a descriptor of the shell, such
            // as /dev/fd/3.
            Err(_) if is_stream(path) => {
                OpenOptions::new().append(true).open(path).map(|file| output(file, false)).map_err(failed)
            }
            Err(_) if !force => Err(RecordError::OutputExists { path: path.to_owned() }),
            // A file is replaced, not overwritten, so a process that has it mapped keeps the old
            // contents. It is replaced only when the program runs.
            Err(_) => {
                let temporary = temporary_path(path.parent()).map_err(failed)?;
                let mut output = output(new_file(&temporary).map_err(failed)?, true);
                (output.path, output.replaces) = (temporary, Some(path.to_owned()));
                Ok(output)
            }
        }
    }

    /// Gives the file its final name. Without a name that was asked for, this is
    /// `heapledger.PROGRAM.PID.hl`, or with a number before the ending if that exists and is not to
    /// be replaced.
    pub(crate) fn name(&mut self, program: &OsStr, pid: u32, force: bool) -> Result<(), RecordError> {
        if let Some(path) = self.replaces.take() {
            std::fs::rename(&self.path, &path)
                .map_err(|source| RecordError::CreateOutput { path: path.clone(), source })?;
            self.path = path;
        }
        if !self.is_unnamed {
            return Ok(());
        }
        let mut number = 0_u32;
        loop {
            let mut name = OsString::from("heapledger.");
            name.push(program);
            let ending = if number == 0 { format!(".{pid}.hl") } else { format!(".{pid}.{number}.hl") };
            name.push(ending);
            let base = PathBuf::from(name);
            let path = if self.segments.is_some() { segment_path(&base, 1) } else { base.clone() };
            match rename(&self.path, &path, force) {
                Ok(()) => {
                    if let Some(segments) = &mut self.segments {
                        (segments.base, segments.kept) = (base, [path.clone()].into());
                    }
                    self.path = path;
                    self.is_unnamed = false;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(source) => return Err(RecordError::CreateOutput { path, source }),
            }
        }
    }

    /// Returns the number of files so far; 0 if only one was asked for.
    pub(crate) fn segments(&self) -> u32 {
        self.segments.as_ref().map_or(0, |segments| segments.number)
    }

    /// Returns the path of a file by its number, from 1, if it is kept.
    pub(crate) fn kept_segment(&self, number: u32) -> Option<&Path> {
        let segments = self.segments.as_ref()?;
        let path = segment_path(&segments.base, number);
        segments.kept.iter().find(|kept| **kept == path).map(PathBuf::as_path)
    }

    /// Returns the earlier files that are kept, the oldest first.
    pub(crate) fn earlier(&self) -> Vec<PathBuf> {
        let kept =
            self.segments.as_ref().map(|segments| segments.kept.iter().filter(|&path| *path != self.path).cloned());
        kept.into_iter().flatten().collect()
    }

    /// Creates the next file, and removes the oldest ones beyond the number to keep.
    pub(crate) fn next(&mut self, force: bool, keep: Option<u32>) -> Result<File, RecordError> {
        let Some(segments) = &mut self.segments else { return self.file() };
        let path = segment_path(&segments.base, segments.number + 1);
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => RecordError::OutputExists { path: path.clone() },
            _ => RecordError::CreateOutput { path: path.clone(), source },
        };
        if force {
            // It need not exist; if it cannot be removed, the next line fails.
            let _ = std::fs::remove_file(&path);
        }
        self.file = new_file(&path).map_err(failed)?;
        segments.number += 1;
        segments.kept.push_back(path.clone());
        self.path = path;
        while let Some(keep) = keep
            && segments.kept.len() > keep.max(1) as usize
            && let Some(oldest) = segments.kept.pop_front()
        {
            // The user may have moved it away.
            let _ = std::fs::remove_file(oldest);
        }
        self.file()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another handle of the open file.
    pub(crate) fn file(&self) -> Result<File, RecordError> {
        self.file.try_clone().map_err(|source| RecordError::CreateOutput { path: self.path.clone(), source })
    }

    /// Keeps the file when this is dropped.
    pub(crate) fn keep(&mut self) {
        self.is_ours = false;
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_ours {
            // There is already an error that this one would hide.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns `NAME.0007.hl` for `NAME.hl`, or `NAME.0007` without an ending.
fn segment_path(base: &Path, number: u32) -> PathBuf {
    let mut ending = format!("{number:04}");
    if let Some(given) = base.extension() {
        ending.push('.');
        let mut ending = OsString::from(ending);
        ending.push(given);
        return base.with_extension(ending);
    }
    base.with_extension(ending)
}

/// Returns an unused name in a directory.
fn temporary_path(directory: Option<&Path>) -> io::Result<PathBuf> {
    let mut name = OsString::from(".heapledger.");
    name.push(OsStr::from_bytes(&random_digits()?));
    Ok(directory.unwrap_or(Path::new("")).join(name))
}

/// True if the path is written to as it is, like a device or a pipe.
fn is_stream(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| {
        !metadata.is_file() && !metadata.is_dir() || path.starts_with("/dev") || path.starts_with("/proc")
    })
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn rename(from: &Path, to: &Path, force: bool) -> io::Result<()> {
    if force {
        return std::fs::rename(from, to);
    }
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support the flag. A file that appears between the two calls
        // would be replaced.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            if to.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(from, to)
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests;
