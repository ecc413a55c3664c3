//! `heapledger merge`: several recordings as one.

use heapledger_analysis::rewrite::{self, Error};

use crate::args::Merge;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::new_file::NewFile;

pub(crate) fn run(arguments: &Merge) -> Result<()> {
    let inputs = arguments.files.iter().map(|file| Input::map(file)).collect::<Result<Vec<_>>>()?;
    let recordings = inputs.iter().map(Input::open).collect::<Result<Vec<_>>>()?;
    let target = NewFile::create(&arguments.target)?;
    let mut draft = target.draft()?;
    let merged = rewrite::merge(&recordings.iter().collect::<Vec<_>>(), &mut draft);
    let (footer, damage) = merged.map_err(|error| match error {
        Error::BeginsInMidRun(at) | Error::WithoutEvents(at) => {
            Failure::caused(Exit::Usage, format_args!("cannot merge `{}`", inputs[at].path.display()), error)
        }
        error => target.failed(error),
    })?;
    for (input, damage) in inputs.iter().zip(&damage) {
        input.warn_of(damage);
    }
    target.count_and_keep(draft, footer)
}
