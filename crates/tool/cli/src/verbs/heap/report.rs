//! Censuses and their differences as trees of groups.

use heapledger_census::diff::CensusDifference;
use heapledger_census::result::{Census, CensusValue, Figures};
use heapledger_census::tree::{CensusTree, Row, RowOrder};
use heapledger_report_format as text;

use crate::args::{ReportSort, ReportView};
use crate::error::Result;
use crate::format::{bytes, count, share};
use crate::output::Output;
use crate::views::table::limit;

/// Prints a census, whose whole has this size.
pub(super) fn print(census: &Census, whole: i64, view: &ReportView, out: &mut Output) -> Result<()> {
    let order = match view.sort {
        ReportSort::Total => RowOrder::Total,
        ReportSort::Own => RowOrder::Own,
    };
    let tree = arranged(CensusTree::of(census), view, order);
    let cells = |size: Option<i64>, nodes: Option<i64>| {
        let part = size.map(|size| share(size as f64 / whole.max(1) as f64));
        let (size, nodes) = (size.map(i64::unsigned_abs), nodes.map(i64::unsigned_abs));
        [size.map(bytes), part, nodes.map(count)]
    };
    print_tree(&tree, text::Tree::new(["bytes", "share", "nodes"]), cells, view, out)
}

/// Prints a difference.
pub(super) fn print_difference(difference: &CensusDifference, view: &ReportView, out: &mut Output) -> Result<()> {
    let order = match view.sort {
        ReportSort::Total => RowOrder::Change,
        ReportSort::Own => RowOrder::Own,
    };
    let tree = arranged(CensusTree::of_difference(difference), view, order);
    let cells = |size: Option<i64>, nodes: Option<i64>| [size.map(change), nodes.map(signed)];
    print_tree(&tree, text::Tree::new(["bytes", "nodes"]), cells, view, out)
}

/// Returns a tree as the options ask for it.
fn arranged<'t>(tree: CensusTree<'t>, view: &ReportView, order: RowOrder) -> CensusTree<'t> {
    let tree = match &view.filter {
        Some(text) => tree.filter(text),
        None => tree,
    };
    let mut tree = if view.bottom_up { tree.invert() } else { tree };
    tree.sort(order);
    tree
}

/// Prints the rows below the root, of each level as many as the options allow. Figures that the
/// breakdown does not ask for are empty cells.
fn print_tree<const N: usize>(
    tree: &CensusTree<'_>,
    mut table: text::Tree,
    cells: impl Fn(Option<i64>, Option<i64>) -> [Option<String>; N],
    view: &ReportView,
    out: &mut Output,
) -> Result<()> {
    let figures = |row: &Row| (row.has_bytes.then_some(row.total_bytes), row.has_count.then_some(row.total_count));
    let cells = |(size, nodes)| cells(size, nodes).map(Option::unwrap_or_default);
    let is_shown = rows_with_figures(tree);
    // The rows still to print, the next one last: a row of the tree, or the rest of a level.
    let mut waiting = vec![Shown { depth: 0, what: What::Below(0) }];
    while let Some(Shown { depth, what }) = waiting.pop() {
        match what {
            What::Row(index) => {
                let row = &tree.rows()[index];
                table.push(depth, text::Row::new(tree.label(&row.name)).cells(cells(figures(row))));
                waiting.push(Shown { depth: depth + 1, what: What::Below(index) });
            }
            What::Rest { rows, sums } => {
                let row = text::Row::default().line("", format!("and {} more", count(rows as u64)));
                table.push(depth, row.cells(cells(sums)));
            }
            What::Below(index) => {
                let children = tree.rows()[index].children.iter().copied();
                let children: Vec<usize> = children.filter(|child| is_shown[*child]).collect();
                let (shown, rest) = children.split_at(children.len().min(limit(view.rows)));
                if !rest.is_empty() {
                    let rest_figures = rest.iter().map(|child| figures(&tree.rows()[*child]));
                    let sums = rest_figures.fold((None, None), |sums, row| (sum(sums.0, row.0), sum(sums.1, row.1)));
                    waiting.push(Shown { depth, what: What::Rest { rows: rest.len(), sums } });
                }
                waiting.extend(shown.iter().rev().map(|child| Shown { depth, what: What::Row(*child) }));
            }
        }
    }
    if table.is_empty() {
        return Ok(());
    }
    out.line("")?;
    Ok(out.tree(&table)?)
}

/// A piece of the text, and its depth in the tree.
struct Shown {
    depth: usize,
    what: What,
}

enum What {
    /// A row and everything below it.
    Row(usize),
    /// Everything below a row.
    Below(usize),
    /// The rows of a level that are not shown, with the sums of their bytes and nodes.
    Rest { rows: usize, sums: (Option<i64>, Option<i64>) },
}

/// Returns for each row: true if it or a row below it has figures that are not 0. The changes of
/// rows may cancel each other out in the row above.
fn rows_with_figures(tree: &CensusTree<'_>) -> Vec<bool> {
    let rows = tree.rows();
    let figures = rows.iter().map(|row| [row.bytes, row.count, row.total_bytes, row.total_count]);
    let mut has_figures: Vec<bool> = figures.map(|figures| figures != [0; 4]).collect();
    // A row comes after its parent.
    for (index, row) in rows.iter().enumerate().rev() {
        if let (true, Some(parent)) = (has_figures[index], row.parent) {
            has_figures[parent] = true;
        }
    }
    has_figures
}

/// Adds two figures, as far as there are any.
fn sum(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

/// Returns the figures of a census without groups.
pub(super) fn figures(value: &CensusValue) -> Figures {
    match value {
        CensusValue::Count(figures) => figures.clone(),
        _ => Figures::default(),
    }
}

/// Returns a number of bytes with its sign.
pub(super) fn change(size: i64) -> String {
    format!("{}{}", sign(size), bytes(size.unsigned_abs()))
}

/// Returns a number with its sign.
pub(super) fn signed(number: i64) -> String {
    format!("{}{}", sign(number), count(number.unsigned_abs()))
}

fn sign(number: i64) -> &'static str {
    match number {
        ..0 => "-",
        0 => "",
        1.. => "+",
    }
}
