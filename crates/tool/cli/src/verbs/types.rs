//! `heapledger types`: the types of blocks, and how much each holds.

pub(crate) mod json;
mod sites;
mod sources;

use heapledger_analysis::{Amount, Metric, Moment, TypeBy, TypeGroup, types};
use heapledger_report_format::{Row, Tree};

use self::sites::SiteRows;
use crate::args::{Types, TypesBy};
use crate::error::Result;
use crate::format::{counted, share};
use crate::output::Output;
use crate::question::Question;
use crate::views::sampled;
use crate::views::table::{Columns, limit};

/// The number of rows that are shown unless the user sets it.
const ROWS: usize = 20;

pub(crate) fn run(arguments: &Types, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let hint = "the files and kinds of mappings: heapledger top FILE --mappings --by mapped-file, or --by kind";
    arguments.input.needs_blocks(arguments.what.counts_mappings(), "types are", hint)?;
    let input = arguments.input.find(out)?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let profile = question.profile()?;
    let (by, name) = match arguments.by {
        TypesBy::Block => (TypeBy::Block, "block"),
        TypesBy::Element => (TypeBy::Element, "element"),
        TypesBy::Container => (TypeBy::Container, "container"),
    };
    let groups = types(&profile, &mut question.labels.names, by, metric);
    if let Some(form) = arguments.input.form() {
        return out.document(&json::types(&mut question, &profile, name, &groups, arguments), form);
    }
    question.headline(&profile.whole, &profile.left_out, out)?;
    question.allocated(profile.allocated, out)?;
    if groups.is_empty() {
        return Ok(());
    }
    let figures = Figures { metric, moment: question.selection.moment, whole: profile.whole };
    let rows = limit(arguments.rows.unwrap_or(ROWS));
    let (shown, rest) = groups.split_at(groups.len().min(rows));
    let site_rows = SiteRows { profile: &profile, figures, rows, with_stacks: arguments.stacks };
    let mut table = figures.table();
    for group in shown {
        let name = question.labels.type_name(&group.name).to_owned();
        table.push(0, Row::new(name).cells(figures.row(&group.amount, &certainty(group))));
        if arguments.stacks || !question.selection.filter.types.is_empty() {
            site_rows.add(&mut question.labels, group, &mut table);
        }
    }
    let others = rest.iter().fold(Amount::default(), |mut sum, group| {
        sum += group.amount;
        sum
    });
    if !rest.is_empty() {
        let text = format!("… {}: -n 0 shows them", counted(rest.len() as u64, "more type", "more types"));
        table.push(0, Row::default().line("", text).cells(figures.row(&others, "")));
    }
    table.push(0, Row::new("[totals]").cells(figures.row(&profile.whole, "")));
    out.line("")?;
    out.tree(&table)?;
    sources::print(&mut question, &profile, &groups, out)
}

/// Returns the certainty of a type's least certain site; with `+` if others are more certain.
fn certainty(group: &TypeGroup) -> String {
    format!("{}{}", group.certainty, if group.is_mixed { "+" } else { "" })
}

/// The columns of the table.
#[derive(Clone, Copy)]
struct Figures {
    metric: Metric,
    moment: Moment,
    whole: Amount,
}

impl Figures {
    fn table(self) -> Tree {
        let blocks = if self.moment == Moment::Total { "allocations" } else { "blocks" };
        match self.metric {
            Metric::Temporaries => Tree::new(["temporary", "share", "of own", "allocations", "confidence"]),
            Metric::Slop => Tree::new(["slop", "share", "of usable", blocks, "confidence"]),
            Metric::Bytes | Metric::Blocks => Tree::new([blocks, "share", "bytes", "share", "confidence"]),
        }
    }

    fn row(self, amount: &Amount, certainty: &str) -> Vec<String> {
        let mut cells = match self.metric {
            Metric::Temporaries | Metric::Slop => Columns::new(self.metric, self.moment).cells(amount, &self.whole),
            Metric::Bytes | Metric::Blocks => {
                let part = |metric| share(amount.share(&self.whole, metric));
                let cell = |metric| sampled::cell(amount, metric);
                vec![cell(Metric::Blocks), part(Metric::Blocks), cell(Metric::Bytes), part(Metric::Bytes)]
            }
        };
        cells.push(certainty.to_owned());
        cells
    }
}
