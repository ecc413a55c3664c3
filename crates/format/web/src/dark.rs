//! The view of a log: one of its lists, put together and sorted as the user wants it.

mod details;
mod figures;
mod lists;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use heapledger_dmd::{Analysis, DefectRecord, DmdOptions, KindName, Log, Mode, Sort, Step, TextOptions};
use heapledger_http::HttpResponse;
use serde::{Deserialize, Serialize};

use self::details::Details;
use self::figures::{bytes, counted, number, percent};
use self::lists::{AnalysedLog, Choice, List, Row, RowsBy};
use crate::cache::{Cache, no_longer_cached};

/// A request from the browser. It is complete: no state is kept about who looks at what.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ViewRequest {
    #[serde(flatten)]
    view: View,
    #[serde(default)]
    from: usize,
    #[serde(default)]
    count: usize,
}

/// The part of a request whose result can be kept to be shown again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct View {
    log: u64,
    /// The log that it is compared with, which is subtracted.
    #[serde(default)]
    base: Option<u64>,
    /// The list to show. The default is the first one that the log has.
    #[serde(default)]
    list: Option<List>,
    #[serde(default)]
    by: RowsBy,
    #[serde(default)]
    within: Option<Within>,
    #[serde(default)]
    sort: SortBy,
    #[serde(default)]
    filter: String,
}

/// The sort key of rows, with the names that the command uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SortBy {
    #[default]
    Usable,
    Req,
    Slop,
    NumBlocks,
}

/// Selects the blocks in one group of another grouping.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Within {
    by: RowsBy,
    name: String,
}

/// The logs and the list that were looked at last.
#[derive(Debug, Default)]
pub(crate) struct Views {
    read: VecDeque<(Compared, Arc<AnalysedLog>)>,
    kept: Option<CachedView>,
}

/// A log, the log that it is compared with, and the sort order of its records.
type Compared = (u64, Option<u64>, SortBy);

#[derive(Debug)]
struct CachedView {
    view: View,
    list: List,
    log: Arc<Log>,
    read: Arc<AnalysedLog>,
    lines: Lines,
}

/// The lines of a list.
#[derive(Debug)]
enum Lines {
    Blocks(Vec<Row>),
    /// Steps of a plan: the list with the blocks that each is about, and its index in the plan's
    /// steps about that list.
    Steps(Vec<(List, usize)>),
    /// Numbers of defects.
    Defects(Vec<usize>),
}

/// The number of analyses that are kept: the current one and the one before.
const READ_MAX: usize = 2;
/// The most rows in one answer, whatever was asked for.
const COUNT_MAX: usize = 2_000;
/// The most rows that are shown: an element in a browser can be some 16 million pixels high.
const VISIBLE_ROWS_MAX: usize = crate::rows::VISIBLE_ROWS_MAX;

/// A row as sent to the browser.
#[derive(Debug, Default, Serialize)]
struct Shown {
    row: usize,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<List>,
    amount: i64,
    value: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    percent: String,
    /// The amount together with the rows above.
    #[serde(skip_serializing_if = "String::is_empty")]
    cumulative: String,
    /// The share of the largest row, from -1 to 1.
    share: f64,
    count: String,
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
    exactly: String,
}

/// A list to choose.
#[derive(Debug, Serialize)]
struct Tab {
    list: List,
    name: &'static str,
    figure: String,
    value: String,
    exactly: String,
    /// The share of all blocks.
    share: f64,
}

/// The log as a whole.
#[derive(Debug, Serialize)]
struct About {
    list: List,
    lists: Vec<Tab>,
    /// Figures and their labels.
    figures: Vec<(String, &'static str)>,
    is_estimated: bool,
}

impl ViewRequest {
    pub(crate) fn parse(body: &[u8]) -> Result<ViewRequest, HttpResponse> {
        serde_json::from_slice(body).map_err(|error| HttpResponse::text(400, format!("no view of a log: {error}")))
    }
}

impl Views {
    pub(crate) fn clear(&mut self) {
        *self = Views::default();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read.is_empty()
    }

    /// Returns roughly how much memory the views take.
    pub(crate) fn bytes(&self) -> usize {
        self.read.iter().map(|(_, read)| read.bytes()).sum()
    }

    /// Returns the requested rows, as JSON.
    pub(crate) fn rows(&mut self, cache: &Cache<Log>, wanted: &ViewRequest) -> Result<Vec<u8>, HttpResponse> {
        #[derive(Serialize)]
        struct Answer {
            seen: usize,
            is_cut: bool,
            rows: Vec<Shown>,
            /// Rows have no parents here.
            above: [(); 0],
            about: About,
        }
        let kept = self.keep(cache, &wanted.view)?;
        let length = kept.lines.len();
        let answer = Answer {
            seen: length.min(VISIBLE_ROWS_MAX),
            is_cut: length > VISIBLE_ROWS_MAX,
            rows: kept.show(wanted.from, wanted.count.min(COUNT_MAX)),
            above: [],
            about: kept.about(),
        };
        json(&answer)
    }

    /// Returns all that is known about the requested row, as JSON.
    pub(crate) fn row(&mut self, cache: &Cache<Log>, wanted: &ViewRequest) -> Result<Vec<u8>, HttpResponse> {
        let kept = self.keep(cache, &wanted.view)?;
        json(&kept.details(wanted.from).ok_or_else(|| HttpResponse::text(422, "there is no such row"))?)
    }

    /// Returns the view as text, as the command prints it.
    pub(crate) fn text(&mut self, cache: &Cache<Log>, wanted: &ViewRequest) -> Result<String, HttpResponse> {
        let View { log, base, by, sort, filter, .. } = &wanted.view;
        let get = |id| cache.get(id).map(|one| &*one.content).ok_or_else(no_longer_cached);
        let filters = (!filter.is_empty()).then(|| filter.clone()).into_iter().collect();
        let by = match by {
            RowsBy::Site | RowsBy::Owner => heapledger_dmd::GroupBy::Stack,
            RowsBy::Type => heapledger_dmd::GroupBy::Type,
            RowsBy::Module => heapledger_dmd::GroupBy::Module,
            RowsBy::Context => heapledger_dmd::GroupBy::Context,
        };
        let options = DmdOptions { sort: (*sort).into(), filters, by, ..DmdOptions::default() };
        let analysis = match base {
            None => Analysis::of(get(*log)?, &options),
            Some(base) => Analysis::difference(get(*base)?, get(*log)?, &options).map_err(different)?,
        };
        let mut text = analysis.text("about:memory", &TextOptions { details: true, defects: true });
        let plan = &self.keep(cache, &wanted.view)?.read.plan;
        if analysis.mode == Mode::DarkMatter && base.is_none() {
            text.push_str(&plan.to_string());
        }
        Ok(text)
    }

    fn keep(&mut self, cache: &Cache<Log>, view: &View) -> Result<&CachedView, HttpResponse> {
        let is_kept = |id: u64| cache.get(id).is_some();
        // Views of logs that are no longer kept are dropped.
        self.read.retain(|((log, base, _), _)| is_kept(*log) && base.is_none_or(is_kept));
        let log = cache.get(view.log).ok_or_else(no_longer_cached)?.content.clone();
        let read = self.read(cache, (view.log, view.base, view.sort))?;
        if self.kept.as_ref().is_none_or(|kept| kept.view != *view) {
            self.kept = Some(CachedView::new(view.clone(), log, read));
        }
        self.kept.as_ref().ok_or_else(no_longer_cached)
    }

    fn read(&mut self, cache: &Cache<Log>, compared: Compared) -> Result<Arc<AnalysedLog>, HttpResponse> {
        let get = |id| cache.get(id).map(|one| &*one.content).ok_or_else(no_longer_cached);
        let (log, base, sort) = compared;
        let read = match self.read.iter().position(|(other, _)| *other == compared) {
            Some(at) => self.read.remove(at).ok_or_else(no_longer_cached)?.1,
            None => {
                let base = base.map(get).transpose()?;
                Arc::new(AnalysedLog::new(get(log)?, base, sort.into()).map_err(different)?)
            }
        };
        self.read.truncate(READ_MAX - 1);
        self.read.push_front((compared, read.clone()));
        Ok(read)
    }
}

fn different(error: heapledger_dmd::DifferentModes) -> HttpResponse {
    HttpResponse::text(422, error.to_string())
}

impl From<SortBy> for Sort {
    fn from(sort: SortBy) -> Sort {
        match sort {
            SortBy::Usable => Sort::Usable,
            SortBy::Req => Sort::Requested,
            SortBy::Slop => Sort::Slop,
            SortBy::NumBlocks => Sort::Blocks,
        }
    }
}

impl Lines {
    fn len(&self) -> usize {
        match self {
            Lines::Blocks(rows) => rows.len(),
            Lines::Steps(steps) => steps.len(),
            Lines::Defects(numbers) => numbers.len(),
        }
    }
}

impl CachedView {
    fn new(view: View, log: Arc<Log>, read: Arc<AnalysedLog>) -> CachedView {
        let lists = read.lists();
        // A list that this log does not have was chosen for another log shown before.
        let list = view.list.filter(|list| lists.contains(list)).unwrap_or(lists[0]);
        let has = |text: &str| match view.filter.strip_prefix('!') {
            Some(unwanted) => !text.contains(unwanted),
            None => text.contains(view.filter.strip_prefix('\\').unwrap_or(&view.filter)),
        };
        let lines = match list {
            List::Advice => {
                let unreported = read.plan.unreported.iter().enumerate().map(|step| (List::Unreported, step));
                let twice = read.plan.twice.iter().enumerate().map(|step| (List::Twice, step));
                let all = unreported.chain(twice);
                let mut steps: Vec<_> = all.filter(|(_, (_, step))| has(&step.advice.to_string())).collect();
                steps.sort_by_key(|(_, (_, step))| Reverse(step.bytes));
                Lines::Steps(steps.into_iter().map(|(list, (number, _))| (list, number)).collect())
            }
            List::Defects => {
                let flaws = read.analysis.defects.iter().enumerate();
                Lines::Defects(flaws.filter(|(_, flaw)| has(&defect_name(flaw))).map(|(number, _)| number).collect())
            }
            List::Unreported | List::Twice | List::Once | List::Live => {
                let within = view.within.as_ref().map(|within| (within.by, &*within.name));
                let (by, sort) = (view.by, view.sort.into());
                Lines::Blocks(read.rows(&Choice { list, by, within, filter: &view.filter, sort }))
            }
        };
        CachedView { view, list, log, read, lines }
    }

    fn show(&self, from: usize, count: usize) -> Vec<Shown> {
        match &self.lines {
            Lines::Blocks(rows) => self.show_blocks(rows, from, count),
            Lines::Steps(steps) => {
                let shown = steps.iter().enumerate().skip(from).take(count);
                shown.filter_map(|(row, &step)| self.show_step(row, step)).collect()
            }
            Lines::Defects(defects) => {
                let shown = defects.iter().enumerate().skip(from).take(count);
                shown.filter_map(|(row, &number)| self.show_defect(row, number)).collect()
            }
        }
    }

    fn show_blocks(&self, rows: &[Row], from: usize, count: usize) -> Vec<Shown> {
        let total = self.read.total(self.list).bytes as f64;
        let largest = rows.iter().map(|row| row.amount.by(self.view.sort.into()).abs()).fold(0.0, f64::max);
        let mut cumulative: i64 = rows.iter().take(from).map(|row| row.amount.usable).sum();
        let is_site = self.view.by == RowsBy::Site;
        let shown = rows.iter().enumerate().skip(from).take(count);
        shown
            .map(|(at, row)| {
                let amount = &row.amount;
                cumulative += amount.usable;
                let (usable, error) = (amount.usable as f64, amount.error());
                Shown {
                    row: at,
                    kind: if is_site { "record" } else { "group" },
                    list: Some(self.list),
                    amount: amount.usable,
                    value: bytes(usable),
                    error: if error >= 1.0 { bytes(error) } else { String::new() },
                    percent: percent(usable, total),
                    cumulative: percent(cumulative as f64, total),
                    share: if largest == 0.0 { 0.0 } else { amount.by(self.view.sort.into()) / largest },
                    count: times(amount.blocks),
                    name: row.name.to_string(),
                    detail: if is_site { self.types(row) } else { String::new() },
                    exactly: details::figures(amount, true),
                }
            })
            .collect()
    }

    /// Returns the types of a row's blocks: the one with the most bytes, and the number of others.
    fn types(&self, row: &Row) -> String {
        let record = row.records.first().and_then(|&at| self.read.records(self.list).get(at));
        let types: Vec<&str> =
            record.iter().flat_map(|record| &record.types).filter_map(|of| of.name.as_deref()).collect();
        match &types[..] {
            [] => String::new(),
            [one] => (*one).to_owned(),
            [one, others @ ..] => format!("{one} and {}", counted(others.len() as f64, "other")),
        }
    }

    fn show_step(&self, row: usize, (list, number): (List, usize)) -> Option<Shown> {
        let step = self.step(list, number)?;
        let firsts = [self.read.plan.unreported.first(), self.read.plan.twice.first()];
        let largest = firsts.into_iter().flatten().map(|step| step.bytes).max().unwrap_or_default();
        let usable = step.bytes as f64;
        Some(Shown {
            row,
            kind: "advice",
            list: Some(list),
            amount: step.bytes,
            value: bytes(usable),
            percent: percent(usable, self.read.total(list).bytes as f64),
            share: if largest == 0 { 0.0 } else { usable / largest as f64 },
            count: times(step.blocks),
            name: step.advice.to_string(),
            exactly: format!("{} in {}", counted(usable, "byte"), counted(step.blocks as f64, "block")),
            ..Shown::default()
        })
    }

    fn show_defect(&self, row: usize, at: usize) -> Option<Shown> {
        let flaw = self.read.analysis.defects.get(at)?;
        Some(Shown {
            row,
            kind: "defect",
            list: Some(List::Defects),
            value: times(flaw.count.min(i64::MAX as u64) as i64),
            name: defect_name(flaw),
            exactly: counted(flaw.count as f64, "time"),
            ..Shown::default()
        })
    }

    fn details(&self, row: usize) -> Option<Details> {
        let read = &*self.read;
        Some(match &self.lines {
            Lines::Blocks(rows) => {
                let row = rows.get(row)?;
                match self.view.by {
                    RowsBy::Site => {
                        let record = read.records(self.list).get(*row.records.first()?)?;
                        details::site(read, record, &row.amount, self.list)
                    }
                    by => details::group(read, row, by, self.list),
                }
            }
            Lines::Steps(steps) => {
                let (list, number) = *steps.get(row)?;
                details::step(self.step(list, number)?, list, read.total(list).bytes)
            }
            Lines::Defects(flaws) => details::defect(read, read.analysis.defects.get(*flaws.get(row)?)?),
        })
    }

    /// Returns a step of the plan.
    fn step(&self, list: List, number: usize) -> Option<&Step> {
        let plan = &self.read.plan;
        let steps = if list == List::Twice { &plan.twice } else { &plan.unreported };
        steps.get(number)
    }

    fn about(&self) -> About {
        let heap = self.read.analysis.heap.bytes as f64;
        let tab = |list: List| {
            let total = self.read.total(list);
            let usable = total.bytes as f64;
            let (name, figure) = match list {
                List::Unreported => ("Unreported", percent(usable, heap)),
                List::Twice => ("Reported twice", percent(usable, heap)),
                List::Once => ("Reported once", percent(usable, heap)),
                List::Live if self.read.kind_name(list) == Some(KindName::Cumulative) => {
                    ("Blocks, freed ones too", String::new())
                }
                List::Live => ("Blocks", String::new()),
                List::Advice => {
                    ("Advice", number((self.read.plan.unreported.len() + self.read.plan.twice.len()) as f64))
                }
                List::Defects => ("Defects", number(self.read.analysis.defects_count as f64)),
            };
            let exactly = format!("{} in {}", counted(usable, "byte"), counted(total.blocks as f64, "block"));
            Tab {
                list,
                name,
                figure,
                value: bytes(usable),
                exactly,
                share: if heap > 0.0 { usable / heap } else { 0.0 },
            }
        };
        let lists = self.read.lists().into_iter().map(tab).collect();
        let is_estimated = self.read.analysis.is_estimated;
        About { list: self.list, lists, figures: self.figures(), is_estimated }
    }

    /// Returns the figures for the log as a whole.
    fn figures(&self) -> Vec<(String, &'static str)> {
        let (analysis, about) = (&self.read.analysis, &self.log.about);
        let what = match analysis.mode {
            Mode::Cumulative => "allocated",
            Mode::Live | Mode::Scan | Mode::DarkMatter => "in the heap",
        };
        let what = if self.view.base.is_some() { "more" } else { what };
        let heap = [(bytes(analysis.heap.bytes as f64), what), (number(analysis.heap.blocks as f64), "blocks")];
        let pause =
            (about.pause_ns > 0 && self.view.base.is_none()).then(|| (pause(about.pause_ns), "held up to be copied"));
        let sampled = about
            .sampling
            .map(|sampling| (format!("p = {:.4}", sampling.probability), "per byte that a block's stack was recorded"));
        heap.into_iter().chain(pause).chain(sampled).collect()
    }
}

fn defect_name(flaw: &DefectRecord) -> String {
    format!("{} {}", flaw.reporter.as_deref().unwrap_or(details::NAMELESS), flaw.what())
}

fn times(count: i64) -> String {
    format!("{}×", number(count as f64))
}

/// Formats a duration: `1.25 ms`.
pub(crate) fn pause(nanoseconds: u64) -> String {
    format!("{:.2} ms", nanoseconds as f64 / 1e6)
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, HttpResponse> {
    serde_json::to_vec(value).map_err(|error| HttpResponse::text(500, error.to_string()))
}
