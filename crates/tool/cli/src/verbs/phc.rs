//! `heapledger phc`: shows the reports of the heap checker, from their file or from a core file.

pub(crate) mod errors;
pub(crate) mod under;

use std::fs::File;
use std::io::Read;

use heapledger_phc_report::{PhcFile, is_core, parse, read_core};
use heapledger_report_format::escape;
use object::read::ReadCache;
use serde::Serialize;

use self::errors::{HeapError, named};
use crate::args::Phc;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::document::{Document, Form};
use crate::mapped_names::Names;
use crate::output::Output;
use crate::symbols::symbolizer;

/// The bytes by which a core file is recognised.
const HEAD: u64 = 64;
/// The most bytes of a file of reports that are read.
const LENGTH_MAX: u64 = 64 << 20;

pub(crate) fn run(arguments: &Phc, out: &mut Output) -> Result<()> {
    let path = &arguments.file;
    let cannot = || format!("cannot read `{}`", path.display());
    let unreadable = |error| Failure::caused(Exit::Unreadable, cannot(), error);
    let mut input = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    (&mut input).take(HEAD).read_to_end(&mut bytes).map_err(unreadable)?;
    let mut names = Names::new(symbolizer(&arguments.symbols.files));
    if is_core(&bytes) {
        let core = read_core(&ReadCache::new(input)).map_err(|error| {
            Failure::caused(Exit::Unreadable, cannot(), error)
                .hint("a process has the heap checker with: heapledger run --phc -- COMMAND")
        })?;
        let file = core.file().map_err(|error| Failure::caused(Exit::Unreadable, cannot(), error))?;
        names.check_build_ids(core.build_ids.iter().cloned());
        return show(&file, names, arguments, out);
    }
    input.take(LENGTH_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = String::from_utf8_lossy(&bytes);
    let file = parse(&text).map_err(|error| {
        Failure::caused(Exit::Unreadable, cannot(), error)
            .hint("a file with reports is written by: heapledger run --phc -- COMMAND")
    })?;
    show(&file, names, arguments, out)
}

/// Prints the reports of a file, or of a core file.
fn show(file: &PhcFile<'_>, mut names: Names, arguments: &Phc, out: &mut Output) -> Result<()> {
    let errors: Vec<HeapError> = file.reports.iter().map(|report| named(report, &mut names)).collect();
    if arguments.json {
        let document = PhcJson {
            errors,
            blocks_sampled: file.blocks_sampled,
            blocks_refused: file.blocks_refused,
            off: file.off.len() as u64,
        };
        return out.document(&document, Form::Json);
    }
    if errors.is_empty() {
        out.line(if file.off.is_empty() { "no errors on the heap" } else { "the heap checker did not run" })?;
    }
    for (index, error) in errors.iter().enumerate() {
        if index > 0 {
            out.line("")?;
        }
        for line in error.lines() {
            out.line(line)?;
        }
    }
    out.hint(names.hint().map(|hint| escape(&hint).into_owned()));
    Ok(())
}

/// The document of `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PhcJson {
    errors: Vec<HeapError>,
    /// The blocks that were sampled in processes that have ended as they should.
    blocks_sampled: u64,
    /// The blocks that were to be sampled, and for which there was no slot.
    blocks_refused: u64,
    /// The number of processes in which the checker did not run.
    off: u64,
}

impl Document for PhcJson {
    const SCHEMA: &'static str = "phc";
    const ROWS: Option<&'static str> = Some("errors");
}
