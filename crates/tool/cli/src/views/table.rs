//! Tables of amounts, as parts of a whole.

use heapledger_analysis::{Amount, Metric, Moment};
use heapledger_report_format::{Row, Tree};

use crate::error::Result;
use crate::format::{count, share};
use crate::output::Output;
use crate::question::Question;
use crate::views::sampled;

/// The columns of a table of amounts: the metric first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    metric: Metric,
    moment: Moment,
    /// True if mappings stand in place of blocks.
    counts_mappings: bool,
}

impl Columns {
    pub(crate) fn new(metric: Metric, moment: Moment) -> Columns {
        Columns { metric, moment, counts_mappings: false }
    }

    /// Returns the columns of an answer.
    pub(crate) fn of(question: &Question<'_, '_>) -> Columns {
        let counts_mappings = question.input.counts_mappings();
        Columns { counts_mappings, ..Columns::new(question.metric, question.selection.moment) }
    }

    pub(crate) fn table(self) -> Tree {
        let blocks = match self.moment {
            _ if self.counts_mappings => "mappings",
            Moment::Total => "allocations",
            _ => "blocks",
        };
        match self.metric {
            Metric::Bytes => Tree::new(["bytes", "share", blocks]),
            Metric::Blocks => Tree::new([blocks, "share", "bytes"]),
            Metric::Temporaries => Tree::new(["temporary", "share", "of own", "allocations"]),
            Metric::Slop => Tree::new(["slop", "share", "of usable", blocks]),
        }
    }

    /// Returns the cells of an amount, as part of the whole.
    pub(crate) fn cells(self, amount: &Amount, whole: &Amount) -> Vec<String> {
        let part = share(amount.share(whole, self.metric));
        let cell = |metric| sampled::cell(amount, metric);
        match self.metric {
            Metric::Bytes => vec![cell(Metric::Bytes), part, cell(Metric::Blocks)],
            Metric::Blocks => vec![cell(Metric::Blocks), part, cell(Metric::Bytes)],
            Metric::Temporaries => {
                let own = amount.temporaries.0 as f64 / amount.blocks.0.max(1) as f64;
                vec![cell(Metric::Temporaries), part, share(own), cell(Metric::Blocks)]
            }
            Metric::Slop => {
                let usable = amount.bytes.0.saturating_add(amount.slop.0);
                let of_usable = amount.slop.0 as f64 / usable.max(1) as f64;
                vec![cell(Metric::Slop), part, share(of_usable), cell(Metric::Blocks)]
            }
        }
    }
}

/// Prints rows with their amounts, and the sum of the rows that a limit left out.
pub(crate) fn print_rows(
    columns: Columns,
    whole: &Amount,
    shown: impl IntoIterator<Item = (Row, Amount)>,
    rest: impl IntoIterator<Item = Amount>,
    out: &mut Output,
) -> Result<()> {
    let mut table = columns.table();
    for (row, amount) in shown {
        table.push(0, row.cells(columns.cells(&amount, whole)));
    }
    out.line("")?;
    out.tree(&table)?;
    let (mut rows, mut sum) = (0, Amount::default());
    for amount in rest {
        rows += 1;
        sum += amount;
    }
    if rows > 0 {
        let shown = if columns.metric == Metric::Blocks { Metric::Bytes } else { columns.metric };
        let figure = sampled::figure(&sum, shown);
        out.dim_line(format_args!("and {} more with {figure} in all: -n 0 shows them", count(rows)))?;
    }
    Ok(())
}

/// Returns the number of rows to show; 0 means all.
pub(crate) fn limit(rows: usize) -> usize {
    if rows == 0 { usize::MAX } else { rows }
}
