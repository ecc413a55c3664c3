//! Tables of sites and groups of sites, shared by `top`, `leaks`, `temporary` and the report after
//! `record`.

use heapledger_analysis::{Amount, Frame, Key, Metric, Moment, NodeId, Profile, Rank, RankBy, Stacks, rank};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use crate::document::{Document, Form};
use crate::error::Result;
use crate::format::{count, share};
use crate::label::{FrameJson, GroupNameJson, Labels, OwnerJson};
use crate::output::Output;
use crate::question::{Question, SelectionJson};
use crate::sampled::{self, ErrorsJson};

/// The columns of a table of amounts: the metric first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    metric: Metric,
    moment: Moment,
}

impl Columns {
    pub(crate) fn new(metric: Metric, moment: Moment) -> Columns {
        Columns { metric, moment }
    }

    pub(crate) fn table(self) -> Tree {
        let blocks = if self.moment == Moment::Total { "allocations" } else { "blocks" };
        match self.metric {
            Metric::Bytes => Tree::new(["bytes", "share", blocks]),
            Metric::Blocks => Tree::new([blocks, "share", "bytes"]),
            Metric::Temporaries => Tree::new(["temporary", "share", "of own", "allocations"]),
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
        let shown = if columns.metric == Metric::Temporaries { Metric::Temporaries } else { Metric::Bytes };
        let figure = sampled::figure(&sum, shown);
        out.dim_line(format_args!("and {} more with {figure} in all: -n 0 shows them", count(rows)))?;
    }
    Ok(())
}

/// A list of groups of sites, the largest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing {
    /// The name in JSON of the property by which sites are grouped.
    pub(crate) name: &'static str,
    pub(crate) by: RankBy,
    pub(crate) depth: Depth,
    /// The most groups listed; 0 for all.
    pub(crate) rows: usize,
}

impl Listing {
    /// Prints the document.
    pub(crate) fn print_document(
        self,
        question: &mut Question<'_, '_>,
        profile: &Profile,
        form: Form,
        out: &mut Output,
    ) -> Result<()> {
        out.document(&self.document(question, profile), form)
    }

    /// Returns the document that `--json` prints.
    pub(crate) fn document(self, question: &mut Question<'_, '_>, profile: &Profile) -> TableJson<RankJson> {
        let ranks = rank(profile, &mut question.labels.names, self.by, question.metric);
        let mut table = TableJson::new(self.name, question, &profile.whole, &profile.left_out, ranks.len());
        table.allocated(profile.allocated);
        let shown = &ranks[..ranks.len().min(limit(self.rows))];
        table.rows = shown.iter().map(|rank| RankJson::new(question, profile, rank)).collect();
        table
    }

    /// Prints the table, if it is not empty.
    pub(crate) fn print(self, question: &mut Question<'_, '_>, profile: &Profile, out: &mut Output) -> Result<()> {
        let ranks = rank(profile, &mut question.labels.names, self.by, question.metric);
        if ranks.is_empty() {
            return Ok(());
        }
        let (shown, rest) = ranks.split_at(ranks.len().min(limit(self.rows)));
        let columns = Columns::new(question.metric, question.selection.moment);
        let labels = &mut question.labels;
        let rows: Vec<(Row, Amount)> =
            shown.iter().map(|rank| (row(labels, &profile.stacks, rank, self.depth), rank.amount)).collect();
        print_rows(columns, &profile.whole, rows, rest.iter().map(|rank| rank.amount), out)?;
        out.hint(labels.hint_for_unnamed(shown.iter().map(|rank| rank.frame.function)));
        Ok(())
    }
}

/// The part of a stack that a row shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// The function alone.
    Function,
    /// The function, and a line of callers.
    Callers,
    /// All of the stack; or, if less than [`usize::MAX`], this many lines of it.
    Stack(usize),
}

/// The most callers in the line of callers.
const CALLERS: usize = 6;

/// Returns the row of a group.
pub(crate) fn row(labels: &mut Labels<'_, '_>, stacks: &Stacks, rank: &Rank, depth: Depth) -> Row {
    if let Key::Module(module) = rank.key {
        let name = labels.module(module);
        return Row::new(if name.is_empty() { "(unknown module)".to_owned() } else { name });
    }
    if let Key::Context(context) = rank.key {
        return Row::new(labels.context(stacks, context));
    }
    if matches!(rank.key, Key::Scope(_) | Key::Task(_) | Key::Heap(_) | Key::Type(_) | Key::Part(_)) {
        return Row::new(labels.function(rank.frame.function));
    }
    if let Key::Line(id) | Key::File(id) = rank.key
        && labels.names.function(id).is_label
    {
        let called = labels.file(&labels.names.function(id).short).into_owned();
        let function = matches!(rank.key, Key::Line(_)).then(|| labels.function(rank.frame.function));
        return Row::default().line(called, function.unwrap_or_default());
    }
    match (rank.key, depth) {
        (Key::Owner(_) | Key::Line(_), _) => {
            let via = labels.names.owner(stacks, rank.largest).via;
            Row::default().line(labels.function(rank.frame.function), labels.place_via(&rank.frame, via))
        }
        (_, Depth::Function) => line(labels, Row::default(), &rank.frame),
        _ => stack_row(labels, stacks, rank.largest, depth),
    }
}

fn line(labels: &Labels<'_, '_>, row: Row, frame: &Frame) -> Row {
    row.line(labels.function(frame.function), labels.place(frame.function, frame.location.as_ref()))
}

/// Returns the row of a stack.
pub(crate) fn stack_row(labels: &mut Labels<'_, '_>, stacks: &Stacks, stack: NodeId, depth: Depth) -> Row {
    let (frames, via) = match depth {
        Depth::Stack(usize::MAX) => (labels.names.useful_frames(stacks, stack), None),
        _ => labels.frames(stacks, stack),
    };
    let first = |frame: &Frame| Row::default().line(labels.function(frame.function), labels.place_via(frame, via));
    let row = frames.first().map_or_else(Row::default, first);
    let callers = &frames[1.min(frames.len())..];
    let row = match depth {
        Depth::Stack(usize::MAX) => callers.iter().fold(row, |row, frame| line(labels, row, frame)),
        Depth::Stack(most) => {
            let (mut row, mut lines, mut at) = (row, 1, 0);
            while at < callers.len() && lines < most {
                let unnamed = labels.unnamed(callers[at..].iter().map(|frame| frame.function));
                let length = unnamed.as_ref().map_or(1, |(_, length)| *length);
                row = match unnamed {
                    Some((name, _)) => row.line("", name),
                    None => line(labels, row, &callers[at]),
                };
                at += length;
                lines += 1;
            }
            if at < callers.len() { row.line("", format!("⋮ {} more", callers.len() - at)) } else { row }
        }
        Depth::Function => return row,
        Depth::Callers if callers.is_empty() => row,
        Depth::Callers => row.line("", callers_in_line(labels, callers)),
    };
    let declared = labels.declared(stacks, stack);
    declared.into_iter().fold(row, |row, said| row.line("", said))
}

/// Formats callers as `← inner ← outer`, as far as they fit one line.
pub(crate) fn callers_in_line(labels: &Labels<'_, '_>, callers: &[Frame]) -> String {
    let (mut names, mut at) = (Vec::new(), 0);
    while at < callers.len() && names.len() < CALLERS {
        let rest = callers[at..].iter().map(|frame| frame.function);
        let (name, length) = labels.unnamed(rest).unwrap_or_else(|| (labels.function(callers[at].function), 1));
        names.push(name);
        at += length;
    }
    let more = if at < callers.len() { " ← …" } else { "" };
    format!("← {}{more}", names.join(" ← "))
}

/// An amount, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AmountJson {
    bytes: u64,
    blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temporary: Option<u64>,
    #[serde(flatten)]
    errors: ErrorsJson,
}

impl AmountJson {
    pub(crate) fn new(amount: &Amount, moment: Moment) -> AmountJson {
        AmountJson {
            bytes: amount.bytes.0,
            blocks: amount.blocks.0,
            temporary: (moment == Moment::Total).then_some(amount.temporaries.0),
            errors: ErrorsJson::new(amount),
        }
    }
}

/// A table, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TableJson<R> {
    by: &'static str,
    #[serde(flatten)]
    selection: SelectionJson,
    total: AmountJson,
    /// The amount that the selection leaves out.
    left_out: AmountJson,
    /// The amount allocated in the time that was asked for, live or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated: Option<AmountJson>,
    /// The number of rows that there would be without a limit.
    rows_all: usize,
    pub(crate) rows: Vec<R>,
}

impl<R> TableJson<R> {
    pub(crate) fn new(
        by: &'static str,
        question: &Question<'_, '_>,
        whole: &Amount,
        left_out: &Amount,
        rows_all: usize,
    ) -> Self {
        let moment = question.selection.moment;
        TableJson {
            by,
            selection: SelectionJson::new(&question.selection, question.metric),
            total: AmountJson::new(whole, moment),
            left_out: AmountJson::new(left_out, moment),
            allocated: None,
            rows_all,
            rows: Vec::new(),
        }
    }

    /// Sets the amount allocated in the time that was asked for.
    pub(crate) fn allocated(&mut self, allocated: Option<Amount>) {
        self.allocated = allocated.map(|all| AmountJson::new(&all, Moment::Total));
    }
}

impl Document for TableJson<RankJson> {
    const SCHEMA: &'static str = "ranks";
}

/// A row, for JSON. The names that are present depend on the property by which sites are grouped.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RankJson {
    #[serde(flatten)]
    amount: AmountJson,
    share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    /// The full name of the type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_name: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    frame: Option<FrameJson>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    owner: Option<OwnerJson>,
    #[serde(flatten)]
    declared: GroupNameJson,
    /// The number of sites in the group.
    sites: usize,
    /// The stack of the site that holds the most, innermost first.
    stack: Vec<FrameJson>,
}

impl RankJson {
    pub(crate) fn new(question: &mut Question<'_, '_>, profile: &Profile, rank: &Rank) -> RankJson {
        let (labels, metric, moment) = (&mut question.labels, question.metric, question.selection.moment);
        let stack = labels.names.useful_frames(&profile.stacks, rank.largest);
        let (module, frame) = module_and_frame(labels, rank);
        let owner = frame.is_some().then(|| OwnerJson::new(labels, &profile.stacks, rank.largest));
        RankJson {
            amount: AmountJson::new(&rank.amount, moment),
            share: rank.amount.share(&profile.whole, metric),
            module,
            type_name: type_of(labels, rank),
            frame,
            owner,
            declared: GroupNameJson::new(labels, &profile.stacks, rank.key),
            sites: rank.sites,
            stack: stack.iter().map(|frame| labels.frame(frame)).collect(),
        }
    }
}

/// Returns the module or the frame that names a group, for JSON.
pub(crate) fn module_and_frame(labels: &Labels<'_, '_>, rank: &Rank) -> (Option<String>, Option<FrameJson>) {
    match rank.key {
        Key::Module(module) => (Some(labels.names.module_path(module)), None),
        Key::Owner(_) | Key::Line(_) | Key::File(_) | Key::Site(_) | Key::Function(_) => {
            (None, Some(labels.frame(&rank.frame)))
        }
        Key::Context(_) | Key::Scope(_) | Key::Task(_) | Key::Heap(_) | Key::Type(_) | Key::Part(_) => (None, None),
    }
}

/// Returns the full name of a group's type, if groups are types.
pub(crate) fn type_of(labels: &Labels<'_, '_>, rank: &Rank) -> Option<String> {
    matches!(rank.key, Key::Type(_)).then(|| labels.names.function(rank.frame.function).full.to_string())
}

/// Returns the number of rows to show; 0 means all.
pub(crate) fn limit(rows: usize) -> usize {
    if rows == 0 { usize::MAX } else { rows }
}
