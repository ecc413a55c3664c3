//! `heapledger leaks`: the blocks live at the end.

mod apart;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use heapledger_analysis::rewrite::MappedUse;
use heapledger_analysis::{Amount, Metric, Moment, RankBy, Suppressions};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use crate::args::{Depth, Leaks, Rows};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::input::Input;
use crate::json::amounts::AmountJson;
use crate::json::document::Document;
use crate::json::table::{RankJson, TableJson};
use crate::output::Output;
use crate::question::Question;
use crate::text::shown;
use crate::views::listing::Listing;
use crate::views::{parts, sampled};

/// A warning about what the figures mean.
const NOT_UNREACHABLE: &str = "Live at the end does not mean unreachable: the program may have used it until then.";
/// The most frames of a stack that are shown.
const FRAMES_MAX: usize = 12;

/// Runs the verb. With `--error-exitcode`, the exit status says whether leaks were shown.
pub(crate) fn run(arguments: &Leaks, out: &mut Output) -> Result<ExitCode> {
    let mut suppressions = read_all(&arguments.suppressions)?;
    let selection = arguments.what.resolve(arguments.input.at(), Moment::End)?;
    let input = arguments.input.find_as(arguments.metric.counts_mappings(), out)?;
    input.needs_history("what would be freed with each node: heapledger heap dominators FILE")?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, arguments.metric.into());
    let (by, depth) = match arguments.by.rows() {
        Rows::Sites(RankBy::Site, Depth::Callers) => (RankBy::Site, Depth::Stack(FRAMES_MAX)),
        Rows::Sites(by, depth) => (by, depth),
        Rows::Events(by) => return by_events(arguments, &mut question, by, out),
    };
    // Suppressions and kinds of mappings are found in the sites.
    let needs_sites = !arguments.suppressions.is_empty() || input.counts_mappings() || arguments.input.form().is_none();
    let mut profile = if needs_sites { question.profile() } else { question.sums() }?;
    let suppressed = match needs_sites {
        true => suppressions.apply(&mut profile, &mut question.labels.names),
        false => Amount::default(),
    };
    let apart = match input.counts_mappings() && question.selection.filter.heaps.is_empty() {
        true => apart::take(&mut profile, &question.labels.names),
        false => Vec::new(),
    };
    let listing = Listing { name: arguments.by.name(), by, depth, rows: arguments.rows };
    let status = status(arguments, &profile.whole);
    if let Some(form) = arguments.input.form() {
        let table = listing.document(&mut question, &profile);
        out.document(&json(table, &suppressions, &suppressed, &apart), form)?;
        return Ok(status);
    }
    question.headline(&profile.whole, &profile.left_out, out)?;
    question.allocated(profile.allocated, out)?;
    if !profile.sites.is_empty() && question.selection.moment == Moment::End {
        out.dim_line(NOT_UNREACHABLE)?;
    }
    listing.print(&mut question, &profile, out)?;
    apart::print(&apart, &input, out)?;
    used(&suppressions, &suppressed, &input, out)?;
    Ok(status)
}

/// Prints the blocks live at the end by part.
fn by_events(
    arguments: &Leaks,
    question: &mut Question<'_, '_>,
    by: heapledger_analysis::PartBy,
    out: &mut Output,
) -> Result<ExitCode> {
    if !arguments.suppressions.is_empty() {
        let by = arguments.by.name();
        return Err(Failure::new(
            Exit::Usage,
            format_args!("--suppressions are of stacks, which --by {by} does not look at"),
        )
        .hint("sum up by site, owner or function"));
    }
    let parts = parts::load(question, by)?;
    if let Some(form) = arguments.input.form() {
        out.document(&parts::document(question, &parts, arguments.by.name(), arguments.rows), form)?;
    } else {
        parts::print(question, &parts, arguments.rows, out)?;
    }
    Ok(status(arguments, &parts.whole))
}

/// Returns the exit status: with `--error-exitcode`, it says whether leaks were shown.
fn status(arguments: &Leaks, whole: &Amount) -> ExitCode {
    let failed = arguments.error_exitcode.filter(|_| whole.blocks.0 > 0);
    failed.map_or_else(|| Exit::Ok.into(), ExitCode::from)
}

fn read_all(paths: &[PathBuf]) -> Result<Suppressions> {
    let mut suppressions = Suppressions::default();
    for path in paths {
        let cannot = || format!("cannot read the suppressions in `{}`", shown(path));
        let text = fs::read_to_string(path).map_err(|error| Failure::caused(Exit::Usage, cannot(), error))?;
        suppressions.add(&text).map_err(|error| Failure::caused(Exit::Usage, cannot(), error))?;
    }
    Ok(suppressions)
}

/// Prints the suppressed amount, and the suppressions that matched.
fn used(suppressions: &Suppressions, suppressed: &Amount, input: &Input, out: &mut Output) -> Result<()> {
    if suppressed.is_nothing() {
        return Ok(());
    }
    let blocks = input.counted(suppressed);
    out.line("")?;
    out.title(format_args!("suppressed: {} in {blocks}", sampled::bytes_of(suppressed)))?;
    let mut table = Tree::new(["bytes", "blocks"]);
    for used in suppressions.iter().filter(|it| !it.amount.is_nothing()) {
        let cells = [Metric::Bytes, Metric::Blocks].map(|metric| sampled::cell(&used.amount, metric));
        table.push(0, Row::new(used.pattern.clone()).cells(cells));
    }
    Ok(out.tree(&table)?)
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LeaksJson {
    #[serde(flatten)]
    table: TableJson<RankJson>,
    /// The amount that suppressions leave out of the rows.
    suppressed: AmountJson,
    /// The suppressions in the order of the files, including those that matched nothing.
    suppressions: Vec<SuppressionJson>,
    /// With `--mappings`, the mappings that the program's own code did not make, which are left out
    /// of the rows, by kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    apart: Vec<ApartJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ApartJson {
    /// The kind of the mappings, such as `allocator` or `program and libraries`.
    kind: &'static str,
    #[serde(flatten)]
    amount: AmountJson,
}

impl Document for LeaksJson {
    const SCHEMA: &'static str = "leaks";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SuppressionJson {
    pattern: String,
    #[serde(flatten)]
    amount: AmountJson,
}

fn json(
    table: TableJson<RankJson>,
    suppressions: &Suppressions,
    suppressed: &Amount,
    apart: &[(MappedUse, Amount)],
) -> LeaksJson {
    let amount = |amount: &Amount| AmountJson::new(amount, Moment::End);
    let suppressions = suppressions
        .iter()
        .map(|it| SuppressionJson { pattern: it.pattern.clone(), amount: amount(&it.amount) })
        .collect();
    let apart = apart.iter().map(|(kind, it)| ApartJson { kind: kind.name(), amount: amount(it) }).collect();
    LeaksJson { table, suppressed: amount(suppressed), suppressions, apart }
}
