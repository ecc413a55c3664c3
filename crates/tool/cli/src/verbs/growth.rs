//! `heapledger growth`: memory that grows steadily, how fast, and since when.

use std::time::Duration;

use heapledger_analysis::{GrowingGroup, Growth, Selection, ShareGroup, SharesBy, TrendKind};
use heapledger_analysis::{Metric, Moment};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use crate::args::{Depth, Growth as Arguments, Rows};
use crate::error::Result;
use crate::format::{bytes, count, duration, rate, seconds, time};
use crate::json::document::Document;
use crate::json::names::FrameJson;
use crate::json::selection::SelectionJson;
use crate::output::Output;
use crate::question::Question;
use crate::text::{quoted, shown};
use crate::views::parts::part_row;
use crate::views::rows::row;
use crate::views::table::limit;

/// The seconds that a run has to take before growth says more than how a program starts.
const SECONDS_MIN: f64 = 10.0;

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<()> {
    let input = arguments.input.find(out)?;
    input.needs_history("to see growth, compare two snapshots: heapledger heap diff BEFORE AFTER")?;
    let recording = input.open()?;
    let selection = Selection { filter: arguments.blocks.filter(), ..Selection::default() };
    let metric = if arguments.slop { Metric::Slop } else { Metric::Bytes };
    let question = Question::new(&input, &recording, &arguments.symbols, selection, metric);
    let mut question = question.expect_something()?;
    let (from, to) = arguments.range.bounds();
    let cut = match arguments.input.at() {
        Some(Moment::At(time)) => Some(time),
        Some(Moment::Peak) => question.peak_time(),
        Some(Moment::End | Moment::Total) | None => None,
    };
    let bounds = (from, to.into_iter().chain(cut).min());
    let (by, depth) = match arguments.by.rows() {
        Rows::Sites(by, depth) => (SharesBy::Rank(by), depth),
        Rows::Events(by) => (SharesBy::Part(by), Depth::Function),
    };
    let growth = question.answer(|names, selection, progress| Growth::load(names, selection, by, bounds, progress))?;
    input.warn_of(&growth.damage);
    question.expect_match(growth.groups == 0)?;
    if let Some(form) = arguments.input.form() {
        return out.document(&json(arguments, &mut question, &growth), form);
    }
    print(arguments, &mut question, &growth, depth, out)
}

fn print(
    arguments: &Arguments,
    question: &mut Question<'_, '_>,
    growth: &Growth,
    depth: Depth,
    out: &mut Output,
) -> Result<()> {
    let (steady, slowing) = (growth.count(TrendKind::Steady), growth.count(TrendKind::Slowing));
    let shown = growth.grown.len() - if arguments.all { 0 } else { slowing };
    let between = format_args!("between {} and {}", time(growth.from), time(growth.to)).to_string();
    let groups = format!("{} of {}", count(steady as u64), count(growth.groups as u64));
    out.title(format_args!("{groups} looked at grow steadily {between}"))?;
    if let Some(source) = &question.slop_source {
        out.dim_line(format_args!("slop: {source}"))?;
    }
    question.words(out)?;
    if shown > 0 {
        let several = question.recording.images().len() > 1;
        let held = if arguments.slop { "slop" } else { "live" };
        let mut table = Tree::new(["rate", "gained", held, "since", "sure"]);
        for grown in growth.grown[..shown].iter().take(limit(arguments.rows)) {
            let row = match &grown.group {
                ShareGroup::Rank(rank) => row(&mut question.labels, &growth.stacks, rank, depth),
                ShareGroup::Part(part) => part_row(question.recording, *part, several),
            };
            table.push(0, row_of(row, growth, grown));
        }
        out.line("")?;
        out.tree(&table)?;
        let left_out = shown.saturating_sub(limit(arguments.rows));
        if left_out > 0 {
            out.dim_line(format_args!("and {} more: -n 0 shows them", count(left_out as u64)))?;
        }
    }
    let steps = growth.count(TrendKind::Steps);
    if steps > 0 {
        let verb = if steps == 1 { "grows" } else { "grow" };
        out.dim_line(format_args!("{} more {verb} in steps, as a container does that doubles", count(steps as u64)))?;
    }
    if slowing > 0 && !arguments.all {
        let verb = if slowing == 1 { "grows" } else { "grow" };
        let number = count(slowing as u64);
        out.dim_line(format_args!("{number} {verb} more and more slowly, or no more, as caches do: --all shows them"))?;
    }
    let length = (growth.to.0 - growth.from.0) as f64 / 1e9;
    if length < SECONDS_MIN && shown > 0 {
        out.dim_line("in a run this short, what a program builds when it starts looks like growth")?;
    }
    if let Some(first) = growth.grown.first().filter(|first| first.trend.kind == TrendKind::Steady) {
        let file = quoted(&shown_path(question));
        let moment = |time: heapledger_recording::Time| format!("{:.3}s", time.0 as f64 / 1e9);
        let (since, to) = (moment(first.since), moment(growth.to));
        let metric = if arguments.slop { " --metric slop" } else { "" };
        let question = format!("heapledger diff {file}@{since} {file}@{to} --by stack{metric}");
        out.hint(Some(format!("from where it is called: {question}")));
    }
    Ok(())
}

fn shown_path(question: &Question<'_, '_>) -> String {
    shown(&question.input.path)
}

fn row_of(row: Row, growth: &Growth, grown: &GrowingGroup) -> Row {
    let trend = &grown.trend;
    let sure = match (trend.kind, trend.is_certain) {
        (TrendKind::Steady, true) => "certain",
        (TrendKind::Steady, false) => "likely",
        (TrendKind::Steps, _) => "in steps",
        (TrendKind::Slowing, _) => "slowing",
    };
    let per_second = trend.slope / growth.seconds_of_window();
    row.cells([rate(per_second), bytes(trend.gained), bytes(grown.live.0), time_short(grown.since), sure.to_owned()])
}

/// Returns a moment to a tenth of its unit: it is only the best-fitting bend of a line.
fn time_short(time: heapledger_recording::Time) -> String {
    duration(Duration::from_nanos(time.0))
}

fn json(arguments: &Arguments, question: &mut Question<'_, '_>, growth: &Growth) -> GrowthJson {
    let window = growth.seconds_of_window();
    let several = question.recording.images().len() > 1;
    let mut rows = Vec::new();
    for grown in growth.grown.iter().take(limit(arguments.rows)) {
        let trend = &grown.trend;
        let (frame, name) = match &grown.group {
            ShareGroup::Rank(rank) => {
                let row = row(&mut question.labels, &growth.stacks, rank, Depth::Function);
                (Some(question.labels.frame(&rank.frame)), row.lines()[0].text.clone())
            }
            ShareGroup::Part(part) => (None, part_row(question.recording, *part, several).lines()[0].text.clone()),
        };
        rows.push(GrownJson {
            name,
            frame,
            kind: match trend.kind {
                TrendKind::Steady => "steady",
                TrendKind::Steps => "steps",
                TrendKind::Slowing => "slowing",
            },
            certain: trend.is_certain,
            bytes_per_second: trend.slope / window,
            bytes_per_second_least: trend.slope_min / window,
            bytes_per_second_most: trend.slope_max / window,
            deviations: trend.deviations,
            since_seconds: seconds(grown.since),
            bytes_gained: trend.gained,
            bytes_live: (!arguments.slop).then_some(grown.live.0),
            slop: arguments.slop.then_some(grown.live.0),
        });
    }
    GrowthJson {
        by: arguments.by.name(),
        from_seconds: seconds(growth.from),
        to_seconds: seconds(growth.to),
        groups: growth.groups as u64,
        selection: SelectionJson::of(question),
        rows_all: growth.grown.len() as u64,
        rows,
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct GrowthJson {
    by: &'static str,
    from_seconds: f64,
    to_seconds: f64,
    /// The number of groups that were examined.
    groups: u64,
    #[serde(flatten)]
    selection: SelectionJson,
    rows_all: u64,
    rows: Vec<GrownJson>,
}

impl Document for GrowthJson {
    const SCHEMA: &'static str = "growth";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct GrownJson {
    name: String,
    /// The function that the group is named after, if groups are groups of stacks.
    #[serde(flatten)]
    frame: Option<FrameJson>,
    /// `steady`, `steps` or `slowing`.
    kind: &'static str,
    certain: bool,
    /// The median, and the bounds of its 95 % confidence interval. With `--slop`, these and
    /// `bytes_gained` are bytes of slop.
    bytes_per_second: f64,
    bytes_per_second_least: f64,
    bytes_per_second_most: f64,
    /// The statistic of the trend test, in standard deviations.
    deviations: f64,
    since_seconds: f64,
    bytes_gained: u64,
    /// Bytes live at the end of that time, without `--slop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_live: Option<u64>,
    /// The slop of the blocks live at the end of that time, with `--slop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    slop: Option<u64>,
}
