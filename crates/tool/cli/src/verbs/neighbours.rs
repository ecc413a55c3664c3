//! `heapledger callers` and `callees`: the amounts that go through one function.

use heapledger_analysis::{Amount, FunctionId, Relation, Relations, relations};
use heapledger_report_format::Row;
use serde::Serialize;

use crate::args::Neighbours;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::amounts::AmountJson;
use crate::json::document::Document;
use crate::json::names::LabelJson;
use crate::json::table::TableJson;
use crate::label::Labels;
use crate::output::Output;
use crate::question::Question;
use crate::views::sampled;
use crate::views::table::{Columns, limit, print_rows};

pub(crate) fn run(arguments: &Neighbours, relation: Relation, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let input = arguments.input.find_as(arguments.what.counts_mappings(), out)?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let profile = question.sums()?;
    let found = match question.kept_sites() {
        Some((table, set)) => {
            let (of, moment) = ((&arguments.of, relation), question.selection.moment);
            table.relations(&question.labels.names, &set, moment, of, metric)
        }
        None => relations(&profile, &mut question.labels.names, &arguments.of, relation, metric),
    };
    if found.functions.is_empty() {
        question.selection.filter.functions.push(arguments.of.clone());
        question.expect_match(true)?;
        let what = format!("no block {} has a stack with a function `{}`", question.what(), arguments.of);
        let hint = "FUNCTION is a part of a name, *wildcards* or /regex/; all that was ever allocated: add --total";
        return Err(Failure::new(Exit::Usage, what).hint(hint));
    }
    if let Some(form) = arguments.input.form() {
        return out.document(&json(&question, &found, relation, &profile.left_out, arguments.rows), form);
    }
    let labels = &question.labels;
    let names: Vec<String> = found.functions.iter().take(NAMED_MAX).map(|&id| labels.function(id)).collect();
    let more = if found.functions.len() > NAMED_MAX { ", …" } else { "" };
    let blocks = input.counted(&found.whole);
    let (size, what) = (sampled::bytes_of(&found.whole), question.what());
    out.title(format_args!("{size} in {blocks} {what}, through {}{more}", names.join(", ")))?;
    sampled::print_notice(question.recording, out)?;
    question.filters(&profile.left_out, out)?;
    let (shown, rest) = found.neighbours.split_at(found.neighbours.len().min(limit(arguments.rows)));
    let rows = shown.iter().map(|(neighbour, amount)| (row(labels, relation, *neighbour), *amount));
    let columns = Columns::of(&question);
    print_rows(columns, &found.whole, rows, rest.iter().map(|(_, amount)| *amount), out)?;
    out.hint(labels.hint_for_unnamed(shown.iter().filter_map(|(neighbour, _)| *neighbour)));
    Ok(())
}

/// The most functions that the title names.
const NAMED_MAX: usize = 3;

fn row(labels: &Labels<'_, '_>, relation: Relation, neighbour: Option<FunctionId>) -> Row {
    match (neighbour, relation) {
        (Some(function), _) => Row::default().line(labels.function(function), labels.place(function, None)),
        (None, Relation::Callers) => Row::new("(nobody)").note("it is the outermost"),
        (None, Relation::Callees) => Row::new("(itself)").note("it allocates"),
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NeighboursJson {
    /// The functions that match the name on the command line.
    functions: Vec<LabelJson>,
    #[serde(flatten)]
    table: TableJson<NeighbourJson>,
}

impl Document for NeighboursJson {
    const SCHEMA: &'static str = "neighbours";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NeighbourJson {
    #[serde(flatten)]
    amount: AmountJson,
    share: f64,
    /// `null` for callers: there is none; for callees: the function itself allocates.
    neighbour: Option<LabelJson>,
}

fn json(
    question: &Question<'_, '_>,
    found: &Relations,
    relation: Relation,
    left_out: &Amount,
    rows: usize,
) -> NeighboursJson {
    let (labels, metric, moment) = (&question.labels, question.metric, question.selection.moment);
    let by = match relation {
        Relation::Callers => "caller",
        Relation::Callees => "callee",
    };
    let mut table = TableJson::new(by, question, &found.whole, left_out, found.neighbours.len());
    let neighbour = |(neighbour, amount): &(Option<FunctionId>, Amount)| NeighbourJson {
        amount: AmountJson::new(amount, moment),
        share: amount.share(&found.whole, metric),
        neighbour: neighbour.map(|function| labels.label(function)),
    };
    table.rows = found.neighbours.iter().take(limit(rows)).map(neighbour).collect();
    NeighboursJson { functions: found.functions.iter().map(|&id| labels.label(id)).collect(), table }
}
