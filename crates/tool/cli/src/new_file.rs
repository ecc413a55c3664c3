//! A file that is made of recordings: it appears under its name when it is whole, or not at all.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use heapledger_analysis::rewrite::{self, Draft};
use heapledger_recording::Footer;
use tempfile::NamedTempFile;

use crate::args::Target;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::bytes;
use crate::input::{Input, shown};
use crate::output::tell;
use crate::progress::Progress;

/// A new file under a passing name in the directory of its own name. Like all recordings it is readable by its owner
/// alone. Nothing is left of it if it is not [kept](NewFile::keep).
#[derive(Debug)]
pub(crate) struct NewFile {
    file: NamedTempFile,
    path: PathBuf,
    force: bool,
}

impl NewFile {
    pub(crate) fn create(target: &Target) -> Result<NewFile> {
        let path = target.output.clone();
        match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_file() => {
                return Err(cannot(&path, io::Error::other("it is there, and is not a file")));
            }
            Ok(_) if !target.force => return Err(exists(&path)),
            _ => {}
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().prefix(".heapledger.").tempfile_in(directory);
        let file = file.map_err(|error| cannot(&path, error))?;
        Ok(NewFile { file, path, force: target.force })
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &fs::File {
        self.file.as_file()
    }

    /// What is to be in it.
    pub(crate) fn draft(&self) -> Result<Draft<fs::File>> {
        let file = self.file.as_file().try_clone().map_err(|error| cannot(&self.path, error))?;
        Ok(Draft::new(file))
    }

    /// Counts what the draft has, and ends the file with that.
    pub(crate) fn count_and_keep(self, mut draft: Draft<fs::File>, footer: Footer) -> Result<()> {
        draft.flush().map_err(|error| self.failed(error))?;
        let input = Input::map(self.file.path())?;
        let so_far = input.recording()?;
        let mut progress = Progress::new();
        draft
            .count_and_finish(&so_far, footer, &mut |done, all| progress.events(done, all))
            .map_err(|error| self.failed(error))?;
        drop(progress);
        self.keep()
    }

    /// The file is as it should be: gives it its name.
    pub(crate) fn keep(self) -> Result<()> {
        let NewFile { file, path, force } = self;
        let length = file.as_file().metadata().map_err(|error| cannot(&path, error))?.len();
        let kept = if force { file.persist(&path) } else { file.persist_noclobber(&path) };
        match kept {
            Ok(_) => {}
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => return Err(exists(&path)),
            Err(error) => return Err(cannot(&path, error.error)),
        }
        tell(format_args!("heapledger: wrote {} ({})", shown(&path), bytes(length)));
        Ok(())
    }

    /// Why it was not written.
    pub(crate) fn failed(&self, error: rewrite::Error) -> Failure {
        match error {
            rewrite::Error::Write(error) => cannot(&self.path, error),
            error => Failure::caused(Exit::Unreadable, format_args!("cannot write `{}`", self.path.display()), error),
        }
    }
}

fn exists(path: &Path) -> Failure {
    cannot(path, io::Error::from(ErrorKind::AlreadyExists)).hint("to replace it, add --force")
}

fn cannot(path: &Path, why: io::Error) -> Failure {
    Failure::caused(Exit::Unexpected, format_args!("cannot write `{}`", path.display()), why)
}
