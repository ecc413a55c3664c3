//! Files that verbs write: each appears under its name only once it is complete, or not at all.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use heapledger_analysis::rewrite::{self, Draft};
use heapledger_recording::Footer;
use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, linkat, renameat_with};
use tempfile::NamedTempFile;

use crate::args::Target;
use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::bytes;
use crate::input::Input;
use crate::messages::notify;
use crate::progress::Progress;
use crate::text::{quoted, shown};

/// A file that is being written. It is removed unless it is [kept](NewFile::keep).
#[derive(Debug)]
pub(crate) struct NewFile {
    /// The unpublished file, if the contents are held back until they are complete.
    draft: Option<Unpublished>,
    destination: Destination,
    path: PathBuf,
    note: Note,
}

/// The note that is printed when the file is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Note {
    Nothing,
    Name,
    NameAndLength,
}

/// The destination of the bytes.
#[derive(Debug)]
enum Destination {
    Stdout,
    /// A device or a pipe.
    Stream(File),
    /// A name in the file system, which may be taken already if its file is to be replaced.
    Name {
        replaces: bool,
    },
    /// The name of a file that is replaced only if it still exists.
    Kept,
}

/// A new file that is not visible under its name yet.
#[derive(Debug)]
enum Unpublished {
    /// A file without a name, which disappears when this process ends, however it ends.
    Unnamed(File),
    /// A file under a temporary name, if the file system does not support files without one.
    Named(NamedTempFile),
}

impl NewFile {
    /// Begins a file; `-` is standard output, and devices and pipes are written to directly.
    /// Refuses to replace a file without `force`, and to overwrite any of `inputs`, which are read.
    pub(crate) fn create(path: &Path, force: bool, inputs: &[&Path]) -> Result<NewFile> {
        NewFile::create_for(0o666, path, force, inputs)
    }

    /// Begins a file that only its owner may read, otherwise as [`create`](NewFile::create) does.
    pub(crate) fn create_private(path: &Path, force: bool, inputs: &[&Path]) -> Result<NewFile> {
        NewFile::create_for(0o600, path, force, inputs)
    }

    fn create_for(mode: u32, path: &Path, force: bool, inputs: &[&Path]) -> Result<NewFile> {
        let (destination, before) = destination(path, force, inputs)?;
        let draft = match destination {
            Destination::Name { .. } | Destination::Kept => {
                // A file that is replaced keeps its permissions.
                let mode = before.as_ref().map_or(mode, |before| before.mode() & 0o777);
                Some(Unpublished::create_in_directory(path, mode).map_err(|error| cannot_begin(path, error))?)
            }
            Destination::Stdout | Destination::Stream(_) => None,
        };
        if let (Some(draft), Some(before)) = (&draft, before) {
            let permissions = Permissions::from_mode(before.mode() & 0o777);
            draft.file().set_permissions(permissions).map_err(|error| cannot(path, error))?;
        }
        Ok(NewFile { draft, destination, path: path.to_owned(), note: Note::Name })
    }

    /// Begins a recording that only its owner may read. Even for a device or a pipe, all of it is
    /// held back, because parts of a recording are read again while it is written.
    pub(crate) fn recording(target: &Target, inputs: &[&Path]) -> Result<NewFile> {
        let path = &target.output;
        let (destination, _) = destination(path, target.force, inputs)?;
        let draft = match destination {
            Destination::Name { .. } | Destination::Kept => Unpublished::create_in_directory(path, 0o600),
            Destination::Stdout | Destination::Stream(_) => tempfile::tempfile().map(Unpublished::Unnamed),
        };
        let draft = draft.map_err(|error| cannot_begin(path, error))?;
        Ok(NewFile { draft: Some(draft), destination, path: path.clone(), note: Note::NameAndLength })
    }

    /// Suppresses the note at the end.
    pub(crate) fn quiet(self) -> NewFile {
        NewFile { note: Note::Nothing, ..self }
    }

    /// Replaces an existing file only if it has not been removed in the meantime.
    pub(crate) fn if_still_there(self) -> NewFile {
        let destination = match self.destination {
            Destination::Name { replaces: true } => Destination::Kept,
            destination => destination,
        };
        NewFile { destination, ..self }
    }

    /// Writes the file, and gives it its name; or writes to `stdout`, if that is the destination.
    pub(crate) fn write(
        mut self,
        stdout: &mut dyn Write,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        let file = match (&self.draft, &mut self.destination) {
            (Some(draft), _) => draft.file(),
            (None, Destination::Stream(file)) => file,
            (None, _) => return Ok(write(stdout)?),
        };
        let mut file = BufWriter::new(file);
        let written = write(&mut file).and_then(|()| file.flush());
        drop(file);
        written.map_err(|error| cannot(&self.path, error))?;
        self.keep()
    }

    /// Returns a handle of its own on the stream to write to; `None` for standard output.
    pub(crate) fn stream(&self) -> Result<Option<File>> {
        let file = match (&self.draft, &self.destination) {
            (Some(draft), _) => draft.file(),
            (None, Destination::Stream(file)) => file,
            (None, _) => return Ok(None),
        };
        file.try_clone().map(Some).map_err(|error| self.cannot(error))
    }

    pub(crate) fn cannot(&self, why: io::Error) -> Failure {
        cannot(&self.path, why)
    }

    /// Returns a draft that writes a recording into the file.
    pub(crate) fn draft(&self) -> Result<Draft<File>> {
        Ok(Draft::new(self.file()?))
    }

    /// Returns a handle on the unpublished file.
    pub(crate) fn file(&self) -> Result<File> {
        let file = self.draft.as_ref().map(|draft| draft.file().try_clone());
        file.unwrap_or_else(|| Err(ErrorKind::Unsupported.into())).map_err(|error| cannot(&self.path, error))
    }

    /// Counts the events in the draft, ends the file with the totals, and keeps it.
    pub(crate) fn count_and_keep(self, mut draft: Draft<File>, footer: Footer) -> Result<()> {
        draft.flush().map_err(|error| self.failed(error))?;
        let input = Input::map(&self.draft.as_ref().map(Unpublished::path).unwrap_or_default())?;
        let so_far = input.recording()?;
        let mut progress = Progress::new();
        draft
            .count_and_finish(&so_far, footer, &mut |done, all| progress.events(done, all))
            .map_err(|error| self.failed(error))?;
        drop(progress);
        self.keep()
    }

    /// Gives the complete file its name, or copies it to its destination.
    pub(crate) fn keep(self) -> Result<()> {
        let NewFile { draft, destination, path, note } = self;
        let Some(draft) = draft else { return Ok(()) };
        let length = draft.file().metadata().map_err(|error| cannot(&path, error))?.len();
        let kept = match destination {
            Destination::Name { replaces } => draft.rename(&path, replaces),
            Destination::Kept => draft.exchange(&path),
            Destination::Stream(mut file) => draft.copy(&mut file),
            Destination::Stdout => return Ok(draft.copy(&mut io::stdout())?),
        };
        match kept {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(exists(&path)),
            Err(error) => return Err(cannot(&path, error)),
        }
        match note {
            Note::Nothing => {}
            Note::Name => notify(format_args!("heapledger: wrote {}", shown(&path))),
            Note::NameAndLength => notify(format_args!("heapledger: wrote {} ({})", shown(&path), bytes(length))),
        }
        Ok(())
    }

    pub(crate) fn failed(&self, error: rewrite::Error) -> Failure {
        match error {
            rewrite::Error::Write(error) => cannot(&self.path, error),
            error => Failure::caused(Exit::Unreadable, format_args!("cannot write `{}`", self.path.display()), error),
        }
    }
}

impl Unpublished {
    /// Creates a file in the directory of its future name.
    fn create_in_directory(path: &Path, mode: u32) -> io::Result<Unpublished> {
        let directory = directory(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(mode).custom_flags(OFlags::TMPFILE.bits() as i32);
        let unnamed = options.open(directory).map(Unpublished::Unnamed);
        match unnamed {
            // The file gets its name later by way of /proc, which must be mounted.
            Ok(unnamed) if unnamed.path().exists() => return Ok(unnamed),
            // This error would also prevent creating a file with a name.
            Err(error) if directory_hint(path, error.kind()).is_some() => return Err(error),
            _ => {}
        }
        let mut named = tempfile::Builder::new();
        named
            .prefix(".heapledger.")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)
            .map(Unpublished::Named)
    }

    fn file(&self) -> &File {
        match self {
            Unpublished::Unnamed(file) => file,
            Unpublished::Named(file) => file.as_file(),
        }
    }

    /// Returns a path by which the file can be opened.
    fn path(&self) -> PathBuf {
        match self {
            Unpublished::Unnamed(file) => format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
            Unpublished::Named(file) => file.path().to_owned(),
        }
    }

    /// Gives the file its name.
    fn rename(self, to: &Path, replaces: bool) -> io::Result<()> {
        // If the name is a symbolic link, its target is replaced, not the link.
        let to = if replaces { fs::canonicalize(to).unwrap_or_else(|_| to.to_owned()) } else { to.to_owned() };
        let file = match self {
            Unpublished::Named(file) if replaces => return file.persist(to).map(drop).map_err(|error| error.error),
            Unpublished::Named(file) => return file.persist_noclobber(to).map(drop).map_err(|error| error.error),
            Unpublished::Unnamed(_) => self.path(),
        };
        let name = |name: &Path| linkat(CWD, &file, CWD, name, AtFlags::SYMLINK_FOLLOW);
        match name(&to) {
            // `linkat` cannot replace a name; only a rename can.
            Err(rustix::io::Errno::EXIST) if replaces => {
                let temporary = directory(&to).join(format!(".heapledger.{}", std::process::id()));
                // An earlier process with the same pid may have left one behind.
                let _ = fs::remove_file(&temporary);
                name(&temporary)?;
                fs::rename(&temporary, &to).inspect_err(|_| {
                    let _ = fs::remove_file(&temporary);
                })
            }
            named => Ok(named?),
        }
    }

    /// Takes the place of an existing file. Fails if there is none any more, or if the file system
    /// cannot exchange names.
    fn exchange(self, with: &Path) -> io::Result<()> {
        let temporary = directory(with).join(format!(".heapledger.{}.part", std::process::id()));
        // An earlier process with the same pid may have left one behind.
        let _ = fs::remove_file(&temporary);
        linkat(CWD, self.path(), CWD, &temporary, AtFlags::SYMLINK_FOLLOW)?;
        let exchanged = renameat_with(CWD, &temporary, CWD, with, RenameFlags::EXCHANGE);
        // By now this is the old file, or the new one if the exchange failed.
        let _ = fs::remove_file(&temporary);
        Ok(exchanged?)
    }

    /// Copies the whole file to a stream.
    fn copy(&self, to: &mut impl Write) -> io::Result<()> {
        let mut file = self.file();
        file.rewind()?;
        io::copy(&mut file, to)?;
        to.flush()
    }
}

/// Returns the destination for a path, and the metadata of the file that exists there.
fn destination(path: &Path, force: bool, inputs: &[&Path]) -> Result<(Destination, Option<fs::Metadata>)> {
    if ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].map(Path::new).contains(&path) {
        return Ok((Destination::Stdout, None));
    }
    let Ok(before) = fs::metadata(path) else { return Ok((Destination::Name { replaces: force }, None)) };
    let is_it = |input: fs::Metadata| (input.dev(), input.ino()) == (before.dev(), before.ino());
    if before.is_file() && inputs.iter().any(|input| fs::metadata(input).is_ok_and(is_it)) {
        let what = format_args!("`{}` is read, and cannot be written at the same time", path.display());
        return Err(Failure::new(Exit::Usage, what).hint("give the new file another name"));
    }
    if before.is_dir() {
        let hint = format!("name a file in it: {}", shown(&path.join("NAME")));
        return Err(cannot(path, ErrorKind::IsADirectory.into()).hint(hint));
    }
    if is_stream(path, &before) {
        let stream = OpenOptions::new().append(true).open(path).map_err(|error| cannot(path, error))?;
        return Ok((Destination::Stream(stream), None));
    }
    if force { Ok((Destination::Name { replaces: true }, Some(before))) } else { Err(exists(path)) }
}

/// True if an existing file is written to in place, and not replaced.
pub(crate) fn is_stream(path: &Path, there: &fs::Metadata) -> bool {
    // One of the shell's descriptors, such as /dev/fd/3, may be a regular file.
    !there.is_file() || path.starts_with("/dev") || path.starts_with("/proc")
}

/// Returns the directory of a path.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn exists(path: &Path) -> Failure {
    let what = format_args!("cannot write `{}`: it exists", path.display());
    Failure::new(Exit::Unexpected, what).code(Code::FileExists).hint("to replace it, add --force")
}

fn cannot(path: &Path, why: io::Error) -> Failure {
    Failure::caused(Exit::Unexpected, format_args!("cannot write `{}`", path.display()), why).code(Code::CannotWrite)
}

fn cannot_begin(path: &Path, why: io::Error) -> Failure {
    match directory_hint(path, why.kind()) {
        Some(hint) => cannot(path, why).hint(hint),
        None => cannot(path, why),
    }
}

/// Returns a remedy if a file cannot be created because of its directory.
pub(crate) fn directory_hint(path: &Path, why: ErrorKind) -> Option<String> {
    let directory = shown(directory(path));
    match why {
        ErrorKind::NotFound => {
            Some(format!("there is no directory `{directory}`; to make it: mkdir -p {}", quoted(&directory)))
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Some(format!("the directory `{directory}` cannot be written; name a file in another one: -o FILE"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Covers both kinds of unpublished files.
    #[test]
    fn a_name_is_taken_over_only_by_force() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let named = || tempfile::Builder::new().tempfile_in(directory.path()).map(Unpublished::Named);
        for unseen in [&|path: &Path| Unpublished::create_in_directory(path, 0o666), &|_: &Path| named()]
            as [&dyn Fn(&Path) -> io::Result<Unpublished>; 2]
        {
            let begin = |text: &str| {
                let unseen: Unpublished = unseen(&path).unwrap();
                unseen.file().write_all(text.as_bytes()).unwrap();
                assert_eq!(fs::read(unseen.path()).unwrap(), text.as_bytes());
                unseen
            };
            drop(begin("dropped"));
            assert!(names(directory.path()).is_empty());
            begin("one").rename(&path, false).unwrap();
            assert_eq!(begin("two").rename(&path, false).unwrap_err().kind(), ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&path).unwrap(), b"one");
            begin("three").rename(&path, true).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"three");
            assert_eq!(names(directory.path()), ["x"]);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_is_there_is_safe() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("x"), directory.path().join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let refused =
            |path: &Path, force, inputs: &[&Path]| NewFile::create(path, force, inputs).unwrap_err().to_string();
        assert!(refused(&path, false, &[]).contains("--force"));
        assert!(refused(&link, true, &[&path]).contains("is read"));
        assert!(refused(directory.path(), true, &[]).contains("NAME"));
        assert!(refused(&directory.path().join("no/x"), false, &[]).contains("mkdir -p"));
        let failing = |_: &mut dyn Write| Err(io::Error::other("no"));
        NewFile::create(&path, true, &[]).unwrap().write(&mut io::sink(), failing).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        NewFile::create(&link, true, &[]).unwrap().write(&mut io::sink(), |file| file.write_all(b"new")).unwrap();
        assert_eq!((fs::read(&path).unwrap(), link.is_symlink()), (b"new".to_vec(), true));
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
        assert_eq!(names(directory.path()), ["link", "x"]);
        NewFile::create(Path::new("/dev/null"), false, &[])
            .unwrap()
            .write(&mut io::sink(), |file| file.write_all(b"x"))
            .unwrap();
    }
}
