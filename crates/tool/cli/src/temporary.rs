//! `heapledger temporary`: where memory is allocated only to be freed at once.

use heapledger_analysis::{Metric, Moment, RankBy, Selection, rank};

use crate::args::Temporary;
use crate::error::Result;
use crate::format::{count, percent};
use crate::input::Input;
use crate::label::Labels;
use crate::output::Output;
use crate::ranks::{Columns, Depth, RankJson, TableJson, expect_something, limit, load, row};

pub(crate) fn run(arguments: &Temporary, out: &mut Output) -> Result<()> {
    let selection = Selection { process: arguments.process, moment: Moment::Total };
    let metric = Metric::Temporaries;
    let input = Input::find(arguments.input.file.as_deref())?;
    let recording = input.open()?;
    expect_something(&recording)?;
    let profile = load(&input, &recording, selection)?;
    let mut labels = Labels::new(&recording, &arguments.symbols);
    let ranks = rank(&profile, &mut labels.names, RankBy::Site, metric);
    let shown = &ranks[..ranks.len().min(limit(arguments.rows))];

    if arguments.input.json {
        let mut table = TableJson::new("site", selection, metric, &profile.whole, ranks.len());
        for rank in shown {
            table.push(RankJson::new(&mut labels, &profile, rank, metric, selection.moment));
        }
        return out.json(&table);
    }
    let (temporary, all) = (profile.whole.temporaries.0, profile.whole.blocks.0);
    let of_process = arguments.process.map_or(String::new(), |pid| format!(" of process {pid}"));
    let part = percent(temporary, all);
    out.title(format_args!("{} of {} allocations{of_process} were temporary ({part})", count(temporary), count(all)))?;
    if ranks.is_empty() {
        return Ok(());
    }
    let columns = Columns::new(metric, selection.moment);
    let mut table = columns.table();
    for rank in shown {
        let row = row(&mut labels, &profile, rank, Depth::Callers);
        table.push(0, row.cells(columns.cells(&rank.amount, &profile.whole)));
    }
    out.line("")?;
    out.tree(&table)?;
    let rest = &ranks[shown.len()..];
    if !rest.is_empty() {
        let sum: u64 = rest.iter().map(|rank| rank.amount.temporaries.0).sum();
        out.aside(format_args!("and {} more with {} in all: -n 0 shows them", count(rest.len() as u64), count(sum)))?;
    }
    out.hint(labels.hint_for_unnamed(shown.iter().map(|rank| rank.frame.function)));
    Ok(())
}
