//! A recording that is made of others.

use std::fs::File;

use heapledger_analysis::rewrite::{self, Draft};
use heapledger_collect as collect;
use heapledger_recording::Footer;

use crate::args::Target;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::bytes;
use crate::input::{Input, shown};
use crate::output::tell;
use crate::progress::Progress;

/// A new recording. Nothing is left of it if it is not finished.
#[derive(Debug)]
pub(crate) struct NewFile(collect::Output);

impl NewFile {
    pub(crate) fn create(target: &Target) -> Result<NewFile> {
        collect::Output::create(Some(&target.output), target.force).map(NewFile).map_err(|error| match error {
            collect::Error::OutputExists { .. } => {
                Failure::from_error(Exit::Unexpected, error).hint("to replace it, add --force")
            }
            error => Failure::from_error(Exit::Unexpected, error),
        })
    }

    /// What is to be in it.
    pub(crate) fn draft(&self) -> Result<Draft<File>> {
        let file = self.0.file().map_err(|error| Failure::from_error(Exit::Unexpected, error))?;
        Ok(Draft::new(file))
    }

    /// Counts what the draft has, and ends the file with that.
    pub(crate) fn count_and_finish(self, mut draft: Draft<File>, footer: Footer) -> Result<()> {
        draft.flush().map_err(|error| self.failed(error))?;
        let input = Input::map(self.0.path())?;
        let so_far = input.recording()?;
        let mut progress = Progress::new();
        draft
            .count_and_finish(&so_far, footer, &mut |done, all| progress.events(done, all))
            .map_err(|error| self.failed(error))?;
        drop(progress);
        self.keep();
        Ok(())
    }

    /// The file is as it should be.
    pub(crate) fn keep(mut self) {
        self.0.keep();
        let length = std::fs::metadata(self.0.path()).map_or(0, |metadata| metadata.len());
        tell(format_args!("heapledger: wrote {} ({})", shown(self.0.path()), bytes(length)));
    }

    /// Why it was not written.
    pub(crate) fn failed(&self, error: rewrite::Error) -> Failure {
        let what = format!("cannot write `{}`", self.0.path().display());
        match error {
            rewrite::Error::Write(error) => Failure::caused(Exit::Unexpected, what, error),
            error => Failure::caused(Exit::Unreadable, what, error),
        }
    }
}
