//! `heapledger leaks`: what was live at the end.

use heapledger_analysis::{Moment, RankBy, Selection, rank};

use crate::args::Leaks;
use crate::error::Result;
use crate::input::Input;
use crate::label::Labels;
use crate::output::Output;
use crate::ranks::{Columns, Depth, RankJson, TableJson, headline, limit, load, row};
use crate::top::left_out;

/// Frames of a stack that are shown.
const FRAMES_MAX: usize = 12;

pub(crate) fn run(arguments: &Leaks, out: &mut Output) -> Result<()> {
    let (selection, metric) = (Selection { process: arguments.process, moment: Moment::End }, arguments.metric.into());
    let input = Input::find(arguments.input.file.as_deref())?;
    let recording = input.open()?;
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
    out.title(headline(&recording, &profile.whole, selection))?;
    if ranks.is_empty() {
        return Ok(());
    }
    out.aside("Live at the end does not mean unreachable: the program may have used it until then.")?;
    let columns = Columns::new(metric, selection.moment);
    let mut table = columns.table();
    for rank in shown {
        let row = row(&mut labels, &profile, rank, Depth::Stack(FRAMES_MAX));
        table.push(0, row.cells(columns.cells(&rank.amount, &profile.whole)));
    }
    out.line("")?;
    out.tree(&table)?;
    left_out(out, ranks.len() - shown.len(), ranks[shown.len()..].iter().map(|rank| &rank.amount))?;
    out.hint(labels.hint_for_unnamed(shown.iter().map(|rank| rank.frame.function)));
    Ok(())
}
