//! `heapledger explain`: the meaning of a code.

use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use crate::args::Explain;
use crate::code::{Code, EXPLANATIONS, Explanation};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::wrapped;
use crate::json::document::{Document, Form};
use crate::output::Output;

/// The width of a line, in characters.
const WIDTH: usize = 80;

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ExplanationJson {
    code: String,
    title: &'static str,
    cause: &'static str,
    consequence: &'static str,
    remedy: &'static str,
}

impl Document for ExplanationJson {
    const SCHEMA: &'static str = "explanation";
    const ROWS: Option<&'static str> = None;
}

/// The explanations of all codes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ExplanationsJson {
    rows: Vec<ExplanationJson>,
}

impl Document for ExplanationsJson {
    const SCHEMA: &'static str = "explanations";
}

impl From<&Explanation> for ExplanationJson {
    fn from(explanation: &Explanation) -> ExplanationJson {
        let Explanation { cause, consequence, remedy, .. } = *explanation;
        ExplanationJson { code: explanation.code.to_string(), title: explanation.title(), cause, consequence, remedy }
    }
}

pub(crate) fn run(arguments: &Explain, out: &mut Output) -> Result<()> {
    let Some(code) = &arguments.code else { return list(arguments.json, out) };
    let explanation = Code::parse(code).ok_or_else(|| {
        Failure::new(Exit::Usage, format_args!("there is no code `{code}`"))
            .hint("`heapledger explain` lists all codes")
    })?;
    if arguments.json {
        return out.document(&ExplanationJson::from(explanation), Form::Json);
    }
    out.title(format_args!("{}: {}", explanation.code, explanation.title()))?;
    for (name, text) in
        [("Why", explanation.cause), ("What follows", explanation.consequence), ("What to do", explanation.remedy)]
    {
        out.line("")?;
        out.title(name)?;
        for line in wrapped(text, WIDTH) {
            out.line(line)?;
        }
    }
    Ok(())
}

fn list(as_json: bool, out: &mut Output) -> Result<()> {
    if as_json {
        let rows = EXPLANATIONS.iter().map(ExplanationJson::from).collect();
        return out.document(&ExplanationsJson { rows }, Form::Json);
    }
    let mut table = Tree::new(["code"]);
    for explanation in EXPLANATIONS {
        table.push(0, Row::new(explanation.title()).cells([explanation.code.to_string()]));
    }
    Ok(out.tree(&table)?)
}
