//! The program that is started to be watched: its recording, and its output meanwhile.

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use clap::{Args as _, FromArgMatches as _};
use rustix::stdio;
use tempfile::TempDir;

use crate::args::{Live, Record};
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// The file of a recording that is watched, which is removed with its directory unless the user has
/// named it.
#[derive(Debug)]
pub(super) struct RecordingFile {
    pub(super) path: PathBuf,
    _directory: Option<TempDir>,
}

impl RecordingFile {
    /// Chooses the file.
    pub(super) fn new(arguments: &Live) -> Result<RecordingFile> {
        if let Some(path) = &arguments.output {
            return Ok(RecordingFile { path: path.clone(), _directory: None });
        }
        let cannot = |error| Failure::caused(Exit::Unexpected, "cannot make a temporary directory", error);
        let directory = tempfile::Builder::new().prefix("heapledger-live.").tempdir().map_err(cannot)?;
        Ok(RecordingFile { path: directory.path().join("live.hl"), _directory: Some(directory) })
    }

    /// Returns the arguments of `record` for the command: those of the verb itself, so that it has
    /// all its defaults.
    pub(super) fn record(&self, arguments: &Live) -> Result<Record> {
        // A file that is removed needs no names.
        let names = if self._directory.is_some() { "none" } else { "auto" };
        let words = ["record", "--quiet", "--names", names].map(Into::into).into_iter();
        let words = words.chain(arguments.force.then(|| "--force".into()));
        let words = words.chain(["-o".into(), self.path.clone().into_os_string(), "--".into()]);
        let words = words.chain(arguments.command.iter().cloned());
        let matches = Record::augment_args(clap::Command::new("record")).try_get_matches_from(words);
        let record = matches.and_then(|matches| Record::from_arg_matches(&matches));
        record.map_err(|error| Failure::from_error(Exit::Usage, error))
    }
}

/// The standard streams of this process while a program has others in their places.
#[derive(Debug)]
pub(super) struct Diverted {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// The output of the program, if it is kept for later.
    kept: Option<File>,
}

impl Diverted {
    /// Gives the program's standard output to standard error: ours is for JSON.
    pub(super) fn to_stderr() -> Result<Diverted> {
        Diverted::new(None, |diverted| stdio::dup2_stdout(&diverted.stderr))
    }

    /// Keeps the program's output, and gives it no input: the terminal is for the view.
    pub(super) fn to_file() -> Result<Diverted> {
        let cannot = |error| Failure::caused(Exit::Unexpected, "cannot keep the program's output", error);
        let kept = tempfile::tempfile().map_err(cannot)?;
        let nothing = File::open("/dev/null").map_err(cannot)?;
        Diverted::new(Some(kept), |diverted| {
            stdio::dup2_stdin(&nothing)?;
            let Some(kept) = &diverted.kept else { return Ok(()) };
            stdio::dup2_stdout(kept)?;
            stdio::dup2_stderr(kept)
        })
    }

    fn new(kept: Option<File>, divert: impl FnOnce(&Diverted) -> rustix::io::Result<()>) -> Result<Diverted> {
        let cannot = |error: io::Error| Failure::caused(Exit::Unexpected, "cannot divert the program's output", error);
        let own = |stream: &dyn AsFd| stream.as_fd().try_clone_to_owned().map_err(cannot);
        let (stdin, stdout, stderr) = (own(&io::stdin())?, own(&io::stdout())?, own(&io::stderr())?);
        let diverted = Diverted { stdin, stdout, stderr, kept };
        divert(&diverted).map_err(|error| cannot(error.into()))?;
        Ok(diverted)
    }

    /// Returns this process's standard output.
    pub(super) fn stdout(&self) -> io::Result<File> {
        Ok(File::from(self.stdout.try_clone()?))
    }

    /// Puts the streams back, and writes what the program has written meanwhile.
    pub(super) fn end(mut self) -> io::Result<()> {
        stdio::dup2_stdin(&self.stdin)?;
        stdio::dup2_stdout(&self.stdout)?;
        stdio::dup2_stderr(&self.stderr)?;
        if let Some(kept) = &mut self.kept {
            kept.rewind()?;
            io::copy(kept, &mut File::from(self.stdout.try_clone()?))?;
        }
        Ok(())
    }
}
