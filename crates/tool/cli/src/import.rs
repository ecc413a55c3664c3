//! `heapledger import`: a recording of another tool's file.

use std::fs;

use crate::args::Import;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::foreign::Foreign;
use crate::input::told;
use crate::new_file::NewFile;

pub(crate) fn run(arguments: &Import) -> Result<()> {
    let path = &arguments.file;
    let cannot = || format!("cannot read `{}`", path.display());
    let bytes = fs::read(path).map_err(|error| Failure::caused(Exit::Unreadable, cannot(), error))?;
    let Some(foreign) = Foreign::of(&bytes) else {
        return Err(Failure::new(
            Exit::Unreadable,
            format_args!("{}: it is in no format that is known here", cannot()),
        )
        .hint("`heapledger import --help` lists the formats"));
    };
    let target = NewFile::recording(&arguments.target, &[path])?;
    let imported = foreign.import(&bytes, &target.file()?).map_err(|error| error.failure(path))?;
    told(path, foreign, &imported);
    target.keep()
}
