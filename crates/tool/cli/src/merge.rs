//! `heapledger merge`: several recordings as one.

use heapledger_analysis::rewrite;

use crate::args::Merge;
use crate::error::Result;
use crate::input::Input;
use crate::new_file::NewFile;

pub(crate) fn run(arguments: &Merge) -> Result<()> {
    let inputs = arguments.files.iter().map(|file| Input::map(file)).collect::<Result<Vec<_>>>()?;
    let recordings = inputs.iter().map(Input::open).collect::<Result<Vec<_>>>()?;
    let target = NewFile::create(&arguments.target)?;
    let mut draft = target.draft()?;
    let (footer, damage) =
        rewrite::merge(&recordings.iter().collect::<Vec<_>>(), &mut draft).map_err(|error| target.failed(error))?;
    for (input, damage) in inputs.iter().zip(&damage) {
        input.warn_of(damage);
    }
    target.count_and_finish(draft, footer)
}
