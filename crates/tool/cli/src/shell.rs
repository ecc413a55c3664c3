//! `heapledger completions` and `heapledger man`: from the same tree as the help.

use std::fs;
use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Arguments, Completions};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;

pub(crate) fn completions(arguments: &Completions, out: &mut Output) -> Result<()> {
    // Into memory first: clap_complete does not return errors of the stream.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "heapledger", &mut script);
    out.stream().write_all(&script)?;
    Ok(())
}

pub(crate) fn man(directory: Option<&Path>, out: &mut Output) -> Result<()> {
    let command = Arguments::command();
    let Some(directory) = directory else {
        Man::new(command).render(out.stream())?;
        return Ok(());
    };
    let written = fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command, directory));
    written.map_err(|error| {
        Failure::caused(Exit::Unexpected, format_args!("cannot write to `{}`", directory.display()), error)
    })
}
