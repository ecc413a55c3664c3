//! `heapledger anonymize`: a recording that can be shown to others.

use heapledger_analysis::rewrite::{self, Kept};

use crate::args::Anonymize;
use crate::error::Result;
use crate::input::Input;
use crate::new_file::NewFile;

pub(crate) fn run(arguments: &Anonymize) -> Result<()> {
    let input = Input::find(arguments.file.as_deref())?;
    let recording = input.open()?;
    let target = NewFile::create(&arguments.target)?;
    let kept = Kept { names: arguments.keep_names, build_ids: arguments.keep_build_ids };
    let damage = rewrite::anonymize(&recording, kept, target.draft()?).map_err(|error| target.failed(error))?;
    input.warn_of(&damage);
    target.keep();
    Ok(())
}
