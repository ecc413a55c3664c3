//! `heapledger diff`: two runs, or two moments of one, side by side.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::PathBuf;

use heapledger_analysis::{Amount, Difference, Metric, Moment, PartBy, PartSplit, Profile, Rank, diff, growth};
use heapledger_recording::Recording;
use heapledger_report_format::{Row, Tree, escape};
use serde::Serialize;

use crate::args::values::Limit;
use crate::args::{Depth, Diff, Grouping};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::count;
use crate::input::Input;
use crate::json::amounts::{AmountJson, RateJson, rates_json};
use crate::json::document::Document;
use crate::json::group::GroupJson;
use crate::json::names::FrameJson;
use crate::json::selection::SelectionJson;
use crate::label::Labels;
use crate::messages::notify;
use crate::output::Output;
use crate::question::Question;
use crate::text::shown;
use crate::views::parts::part_labels_of_any_run;
use crate::views::rows::row;
use crate::views::sampled;
use crate::views::table::limit;

pub(crate) fn run(arguments: &Diff, out: &mut Output) -> Result<()> {
    let (sides, metric) = sides(arguments)?;
    let counts_mappings = arguments.mappings || arguments.metric.counts_mappings();
    let map = |side: usize| {
        let input = Input::map(&sides[side].0)?;
        if counts_mappings { input.into_mappings() } else { Ok(input) }
    };
    let inputs = [map(0)?, map(1)?];
    let recordings = [inputs[0].open()?, inputs[1].open()?];
    let question = |at: usize| ask(arguments, &inputs[at], &recordings[at], sides[at].1, metric);
    let (mut before, mut after) = (question(0)?, question(1)?);
    let Grouping { rank: by, parts, depth, .. } = arguments.by;
    let profiles = [profile(&mut before, parts)?, profile(&mut after, parts)?];
    // A difference is also about groups that only one of the two recordings has.
    let is_empty = profiles.iter().all(|profile| profile.whole.is_nothing());
    before.expect_match(is_empty).or_else(|nowhere| after.expect_match(is_empty).map_err(|_| nowhere))?;

    let names = (&mut before.labels.names, &mut after.labels.names);
    let mut differences = diff((&profiles[0], names.0), (&profiles[1], names.1), by, metric);
    let all = differences.len();
    let whole = profiles[0].whole.by(metric);
    differences.retain(|difference| difference.growth(metric).unsigned_abs() >= arguments.threshold.of(whole));
    let left_out = (all - differences.len(), 0);
    let shown = largest(differences, limit(arguments.rows), metric);
    let mut comparison = Comparison { before, after, profiles, metric, depth, left_out };
    comparison.left_out.1 = all - left_out.0 - shown.len();

    if let Some(target) = &arguments.written.output {
        out.direct(target, arguments.written.force, &[&inputs[0].path, &inputs[1].path])?;
    }
    if let Some(form) = arguments.data.form() {
        out.document(&comparison.json(arguments, shown, all), form)?;
    } else if arguments.markdown {
        let text = comparison.markdown(&shown);
        out.line(text.trim_end())?;
    } else {
        comparison.print(&shown, out)?;
    }
    comparison.judge(arguments.fail_above)
}

/// Returns what sites hold, split by parts if the groups are parts.
fn profile(question: &mut Question<'_, '_>, parts: Option<PartBy>) -> Result<Profile> {
    let Some(by) = parts else { return question.profile_or_nothing() };
    let label = part_labels_of_any_run(question.recording);
    let split = PartSplit { by, label: &label };
    let profile =
        question.answer(|names, selection, progress| Profile::load_split(names, selection, &split, progress))?;
    question.input.warn_of(&profile.damage);
    Ok(profile)
}

/// The two files, each with its moment.
type Sides = [(PathBuf, Moment); 2];

fn sides(arguments: &Diff) -> Result<(Sides, Metric)> {
    let usage = |why: &str| Failure::new(Exit::Usage, why);
    let mut files: Vec<(PathBuf, Option<Moment>)> =
        arguments.files.iter().map(|file| (file.to_path_buf(), file.at)).collect();
    if files.len() == 1 {
        files.push((files[0].0.clone(), None));
        if arguments.at.len() != 2 && !(files[0].1.is_some() && arguments.at.len() == 1) {
            return Err(usage("one recording has nothing to be compared with")
                .hint("name another one, or two moments of it: --at 5s --at 20s"));
        }
    }
    let metric = Metric::from(arguments.metric);
    let is_total = arguments.total || metric == Metric::Temporaries;
    let mut at = arguments.at.iter().copied();
    // A single moment is for both files; a moment given with a file (FILE@WHEN) takes precedence.
    let both = at.clone().next().filter(|_| at.len() == 1);
    let [first, second] = [0, 1].map(|side: usize| {
        let moment = files[side].1.or(both).or_else(|| at.next());
        (files[side].0.clone(), moment)
    });
    let is_at = first.1.is_some() || second.1.is_some();
    if is_total && is_at {
        return Err(usage("all that was ever allocated has no moment"));
    }
    let retained = arguments.which.retained();
    let usual = if is_total { Moment::Total } else { retained.unwrap_or(Moment::Peak) };
    Ok(([first, second].map(|(path, moment)| (path, moment.unwrap_or(usual))), metric))
}

fn ask<'r, 'a>(
    arguments: &Diff,
    input: &'r Input,
    recording: &'r Recording<'a>,
    moment: Moment,
    metric: Metric,
) -> Result<Question<'r, 'a>> {
    Ok(Question::new(input, recording, &arguments.symbols, arguments.which.at(moment), metric))
}

/// Returns the groups that differ most, in their original order.
fn largest(differences: Vec<Difference>, most: usize, metric: Metric) -> Vec<Difference> {
    let mut sizes: Vec<u128> = differences.iter().map(|it| it.growth(metric).unsigned_abs()).collect();
    sizes.sort_unstable_by_key(|&size| std::cmp::Reverse(size));
    let Some(&smallest) = sizes.get(most.wrapping_sub(1)).filter(|_| sizes.len() > most) else { return differences };
    // The groups that differ as much as the smallest one shown fill up the remaining rows.
    let mut ties = most - sizes.iter().filter(|&&size| size > smallest).count();
    let mut is_shown = |it: &Difference| {
        let size = it.growth(metric).unsigned_abs();
        let is_tie = size == smallest && ties > 0;
        ties -= usize::from(is_tie);
        size > smallest || is_tie
    };
    differences.into_iter().filter(|it| is_shown(it)).collect()
}

struct Comparison<'r, 'a> {
    before: Question<'r, 'a>,
    after: Question<'r, 'a>,
    profiles: [Profile; 2],
    metric: Metric,
    depth: Depth,
    /// The number of groups that differ by less than the threshold, and of those beyond the limit
    /// of rows.
    left_out: (usize, usize),
}

impl Comparison<'_, '_> {
    fn wholes(&self) -> [Amount; 2] {
        [self.profiles[0].whole, self.profiles[1].whole]
    }

    /// Returns text such as `3.1 MiB live at the peak (1.2 s) of a.hl`.
    fn describe(&self, question: &Question<'_, '_>, whole: &Amount) -> String {
        format!("{} {} of {}", self.figure(whole), question.what(), shown(&question.input.path))
    }

    fn figure(&self, whole: &Amount) -> String {
        let figure = sampled::figure(whole, self.metric);
        match self.metric {
            Metric::Temporaries => format!("{figure} temporary"),
            Metric::Slop => format!("{figure} of slop"),
            Metric::Bytes | Metric::Blocks => figure,
        }
    }

    fn bare(&self, figure: u64) -> String {
        sampled::shown(self.metric)(figure)
    }

    /// Returns text such as `+1.2 MiB`.
    fn change(&self, before: &Amount, after: &Amount) -> String {
        let growth = growth(before, after, self.metric);
        let size = u64::try_from(growth.unsigned_abs()).unwrap_or(u64::MAX);
        let shown = sampled::shown(self.metric);
        sampled::with_bar(format!("{}{}", sign(growth), self.bare(size)), self.bar(before, after), shown)
    }

    /// Returns text such as `+12.5 %`, or the reason why there is no percentage.
    fn share(&self, before: &Amount, after: &Amount) -> String {
        match (before.by(self.metric), after.by(self.metric)) {
            (0, 0) => "±0 %".to_owned(),
            (0, _) => "new".to_owned(),
            (_, 0) => "gone".to_owned(),
            (old, _) => {
                let growth = growth(before, after, self.metric);
                format!("{}{:.1} %", sign(growth), growth.unsigned_abs() as f64 * 100.0 / old as f64)
            }
        }
    }

    /// Returns the row of a group, from the second recording if that has the group, else from the
    /// first.
    fn row(&mut self, difference: &Difference) -> Row {
        match (&difference.rank_after, &difference.rank_before) {
            (Some(rank), _) => row(&mut self.after.labels, &self.profiles[1].stacks, rank, self.depth),
            (None, Some(rank)) => row(&mut self.before.labels, &self.profiles[0].stacks, rank, self.depth),
            (None, None) => Row::default(),
        }
    }

    fn cells(&self, difference: &Difference) -> [String; 4] {
        let Difference { before, after, .. } = difference;
        let (change, share) = (self.change(before, after), self.share(before, after));
        [change, share, sampled::cell(before, self.metric), sampled::cell(after, self.metric)]
    }

    fn verdict(&self) -> String {
        let [before, after] = self.wholes();
        format!("{} ({})", self.change(&before, &after), self.share(&before, &after))
    }

    fn print(&mut self, shown: &[Difference], out: &mut Output) -> Result<()> {
        let [before, after] = self.wholes();
        out.title(self.verdict())?;
        for notice in self.notices() {
            out.dim_line(notice)?;
        }
        out.line(format_args!("before: {}", self.describe(&self.before, &before)))?;
        self.before.filters(&self.profiles[0].left_out, out)?;
        out.line(format_args!("after:  {}", self.describe(&self.after, &after)))?;
        self.after.filters(&self.profiles[1].left_out, out)?;
        out.line("")?;
        let mut table = Tree::new(["change", "", "before", "after"]);
        for difference in shown {
            table.push(0, self.row(difference).cells(self.cells(difference)));
        }
        if shown.is_empty() {
            out.line("nothing differs")?;
        } else {
            out.tree(&table)?;
        }
        for (number, how) in self.rest() {
            out.dim_line(format_args!("and {} that {how}", count(number as u64)))?;
        }
        let unnamed = |rank: &Option<Rank>| rank.as_ref().map(|rank| rank.frame.function);
        let functions: Vec<_> = shown.iter().filter_map(|it| unnamed(&it.rank_after)).collect();
        out.hint(self.after.labels.hint_for_unnamed(functions));
        Ok(())
    }

    /// Returns notices: which of the two is a sample, and where its slop is from.
    fn notices(&self) -> impl Iterator<Item = String> {
        let sides = [("before", &self.before), ("after", &self.after)];
        let told = |(name, question): (&'static str, &Question<'_, '_>)| {
            let slop = question.slop_source.as_ref().map(|source| format!("slop {source}"));
            sampled::notice(question.recording).into_iter().chain(slop).map(move |notice| format!("{name}: {notice}"))
        };
        sides.into_iter().flat_map(told)
    }

    /// Returns the numbers of groups that are not shown, with the reasons.
    fn rest(&self) -> Vec<(usize, &'static str)> {
        let (below, beyond) = self.left_out;
        let rest = [(beyond, "differ by less: -n 0 shows them"), (below, "differ by less than the threshold")];
        rest.into_iter().filter(|(number, _)| *number > 0).collect()
    }

    /// Returns Markdown, for a comment on a change.
    fn markdown(&mut self, shown: &[Difference]) -> String {
        let [before, after] = self.wholes();
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "**Memory: {}**\n", cell(&self.verdict()));
        let _ = writeln!(text, "| | |\n|---|---|");
        for (name, question, whole) in [("before", &self.before, &before), ("after", &self.after, &after)] {
            let told = format!("{} {}", self.figure(whole), question.what());
            let _ = writeln!(text, "| {name} | {} of {} |", cell(&told), code(&question.input.path.to_string_lossy()));
        }
        for notice in self.notices() {
            let _ = writeln!(text, "\n{}", cell(&notice));
        }
        if shown.is_empty() {
            text.push_str("\nNothing differs.\n");
            return text;
        }
        text.push_str("\n| change | | before | after | |\n|---:|---:|---:|---:|---|\n");
        for difference in shown {
            let row = self.row(difference);
            let [change, share, before, after] = self.cells(difference).map(|text| cell(&text));
            let lines: Vec<String> = row
                .lines()
                .iter()
                .map(|line| match (line.text.as_str(), line.note.as_str()) {
                    ("", note) => cell(note),
                    (text, "") => code(text),
                    (text, note) => format!("{} {}", code(text), cell(note)),
                })
                .collect();
            let _ = writeln!(text, "| **{change}** | {share} | {before} | {after} | {} |", lines.join("<br>"));
        }
        for (number, how) in self.rest() {
            let _ = writeln!(text, "\nand {} that {how}", count(number as u64));
        }
        text
    }

    fn json(&mut self, arguments: &Diff, shown: Vec<Difference>, all: usize) -> DiffJson {
        let moments = [self.before.selection.moment, self.after.selection.moment];
        let side = |question: &Question<'_, '_>, whole: &Amount| SideJson {
            file: question.input.path.to_string_lossy().into_owned(),
            selection: SelectionJson::of(question),
            total: AmountJson::new(whole, question.selection.moment),
            sampling: rates_json(question.recording),
        };
        let [before, after] = self.wholes();
        let exceeded = arguments.fail_above.map(|limit| self.exceeds(limit));
        let rows = shown.iter().map(|it| RowJson {
            growth: saturated(it.growth(self.metric)),
            growth_standard_error: self.error(&it.before, &it.after),
            before: AmountJson::new(&it.before, moments[0]),
            after: AmountJson::new(&it.after, moments[1]),
            group: match (&it.rank_after, &it.rank_before) {
                (Some(rank), _) => Some(LargestJson::new(&mut self.after.labels, &self.profiles[1], rank)),
                (None, Some(rank)) => Some(LargestJson::new(&mut self.before.labels, &self.profiles[0], rank)),
                (None, None) => None,
            },
        });
        let rows = rows.collect();
        DiffJson {
            by: arguments.by.name,
            before: side(&self.before, &before),
            after: side(&self.after, &after),
            growth: saturated(growth(&before, &after, self.metric)),
            growth_standard_error: self.error(&before, &after),
            exceeded,
            rows_all: all,
            rows,
        }
    }

    /// True if the growth exceeds a limit; for an estimate, if it does so by more than its error
    /// bar.
    fn exceeds(&self, limit: Limit) -> bool {
        let [before, after] = self.wholes();
        self.grew() > limit.of(before.by(self.metric)) + u128::from(self.bar(&before, &after))
    }

    /// Returns the error bar of a growth: the root of the sum of the squares of two independent
    /// errors.
    fn bar(&self, before: &Amount, after: &Amount) -> u64 {
        let [before, after] = [before, after].map(|amount| u128::from(sampled::bar(amount, self.metric)));
        let sum = before.saturating_mul(before).saturating_add(after.saturating_mul(after));
        u64::try_from(sum.isqrt()).unwrap_or(u64::MAX)
    }

    /// Returns the growth of the whole; 0 if it shrank.
    fn grew(&self) -> u128 {
        let [before, after] = self.wholes();
        growth(&before, &after, self.metric).max(0).unsigned_abs()
    }

    /// Returns the standard error of the growth, if it is an estimate.
    fn error(&self, before: &Amount, after: &Amount) -> Option<u64> {
        Some(together(before, after).error(self.metric)).filter(|&error| error > 0)
    }

    fn judge(&self, limit: Option<Limit>) -> Result<()> {
        match limit {
            Some(limit) if self.exceeds(limit) => {
                let limit = match limit {
                    Limit::Percent(percent) => format!("{percent} %"),
                    Limit::Figure(figure) => self.bare(figure),
                };
                Err(Failure::new(Exit::Grew, format!("it grew by more than {limit}: {}", self.verdict())))
            }
            Some(limit) if self.grew() > limit.of(self.wholes()[0].by(self.metric)) => {
                notify(format_args!("heapledger: it may have grown by more, or not: {}", self.verdict()));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Returns an amount with the error of the difference of two amounts: variances of independent
/// samples add up. For two moments of one recording, this overestimates the error.
fn together(before: &Amount, after: &Amount) -> Amount {
    let mut both = *before;
    both += *after;
    both
}

fn sign(growth: i128) -> &'static str {
    match growth {
        0 => "±",
        1.. => "+",
        _ => "−",
    }
}

fn saturated(growth: i128) -> i64 {
    i64::try_from(growth).unwrap_or(if growth > 0 { i64::MAX } else { i64::MIN })
}

/// Returns text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    let mut cell = String::new();
    for character in escape(text).chars() {
        if "\\`*_[]<>|#~".contains(character) {
            cell.push('\\');
        }
        cell.push(character);
    }
    cell
}

/// Returns code for a cell of a Markdown table.
fn code(text: &str) -> String {
    let text: Cow<'_, str> = escape(text);
    format!("`{}`", text.replace('`', "'").replace('|', "\\|"))
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DiffJson {
    by: &'static str,
    before: SideJson,
    after: SideJson,
    /// The growth of the totals, in the metric.
    growth: i64,
    /// The standard error of the growth, if it is an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    growth_standard_error: Option<u64>,
    /// True if the whole grew by more than `--fail-above` allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    exceeded: Option<bool>,
    /// The number of groups that differ.
    rows_all: usize,
    rows: Vec<RowJson>,
}

impl Document for DiffJson {
    const SCHEMA: &'static str = "diff";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SideJson {
    file: String,
    #[serde(flatten)]
    selection: SelectionJson,
    total: AmountJson,
    /// The rates at which blocks were sampled, if they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sampling: Vec<RateJson>,
}

/// A group that differs, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RowJson {
    growth: i64,
    /// The standard error of the growth, if it is an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    growth_standard_error: Option<u64>,
    before: AmountJson,
    after: AmountJson,
    /// The group as the second recording has it, or as the first has it if it is only there.
    #[serde(flatten)]
    group: Option<LargestJson>,
}

/// A group with the stack of its largest site, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LargestJson {
    #[serde(flatten)]
    group: GroupJson,
    /// The stack of the site that holds the most, innermost first.
    stack: Vec<FrameJson>,
}

impl LargestJson {
    fn new(labels: &mut Labels<'_, '_>, profile: &Profile, rank: &Rank) -> LargestJson {
        let group = GroupJson::new(labels, &profile.stacks, rank);
        LargestJson { group, stack: labels.stack(&profile.stacks, rank.largest) }
    }
}
