//! `heapledger tree`: the amounts held or allocated, as a tree of calls.

use heapledger_analysis::{CallId, CallTree, Direction};
use heapledger_report_format::Row;

use crate::args::Tree;
use crate::error::Result;
use crate::format::counted;
use crate::label::Labels;
use crate::output::Output;
use crate::question::Question;
use crate::views::call_tree::{Item, Levels, Limits, Shown, chain, json};
use crate::views::table::Columns;

pub(crate) fn run(arguments: &Tree, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let input = arguments.input.find_as(arguments.what.counts_mappings(), out)?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let levels = Levels::new(&arguments.by)?;
    let direction = if arguments.bottom_up { Direction::BottomUp } else { Direction::TopDown };
    let form = arguments.input.form();
    let least = form.map(|_| arguments.threshold / 100.0);
    let (profile, tree) = levels.tree(&mut question, direction, least)?;
    let mut limits = Limits {
        depth: arguments.depth.map_or(usize::MAX, |depth| depth as usize),
        least: arguments.threshold / 100.0,
        unfold: arguments.unfold,
        shown: None,
    };
    limits.keep_rows(arguments.rows, &tree, metric);
    if let Some(form) = form {
        return out.document(&json(&question, &profile, &tree, &limits, levels.shape(arguments.bottom_up)), form);
    }
    question.headline(&profile.whole, &profile.left_out, out)?;
    question.allocated(profile.allocated, out)?;
    let columns = Columns::of(&question);
    print(&question.labels, Shown { tree: &tree, limits: &limits, metric }, columns, out)
}

/// The numbers of lines kept at the start and at the end of a long chain, and the least number of
/// lines that shortening must save.
const CHAIN_START: usize = 5;
const CHAIN_END: usize = 4;
const CHAIN_SAVED: usize = 4;

fn print(labels: &Labels<'_, '_>, part: Shown<'_>, columns: Columns, out: &mut Output) -> Result<()> {
    let Shown { tree, limits, .. } = part;
    let whole = tree.node(CallId::ROOT).amount;
    let mut text = columns.table();
    // The items still to be printed, the next one last: nodes, or a summary of siblings that were
    // left out.
    let mut open: Vec<(usize, Item)> = Vec::new();
    let mut shown = Vec::new();
    part.expand(CallId::ROOT, 0, &mut open);
    while let Some((depth, item)) = open.pop() {
        match item {
            Item::Node(top) => {
                let chain = chain(tree, top);
                shown.extend(chain.iter().filter_map(|id| tree.node(*id).function));
                let bottom = chain.last().copied().unwrap_or(top);
                text.push(
                    depth,
                    chain_row(labels, tree, &chain, limits).cells(columns.cells(&tree.node(top).amount, &whole)),
                );
                part.expand(bottom, depth + 1, &mut open);
            }
            Item::LeftOut { nodes, amount } => {
                let row = Row::default().line("", format!("… {}", counted(nodes, "smaller one", "smaller ones")));
                text.push(depth, row.cells(columns.cells(&amount, &whole)));
            }
            Item::Deeper { nodes } => {
                text.push(depth, Row::default().line("", format!("… {} deeper", counted(nodes, "call", "calls"))));
            }
        }
    }
    out.line("")?;
    out.tree(&text)?;
    out.hint(labels.hint_for_unnamed(shown));
    Ok(())
}

/// Returns a row with a line for each function of a chain, shortened if it is too long.
fn chain_row(labels: &Labels<'_, '_>, tree: &CallTree, chain: &[CallId], limits: &Limits) -> Row {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut at = 0;
    while at < chain.len() {
        let mut functions = chain[at..].iter().filter_map(|id| tree.node(*id).function);
        // The functions at both ends of a chain are not folded: the tree branches there, or the
        // last one allocates.
        let inner = functions.clone().take((chain.len() - at).saturating_sub(1));
        if !limits.unfold
            && at > 0
            && let Some((name, length)) = labels.unnamed(inner)
        {
            lines.push((String::new(), name));
            at += length;
            continue;
        }
        if let Some(function) = functions.next() {
            let location = tree.node(chain[at]).location.as_ref();
            lines.push((labels.function(function), labels.place(function, location)));
        }
        at += 1;
    }
    if !limits.unfold && lines.len() > CHAIN_START + CHAIN_END + CHAIN_SAVED {
        let end = lines.len() - CHAIN_END;
        lines.splice(CHAIN_START..end, [(String::new(), format!("⋮ {} more", end - CHAIN_START))]);
    }
    lines.into_iter().fold(Row::default(), |row, (text, note)| row.line(text, note))
}
