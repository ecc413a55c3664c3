//! `heapledger import`: a recording of another tool's file.

use std::fs;

use crate::args::Import;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::import_format::ImportFormat;
use crate::input::notify_of_import;
use crate::new_file::NewFile;

pub(crate) fn run(arguments: &Import) -> Result<()> {
    let path = &arguments.file;
    let cannot = || format!("cannot read `{}`", path.display());
    let bytes = fs::read(path).map_err(|error| Failure::caused(Exit::Unreadable, cannot(), error))?;
    let Some(import_format) = ImportFormat::of(&bytes) else {
        return Err(Failure::new(
            Exit::Unreadable,
            format_args!("{}: it is in no format that is known here", cannot()),
        )
        .hint("`heapledger import --help` lists the formats"));
    };
    let target = NewFile::recording(&arguments.target, &[path])?;
    let imported = import_format.import(&bytes, &target.file()?).map_err(|error| error.failure(path))?;
    notify_of_import(path, import_format, &imported);
    target.keep()
}
