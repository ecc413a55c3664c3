//! The totals of the blocks that options select.

use heapledger_analysis::{Amount, Metric, Moment, totals};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use crate::error::Result;
use crate::json::amounts::AmountJson;
use crate::json::document::{Document, Form};
use crate::json::selection::SelectionJson;
use crate::output::Output;
use crate::question::Question;
use crate::text::shown;
use crate::views::sampled;

/// Prints the totals of a selection.
pub(super) fn print(mut question: Question<'_, '_>, form: Option<Form>, out: &mut Output) -> Result<()> {
    let totals = question.answer(|names, selection, progress| totals(names, selection, progress))?;
    question.input.warn_of(&totals.damage);
    question.expect_match(totals.selected.is_nothing())?;
    let (selected, left_out) = (&totals.selected, &totals.left_out);
    if let Some(form) = form {
        let moment = question.selection.moment;
        let document = SelectedJson {
            selection: SelectionJson::new(&question.selection, Metric::Bytes),
            allocated: AmountJson::new(&selected.total, Moment::Total),
            peak: totals.is_peak_known.then(|| AmountJson::new(&selected.peak, Moment::Peak)),
            live: AmountJson::new(&selected.live, moment),
            left_out: AmountJson::new(&left_out.total, Moment::Total),
        };
        return out.document(&document, form);
    }
    out.title(shown(&question.input.path))?;
    sampled::print_notice(question.recording, out)?;
    question.filters(&left_out.total, out)?;
    out.line("")?;
    let mut facts = Tree::new([""]);
    let mut fact = |name: &str, amount: &Amount, one: &str, more: &str| {
        let note = format!("in {}", sampled::blocks_of(amount, one, more));
        facts.push(0, Row::new(sampled::bytes_of(amount)).note(note).cells([name]));
    };
    fact("allocated", &selected.total, "allocation", "allocations");
    if totals.is_peak_known {
        fact("live at the peak", &selected.peak, "block", "blocks");
    }
    fact(&question.what(), &selected.live, "block", "blocks");
    Ok(out.tree(&facts)?)
}

/// The object that `--json` prints for a selection.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SelectedJson {
    #[serde(flatten)]
    selection: SelectionJson,
    /// The amount that was ever allocated, or that was allocated in the time that was asked for.
    allocated: AmountJson,
    /// The part of `allocated` that was live at the peak of all selected processes. Null if it is
    /// not known: for several processes in a recording without events.
    peak: Option<AmountJson>,
    /// The part of `allocated` that was live at the moment `at`; with a time of allocation, the
    /// amount retained.
    live: AmountJson,
    /// The amount of all allocations that are not selected.
    left_out: AmountJson,
}

impl Document for SelectedJson {
    const SCHEMA: &'static str = "selected";
    const ROWS: Option<&'static str> = None;
}
