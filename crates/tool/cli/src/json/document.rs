//! Answers for other programs: `--json` and `--csv`.

use std::io::{self, Write};

use serde::Serialize;

use crate::error::{Failure, Result};
use crate::exit::Exit;

mod rows;

/// The form of an answer that is not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Csv,
}

/// An answer that `--json` prints. As long as its version stays the same, things are only added to
/// it.
pub(crate) trait Document: Serialize {
    /// Its name, and that of its JSON Schema: `docs/json/NAME.schema.json`.
    const SCHEMA: &'static str;
    const VERSION: u32 = 1;
    /// The list in it that `--csv` prints, if any.
    const ROWS: Option<&'static str> = Some("rows");
}

/// A document with its name.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Named<'d, D> {
    schema: String,
    version: u32,
    #[serde(flatten)]
    document: &'d D,
}

impl<'d, D: Document> Named<'d, D> {
    fn new(document: &'d D) -> Self {
        Named { schema: format!("heapledger/{}", D::SCHEMA), version: D::VERSION, document }
    }
}

/// Writes a document.
pub(crate) fn write<D: Document>(document: &D, form: Form, out: &mut dyn Write) -> Result<()> {
    match (form, D::ROWS) {
        (Form::Json, _) => {
            write_json(document, out)?;
            writeln!(out)?;
            Ok(())
        }
        (Form::Csv, Some(rows)) => {
            let mut text = Vec::new();
            write_json(document, &mut text)?;
            Ok(rows::write(&text, rows, out)?)
        }
        (Form::Csv, None) => {
            Err(Failure::new(Exit::Usage, "this answer is no table: there is no CSV of it")
                .hint("--json has all of it"))
        }
    }
}

/// Returns the JSON of a document in one line, for a document that is followed by others.
pub(crate) fn line<D: Document>(document: &D) -> Result<String> {
    Ok(serde_json::to_string(&Named::new(document)).map_err(io::Error::from)?)
}

/// Writes the JSON of a document, for both forms: each further serializer would compile all
/// documents once more.
fn write_json<D: Document>(document: &D, out: &mut dyn Write) -> io::Result<()> {
    Ok(serde_json::to_writer_pretty(out, &Named::new(document))?)
}

#[cfg(test)]
mod tests;
