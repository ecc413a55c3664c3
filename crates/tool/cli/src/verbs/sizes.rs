//! `heapledger sizes`: a histogram by size class.

use heapledger_analysis::{Amount, Metric, Part, PartBy, PartSplit, size_classes};
use heapledger_core::Bytes;
use heapledger_report_format::Row;
use serde::Serialize;

use crate::args::{Grouping, Sizes};
use crate::error::Result;
use crate::format::{bytes, count};
use crate::json::document::Document;
use crate::json::parts::PartJson;
use crate::json::table::{RankJson, TableJson};
use crate::output::Output;
use crate::question::Question;
use crate::views::parts::{self, part_labels};
use crate::views::rows::row;
use crate::views::sampled;
use crate::views::table::{Columns, limit, print_rows};

/// The length of the longest bar, in characters.
const WIDTH: u64 = 40;
/// The block characters for 0 to 7 eighths of a character's width.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

pub(crate) fn run(arguments: &Sizes, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let input = arguments.input.find_as(arguments.what.counts_mappings(), out)?;
    input.needs_history("only large nodes: heapledger heap census FILE --min-size 1k")?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    if let Some(by) = arguments.by {
        return by_group(&mut question, by, arguments, out);
    }
    let mut parts = parts::load(&mut question, PartBy::SizeClass)?;
    parts.parts.sort_by_key(|(part, _)| *part);
    if let Some(form) = arguments.input.form() {
        return out.document(&parts::document(&question, &parts, "size_class", 0), form);
    }
    question.headline(&parts.whole, &parts.left_out, out)?;
    question.allocated(parts.allocated, out)?;
    let class = |(part, amount): &(Part, Amount)| match *part {
        Part::SizeClass(class) => Some((class, *amount)),
        _ => None,
    };
    let found: Vec<(Bytes, Amount)> = parts.parts.iter().filter_map(class).collect();
    let rows = rows(&found, metric);
    if rows.is_empty() {
        return Ok(());
    }
    print_rows(Columns::of(&question), &parts.whole, rows, [], out)
}

/// Shows the histograms of the largest groups.
fn by_group(question: &mut Question<'_, '_>, by: Grouping, arguments: &Sizes, out: &mut Output) -> Result<()> {
    let metric = question.metric;
    let Grouping { name, rank: by, parts, depth } = by;
    let label = part_labels(question.recording);
    let split = parts.map(|by| PartSplit { by, label: &label });
    let found = question
        .answer(|names, selection, progress| size_classes(names, by, split.as_ref(), metric, selection, progress))?;
    let profile = &found.profile;
    question.input.warn_of(&profile.damage);
    question.expect_match(profile.whole.is_nothing())?;
    let (shown, rest) = found.groups.split_at(found.groups.len().min(limit(arguments.rows)));
    if let Some(form) = arguments.input.form() {
        let mut table = TableJson::new(name, question, &profile.whole, &profile.left_out, found.groups.len());
        table.allocated(profile.allocated);
        for (rank, classes) in shown {
            let rank_json = RankJson::new(question, profile, rank);
            let class = |(class, amount): &(Bytes, Amount)| {
                PartJson::new(question, Part::SizeClass(*class), amount, &rank.amount)
            };
            table.rows.push(GroupJson { rank: rank_json, classes: classes.iter().map(class).collect() });
        }
        return out.document(&table, form);
    }
    question.headline(&profile.whole, &profile.left_out, out)?;
    question.allocated(profile.allocated, out)?;
    if shown.is_empty() {
        return Ok(());
    }
    let columns = Columns::of(question);
    let mut table = columns.table();
    for (rank, classes) in shown {
        let row = row(&mut question.labels, &profile.stacks, rank, depth);
        table.push(0, row.cells(columns.cells(&rank.amount, &profile.whole)));
        for (row, amount) in rows(classes, metric) {
            table.push(1, row.cells(columns.cells(&amount, &profile.whole)));
        }
    }
    out.line("")?;
    out.tree(&table)?;
    if !rest.is_empty() {
        let mut sum = Amount::default();
        rest.iter().for_each(|(rank, _)| sum += rank.amount);
        let more = count(rest.len() as u64);
        out.dim_line(format_args!("and {more} more with {} in all: -n 0 shows them", sampled::figure(&sum, metric)))?;
    }
    out.hint(question.labels.hint_for_unnamed(shown.iter().map(|(rank, _)| rank.frame.function)));
    Ok(())
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GroupJson {
    #[serde(flatten)]
    rank: RankJson,
    /// The size classes of the group's blocks, the smallest first; shares are of the group.
    classes: Vec<PartJson>,
}

impl Document for TableJson<GroupJson> {
    const SCHEMA: &'static str = "size-groups";
}

/// Returns the rows of a histogram.
fn rows(found: &[(Bytes, Amount)], metric: Metric) -> Vec<(Row, Amount)> {
    let most = found.iter().map(|(_, amount)| amount.by(metric)).max().unwrap_or_default();
    let row = |(class, amount): (Bytes, Amount)| {
        let text = format!("{:>10}", format!("≤ {}", bytes(class.0)));
        (Row::default().line(text, bar(amount.by(metric), most)), amount)
    };
    classes(found).into_iter().map(row).collect()
}

/// Returns the classes from the smallest to the largest, including empty classes in between.
fn classes(found: &[(Bytes, Amount)]) -> Vec<(Bytes, Amount)> {
    let mut classes: Vec<(Bytes, Amount)> = Vec::new();
    for &(class, amount) in found {
        while let Some((last, _)) = classes.last()
            && let Some(next) = last.0.checked_mul(2)
            && next < class.0
        {
            classes.push((Bytes(next), Amount::default()));
        }
        classes.push((class, amount));
    }
    classes
}

fn bar(figure: u64, most: u64) -> String {
    let eighths = (u128::from(figure) * u128::from(WIDTH * 8)).div_ceil(u128::from(most.max(1))) as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!(bar(0, 100), "");
        assert_eq!(bar(1, 1_000_000), "▏");
        assert_eq!(bar(50, 100), "█".repeat(20));
        assert_eq!(bar(u64::MAX, u64::MAX), "█".repeat(40));
    }
}
