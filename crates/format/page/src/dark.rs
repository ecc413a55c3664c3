//! What somebody looks at of a log: one of its lists, put together and sorted as they want it.

mod figures;
mod lists;
mod whole;

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use heapledger_dmd::{Amount, Log};
use serde::{Deserialize, Serialize};

use self::figures::{bytes, counted, number, percent};
use self::lists::{By, Choice, List, Read, Row, Sort, rows};
use self::whole::Whole;
use crate::handler::gone;
use crate::http::Response;
use crate::shelf::{Shelf, Weighed};

/// What the browser asks for. It has all there is to say: nothing is kept of who looks at what.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Wanted {
    #[serde(flatten)]
    view: View,
    #[serde(default)]
    from: usize,
    #[serde(default)]
    count: usize,
}

/// What can be kept to be shown again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct View {
    log: u64,
    /// What it is compared with: this is subtracted.
    #[serde(default)]
    base: Option<u64>,
    /// By default the first that the log has.
    #[serde(default)]
    list: Option<List>,
    #[serde(default)]
    by: By,
    #[serde(default)]
    within: Option<Within>,
    #[serde(default)]
    sort: Sort,
    #[serde(default)]
    filter: String,
}

/// Only what is of one group of another grouping.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Within {
    by: By,
    name: String,
}

/// The logs and the list that were looked at last.
#[derive(Debug, Default)]
pub(crate) struct Views {
    read: VecDeque<(u64, Arc<Read>)>,
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    view: View,
    list: List,
    read: Arc<Read>,
    base: Option<Arc<Read>>,
    lines: Lines,
}

/// What a list is of.
#[derive(Debug)]
enum Lines {
    Blocks(Vec<Row>),
    /// Numbers of steps of a plan, first those about what nobody reports, then those about what two do.
    Steps(Vec<usize>),
    /// Numbers of defects.
    Defects(Vec<usize>),
}

/// A log, and one that it is compared with.
const READ_MAX: usize = 2;
/// Rows in one answer, whatever was asked for.
const COUNT_MAX: usize = 2_000;
/// A browser's element can be some 16 million pixels high.
const SEEN_MAX: usize = crate::rows::SEEN_MAX;

/// A row as the browser gets it.
#[derive(Debug, Default, Serialize)]
struct Shown {
    row: usize,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<List>,
    amount: f64,
    value: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    percent: String,
    /// With the rows above.
    #[serde(skip_serializing_if = "String::is_empty")]
    cumulative: String,
    /// Of the largest row, from -1 to 1.
    share: f64,
    count: String,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
    exactly: String,
}

/// A list, to be chosen.
#[derive(Debug, Serialize)]
struct Tab {
    list: List,
    name: &'static str,
    figure: String,
    value: String,
    exactly: String,
    /// Of all blocks.
    share: f64,
}

/// The log as a whole.
#[derive(Debug, Serialize)]
struct About {
    list: List,
    lists: Vec<Tab>,
    /// Figures, and what they are of.
    figures: Vec<(String, String)>,
    is_estimated: bool,
}

impl Wanted {
    pub(crate) fn parse(body: &[u8]) -> Result<Wanted, Response> {
        serde_json::from_slice(body).map_err(|error| Response::text(400, format!("no view of a log: {error}")))
    }
}

impl Views {
    pub(crate) fn clear(&mut self) {
        *self = Views::default();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read.is_empty()
    }

    /// About how much memory they take: what is concluded from a log is about as much as the log.
    pub(crate) fn bytes(&self) -> usize {
        self.read.iter().map(|(_, read)| read.log().bytes()).sum()
    }

    /// The rows that are wanted, as JSON.
    pub(crate) fn rows(&mut self, shelf: &Shelf<Log>, wanted: &Wanted) -> Result<Vec<u8>, Response> {
        #[derive(Serialize)]
        struct Answer {
            seen: usize,
            is_cut: bool,
            rows: Vec<Shown>,
            /// Rows are below nothing here.
            above: [(); 0],
            about: About,
        }
        let kept = self.keep(shelf, &wanted.view)?;
        let length = kept.lines.len();
        let answer = Answer {
            seen: length.min(SEEN_MAX),
            is_cut: length > SEEN_MAX,
            rows: kept.show(wanted.from, wanted.count.min(COUNT_MAX)),
            above: [],
            about: kept.about(),
        };
        json(&answer)
    }

    /// All that is known of the row that is wanted, as JSON.
    pub(crate) fn row(&mut self, shelf: &Shelf<Log>, wanted: &Wanted) -> Result<Vec<u8>, Response> {
        let kept = self.keep(shelf, &wanted.view)?;
        json(&kept.whole(wanted.from).ok_or_else(|| Response::text(422, "there is no such row"))?)
    }

    /// The list as text.
    pub(crate) fn text(&mut self, shelf: &Shelf<Log>, wanted: &Wanted) -> Result<String, Response> {
        let kept = self.keep(shelf, &wanted.view)?;
        let mut text = String::new();
        for row in kept.show(0, COUNT_MAX) {
            let detail = if row.detail.is_empty() { String::new() } else { format!(" [{}]", row.detail) };
            // A string takes everything.
            let _ = writeln!(text, "{:>12} {:>8} {:>14}  {}{detail}", row.value, row.percent, row.count, row.name);
        }
        Ok(text)
    }

    fn keep(&mut self, shelf: &Shelf<Log>, view: &View) -> Result<&Kept, Response> {
        // What was kept of a log that is gone is gone with it.
        self.read.retain(|(id, _)| shelf.get(*id).is_some());
        let read = self.read(shelf, view.log)?;
        let base = view.base.map(|base| self.read(shelf, base)).transpose()?;
        if self.kept.as_ref().is_none_or(|kept| kept.view != *view) {
            self.kept = Some(Kept::new(view.clone(), read, base)?);
        }
        self.kept.as_ref().ok_or_else(gone)
    }

    fn read(&mut self, shelf: &Shelf<Log>, id: u64) -> Result<Arc<Read>, Response> {
        let read = match self.read.iter().position(|(other, _)| *other == id) {
            Some(at) => self.read.remove(at).ok_or_else(gone)?.1,
            None => Arc::new(Read::new(shelf.get(id).ok_or_else(gone)?.content.clone())),
        };
        self.read.truncate(READ_MAX - 1);
        self.read.push_front((id, read.clone()));
        Ok(read)
    }
}

impl Lines {
    fn len(&self) -> usize {
        match self {
            Lines::Blocks(rows) => rows.len(),
            Lines::Steps(numbers) | Lines::Defects(numbers) => numbers.len(),
        }
    }
}

impl Kept {
    fn new(view: View, read: Arc<Read>, base: Option<Arc<Read>>) -> Result<Kept, Response> {
        if let Some(base) = base.as_ref().filter(|base| base.log().mode != read.log().mode) {
            let [one, other] = [&read, base].map(|read| whole::mode(read.log().mode));
            return Err(Response::text(422, format!("one log is of mode {one}, the other of mode {other}")));
        }
        let lists = read.lists();
        // One that this log does not have is of another log that was shown before.
        let list = view.list.filter(|list| lists.contains(list)).unwrap_or(lists[0]);
        let filter = view.filter.clone();
        let has = |text: &str| match filter.strip_prefix('!') {
            Some(unwanted) => !text.contains(unwanted),
            None => text.contains(filter.strip_prefix('\\').unwrap_or(&filter)),
        };
        let lines = match list {
            List::Advice => {
                let steps = read.plan.unreported.iter().chain(&read.plan.twice).enumerate();
                Lines::Steps(
                    steps.filter(|(_, step)| has(&step.advice.to_string())).map(|(number, _)| number).collect(),
                )
            }
            List::Defects => {
                let defects = read.log().about.defects.iter().enumerate();
                let is_shown = |defect| has(&defect_name(&read, defect));
                Lines::Defects(defects.filter(|(_, defect)| is_shown(defect)).map(|(number, _)| number).collect())
            }
            List::Unreported | List::Twice | List::Once | List::Live => {
                let within = view.within.as_ref().map(|within| (within.by, &*within.name));
                let choice = Choice { list, by: view.by, within, filter: &view.filter };
                Lines::Blocks(rows(&read, base.as_deref(), &choice, view.sort))
            }
        };
        Ok(Kept { view, list, read, base, lines })
    }

    fn show(&self, from: usize, count: usize) -> Vec<Shown> {
        match &self.lines {
            Lines::Blocks(rows) => self.show_blocks(rows, from, count),
            Lines::Steps(steps) => {
                let shown = steps.iter().enumerate().skip(from).take(count);
                shown.filter_map(|(row, &number)| self.show_step(row, number)).collect()
            }
            Lines::Defects(defects) => {
                let shown = defects.iter().enumerate().skip(from).take(count);
                shown.filter_map(|(row, &number)| self.show_defect(row, number)).collect()
            }
        }
    }

    fn show_blocks(&self, rows: &[Row], from: usize, count: usize) -> Vec<Shown> {
        let total = self.total(self.list).usable;
        let largest = rows.iter().map(|row| self.sorted(&row.amount).abs()).fold(0.0, f64::max);
        let mut cumulative: f64 = rows.iter().take(from).map(|row| row.amount.usable).sum();
        let shown = rows.iter().enumerate().skip(from).take(count);
        shown
            .map(|(number_of_row, row)| {
                let amount = &row.amount;
                cumulative += amount.usable;
                let group = whole::first(&self.read, self.base.as_deref(), row);
                let name = group.map_or("", |(read, group)| read.group_name(group, self.view.by)).to_owned();
                let is_site = self.view.by == By::Site;
                let error = amount.usable_error();
                Shown {
                    row: number_of_row,
                    kind: if is_site { "record" } else { "group" },
                    list: Some(self.list),
                    amount: amount.usable,
                    value: bytes(amount.usable),
                    error: if error >= 1.0 { bytes(error) } else { String::new() },
                    percent: percent(amount.usable, total),
                    cumulative: percent(cumulative, total),
                    share: if largest == 0.0 { 0.0 } else { self.sorted(amount) / largest },
                    count: format!("{}×", number(amount.blocks)),
                    name,
                    detail: if is_site { self.types(row) } else { String::new() },
                    exactly: whole::figures(amount),
                }
            })
            .collect()
    }

    /// What rows are sorted by.
    fn sorted(&self, amount: &Amount) -> f64 {
        match self.view.sort {
            Sort::Usable => amount.usable,
            Sort::Req => amount.requested,
            Sort::Slop => amount.slop(),
            Sort::NumBlocks => amount.blocks,
        }
    }

    /// The types of a row's blocks: the first that there is, and how many others.
    fn types(&self, row: &Row) -> String {
        let groups = row.groups.iter().filter_map(|&group| self.read.log().groups.get(group as usize));
        let mut types: Vec<_> = groups.filter_map(|group| self.read.name(group.type_name)).collect();
        types.sort_unstable();
        types.dedup();
        match &types[..] {
            [] => String::new(),
            [one] => (*one).to_owned(),
            [one, others @ ..] => format!("{one} and {}", counted(others.len() as f64, "other")),
        }
    }

    fn show_step(&self, row: usize, of_plan: usize) -> Option<Shown> {
        let (step, list) = self.step(of_plan)?;
        let total = self.read.total(list).usable;
        let largest = [&self.read.plan.unreported, &self.read.plan.twice];
        let largest = largest.iter().filter_map(|steps| steps.first()).map(|step| step.bytes).fold(0.0, f64::max);
        let (usable, blocks) = (counted(step.bytes, "byte"), counted(step.blocks, "block"));
        Some(Shown {
            row,
            kind: "advice",
            list: Some(list),
            amount: step.bytes,
            value: bytes(step.bytes),
            percent: percent(step.bytes, total),
            share: if largest == 0.0 { 0.0 } else { step.bytes / largest },
            count: format!("{}×", number(step.blocks)),
            name: step.advice.to_string(),
            exactly: format!("{usable} in {blocks}"),
            ..Shown::default()
        })
    }

    fn show_defect(&self, row: usize, number_of_defect: usize) -> Option<Shown> {
        let defect = self.read.log().about.defects.get(number_of_defect)?;
        Some(Shown {
            row,
            kind: "defect",
            list: Some(List::Defects),
            amount: defect.count as f64,
            value: format!("{}×", number(defect.count as f64)),
            name: defect_name(&self.read, defect),
            exactly: counted(defect.count as f64, "time"),
            ..Shown::default()
        })
    }

    fn whole(&self, row: usize) -> Option<Whole> {
        let (read, base) = (&*self.read, self.base.as_deref());
        Some(match &self.lines {
            Lines::Blocks(rows) => {
                let row = rows.get(row)?;
                match self.view.by {
                    By::Site => whole::site(read, base, row),
                    by => whole::group(read, base, row, by, self.list),
                }
            }
            Lines::Steps(steps) => {
                let (step, list) = self.step(*steps.get(row)?)?;
                whole::step(step, list, read.total(list).usable)
            }
            Lines::Defects(defects) => whole::defect(read, read.log().about.defects.get(*defects.get(row)?)?),
        })
    }

    fn step(&self, number: usize) -> Option<(&heapledger_dmd::Step, List)> {
        let plan = &self.read.plan;
        match number.checked_sub(plan.unreported.len()) {
            None => Some((plan.unreported.get(number)?, List::Unreported)),
            Some(number) => Some((plan.twice.get(number)?, List::Twice)),
        }
    }

    /// All that is in a list, less what it is compared with.
    fn total(&self, list: List) -> Amount {
        let mut total = self.read.total(list);
        if let Some(base) = &self.base {
            total -= base.total(list);
        }
        total
    }

    fn about(&self) -> About {
        let lists = self.read.lists();
        let totals: Vec<Amount> = lists.iter().map(|&list| self.total(list)).collect();
        let mut heap = Amount::default();
        totals.iter().for_each(|total| heap += *total);
        let tab = |(&list, total): (&List, &Amount)| {
            let name = match list {
                List::Unreported => "Unreported",
                List::Twice => "Reported twice",
                List::Once => "Reported once",
                List::Live => "Blocks",
                List::Advice => "Advice",
                List::Defects => "Defects",
            };
            let share = if heap.usable > 0.0 { total.usable / heap.usable } else { 0.0 };
            let figure = match list {
                List::Advice => number((self.read.plan.unreported.len() + self.read.plan.twice.len()) as f64),
                List::Defects => number(self.read.log().about.defects_count as f64),
                _ => percent(total.usable, heap.usable),
            };
            Tab { list, name, figure, value: bytes(total.usable), exactly: whole::figures(total), share }
        };
        let tabs = lists.iter().zip(&totals).map(tab).collect();
        About { list: self.list, lists: tabs, figures: self.figures(&heap), is_estimated: self.is_estimated() }
    }

    fn is_estimated(&self) -> bool {
        self.read.log().about.sampling.is_some()
    }

    /// What there is to say of the log as a whole.
    fn figures(&self, heap: &Amount) -> Vec<(String, String)> {
        let about = &self.read.log().about;
        let mut figures = vec![
            (bytes(heap.usable), format!("in the heap, {}", whole::mode(self.read.log().mode))),
            (number(heap.blocks), "blocks".to_owned()),
        ];
        if about.pause_ns > 0 && self.base.is_none() {
            figures.push((pause(about.pause_ns), "held up to be copied".to_owned()));
        }
        if let Some(sampling) = about.sampling {
            let probability = format!("{:.4}", sampling.probability);
            figures.push((format!("p = {probability}"), "per byte: stacks are of a sample".to_owned()));
        }
        figures
    }
}

fn defect_name(read: &Read, defect: &heapledger_dmd::Defect) -> String {
    let reporter = read.name(defect.reporter).unwrap_or("a reporter without a name");
    format!("{reporter} {}", whole::wrong(defect.kind))
}

/// How long something took: `1.25 ms`.
pub(crate) fn pause(nanoseconds: u64) -> String {
    format!("{:.2} ms", nanoseconds as f64 / 1e6)
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, Response> {
    serde_json::to_vec(value).map_err(|error| Response::text(500, error.to_string()))
}
