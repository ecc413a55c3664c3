//! The lists of an analysis: its records, grouped as the user wants to see them.

use std::collections::HashMap;
use std::sync::Arc;

use heapledger_dmd::{
    Adviser, Analysis, DifferentModes, DmdOptions, KindName, Log, Mode, Plan, Record, Share, Sort, Total,
};
use serde::{Deserialize, Serialize};

/// A log, or the difference of two, and the conclusions from it.
#[derive(Debug)]
pub(super) struct AnalysedLog {
    pub(super) analysis: Analysis,
    pub(super) adviser: Adviser,
    pub(super) plan: Plan,
}

/// The kinds of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum List {
    /// Blocks that no reporter reports.
    Unreported,
    /// Blocks that two reporters report.
    Twice,
    /// Blocks that one reporter reports.
    Once,
    /// Blocks whose reporters were not asked.
    Live,
    /// The advice; it has no records.
    Advice,
    /// The defects of reporters; it has no records.
    Defects,
}

/// The property that blocks in one row have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RowsBy {
    /// The stacks that allocated and reported them.
    #[default]
    Site,
    /// Their owner: a type, or a function.
    Owner,
    Type,
    Module,
    Context,
}

/// The choice of records and their order.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) list: List,
    pub(super) by: RowsBy,
    pub(super) within: Option<(RowsBy, &'a str)>,
    /// A part of a text that the records have: a frame, a type, a context, a reporter. After `!`, a
    /// part that they must not have.
    pub(super) filter: &'a str,
    pub(super) sort: Sort,
}

/// Blocks of one row.
#[derive(Debug)]
pub(super) struct Row {
    /// The name of the row.
    pub(super) name: Arc<str>,
    pub(super) amount: Amount,
    /// Indices of the list's records.
    pub(super) records: Vec<usize>,
}

/// The amounts of blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amount {
    pub(super) usable: i64,
    pub(super) blocks: i64,
    /// The requested bytes; for a part of a record, in proportion to its bytes.
    pub(super) requested: f64,
    pub(super) slop: f64,
    /// The variance of `usable`.
    variance: f64,
}

/// The name for an unknown value.
const UNKNOWN: &str = "(not known)";

impl AnalysedLog {
    pub(super) fn new(log: &Log, base: Option<&Log>, sort: Sort) -> Result<AnalysedLog, DifferentModes> {
        let options = DmdOptions { max_frames: usize::MAX, sort, ..DmdOptions::default() };
        let analysis = match base {
            None => Analysis::of(log, &options),
            Some(base) => Analysis::difference(base, log, &options)?,
        };
        let adviser = Adviser::of(&analysis);
        let plan = Plan::of(&analysis, &adviser);
        Ok(AnalysedLog { analysis, adviser, plan })
    }

    /// Returns roughly how much memory the data takes.
    pub(super) fn bytes(&self) -> usize {
        let of = |record: &Record| {
            let frames = record.alloc.len() + record.reports.iter().map(|report| report.stack.len()).sum::<usize>();
            let shares = record.types.len() + record.contexts.len();
            size_of::<Record>() + frames * size_of::<Arc<str>>() + shares * size_of::<Share>() + record.sizes.len() * 16
        };
        self.analysis.kinds.iter().flat_map(|kind| &kind.records).map(of).sum()
    }

    /// Returns the lists that there are, those of records first.
    pub(super) fn lists(&self) -> Vec<List> {
        let mut lists = match self.analysis.mode {
            Mode::DarkMatter => vec![List::Unreported, List::Twice, List::Once, List::Advice],
            Mode::Live | Mode::Cumulative | Mode::Scan => vec![List::Live],
        };
        if !self.analysis.defects.is_empty() {
            lists.push(List::Defects);
        }
        lists
    }

    /// Returns the total of a list, including blocks outside its records.
    pub(super) fn total(&self, list: List) -> Total {
        self.kind_name(list).and_then(|name| Some(self.analysis.kind(name)?.total)).unwrap_or_default()
    }

    pub(super) fn kind_name(&self, list: List) -> Option<KindName> {
        match list {
            List::Unreported => Some(KindName::Unreported),
            List::Twice => Some(KindName::TwiceReported),
            List::Once => Some(KindName::OnceReported),
            List::Live if self.analysis.mode == Mode::Cumulative => Some(KindName::Cumulative),
            List::Live => Some(KindName::Live),
            List::Advice | List::Defects => None,
        }
    }

    pub(super) fn records(&self, list: List) -> &[Record] {
        let kind = self.kind_name(list).and_then(|name| self.analysis.kind(name));
        kind.map_or(&[], |kind| &kind.records)
    }

    /// Returns the groups of a record's blocks in a grouping, with the amount in each.
    pub(super) fn parts(&self, record: &Record, by: RowsBy) -> Vec<(Arc<str>, Amount)> {
        let whole = Amount::of(record);
        let one = |name: Option<&str>| vec![(Arc::from(name.unwrap_or(UNKNOWN)), whole)];
        let shares = |shares: &[Share]| {
            let part = |share: &Share| (share.name.clone().unwrap_or_else(|| Arc::from(UNKNOWN)), whole.part(share));
            shares.iter().map(part).collect()
        };
        let owner = self.adviser.owner(&record.alloc);
        match by {
            // Without an owner, only the innermost frame is known.
            RowsBy::Site => {
                one(owner.as_ref().map(|owner| &*owner.function).or(record.alloc.first().map(|frame| &**frame)))
            }
            RowsBy::Owner => one(owner.as_ref().map(|owner| owner.subject())),
            RowsBy::Module => one(record.module.as_deref()),
            RowsBy::Type => shares(&record.types),
            RowsBy::Context => shares(&record.contexts),
        }
    }

    /// Returns the rows of a list, the largest first.
    pub(super) fn rows(&self, choice: &Choice<'_>) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let mut index: HashMap<Arc<str>, usize> = HashMap::new();
        for (number, record) in self.records(choice.list).iter().enumerate() {
            if !passes(record, choice.filter) {
                continue;
            }
            let wanted = match choice.within {
                None => None,
                Some((by, name)) => {
                    let mut parts = self.parts(record, by).into_iter();
                    let Some((_, amount)) = parts.find(|(other, _)| **other == *name) else { continue };
                    Some(amount)
                }
            };
            for (name, amount) in self.parts(record, choice.by) {
                let row = |name: Arc<str>| Row { name, amount: Amount::default(), records: Vec::new() };
                let at = match choice.by {
                    RowsBy::Site => rows.len(),
                    _ => *index.entry(name.clone()).or_insert(rows.len()),
                };
                if at == rows.len() {
                    rows.push(row(name));
                }
                rows[at].amount.add(&wanted.unwrap_or(amount));
                rows[at].records.push(number);
            }
        }
        rows.sort_by(|one, other| other.amount.sorted(choice.sort).total_cmp(&one.amount.sorted(choice.sort)));
        rows
    }
}

fn passes(record: &Record, filter: &str) -> bool {
    let (wanted, is_wanted) = match filter.strip_prefix('!') {
        Some(unwanted) => (unwanted, false),
        None => (filter.strip_prefix('\\').unwrap_or(filter), true),
    };
    let has = |text: &Arc<str>| text.contains(wanted);
    let named = |share: &Share| share.name.as_ref().is_some_and(has);
    let mut reports = record.reports.iter();
    let mut is_found = || {
        record.alloc.iter().any(has)
            || record.types.iter().any(named)
            || record.contexts.iter().any(named)
            || reports.any(|report| report.stack.iter().any(has) || report.reporters.iter().any(has))
    };
    wanted.is_empty() || is_found() == is_wanted
}

impl Amount {
    pub(super) fn of(record: &Record) -> Amount {
        Amount {
            usable: record.usable,
            blocks: record.blocks,
            requested: record.requested as f64,
            slop: record.slop as f64,
            variance: record.estimate.map_or(0.0, |estimate| estimate.bytes_error.powi(2)),
        }
    }

    /// Returns the part of the amount that a share has, in proportion to its bytes.
    fn part(&self, share: &Share) -> Amount {
        let part = if self.usable == 0 { 0.0 } else { share.bytes as f64 / self.usable as f64 };
        Amount {
            usable: share.bytes,
            blocks: share.blocks,
            requested: self.requested * part,
            slop: self.slop * part,
            variance: self.variance * part.abs(),
        }
    }

    pub(super) fn add(&mut self, other: &Amount) {
        self.usable += other.usable;
        self.blocks += other.blocks;
        self.requested += other.requested;
        self.slop += other.slop;
        self.variance += other.variance;
    }

    /// Returns the standard error of `usable`.
    pub(super) fn error(&self) -> f64 {
        self.variance.sqrt()
    }

    /// Returns the sort key of rows: the largest first, or in a difference the smallest.
    fn sorted(&self, sort: Sort) -> f64 {
        self.by(sort).abs()
    }

    pub(super) fn by(&self, sort: Sort) -> f64 {
        match sort {
            Sort::Usable => self.usable as f64,
            Sort::Requested => self.requested,
            Sort::Slop => self.slop,
            Sort::Blocks => self.blocks as f64,
        }
    }
}
