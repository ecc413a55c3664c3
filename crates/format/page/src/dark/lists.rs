//! The lists of a log: its blocks, put together as somebody wants to see them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use heapledger_dmd::{Adviser, Amount, FrameId, Group, Log, Mode, NameId, Plan, Report, TraceId};
use serde::{Deserialize, Serialize};

/// A log, and what is concluded from it.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) adviser: Adviser<Arc<Log>>,
    pub(super) plan: Plan,
    /// By trace: a hash of its texts, by which stacks of two logs are the same.
    stacks: Vec<u64>,
}

/// Which blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum List {
    /// Nobody reports them.
    Unreported,
    /// Two report them.
    Twice,
    /// One reports them.
    Once,
    /// Who reports them was not asked.
    Live,
    /// None: what to do about them.
    Advice,
    /// None: what reporters did wrong.
    Defects,
}

/// What blocks in one row have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// Where they were allocated and reported.
    #[default]
    Site,
    /// Whose they are: a type, or a function.
    Owner,
    Type,
    Module,
    Context,
}

/// By what rows are sorted, the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Sort {
    #[default]
    Usable,
    Req,
    Slop,
    NumBlocks,
}

/// Blocks of one row.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) amount: Amount,
    /// Indices of the log's groups.
    pub(super) groups: Vec<u32>,
    /// Of the log that is subtracted.
    pub(super) base: Vec<u32>,
}

/// Which of a log's blocks are wanted.
pub(super) struct Choice<'a> {
    pub(super) list: List,
    pub(super) by: By,
    pub(super) within: Option<(By, &'a str)>,
    /// Part of a text that they have: in a frame, a type, a context, a reporter. After `!` it is one that they do not have.
    pub(super) filter: &'a str,
}

/// What blocks are called that have nothing to be called by.
pub(super) const UNKNOWN: &str = "(not known)";
/// The same for those whose stack was not recorded.
pub(super) const NO_STACK: &str = "(no stack trace recorded)";

impl Read {
    pub(super) fn new(log: Arc<Log>) -> Read {
        let adviser = Adviser::of(log);
        let plan = Plan::of(&adviser);
        let texts: Vec<u64> = adviser.log().frames.iter().map(hash).collect();
        let stack =
            |trace: &Vec<FrameId>| hash(&trace.iter().map(|frame| texts.get(frame.0 as usize)).collect::<Vec<_>>());
        let stacks = adviser.log().traces.iter().map(stack).collect();
        Read { adviser, plan, stacks }
    }

    pub(super) fn log(&self) -> &Log {
        self.adviser.log()
    }

    /// The lists that there are, those of blocks first.
    pub(super) fn lists(&self) -> Vec<List> {
        let mut lists = match self.log().mode {
            Mode::DarkMatter => vec![List::Unreported, List::Twice, List::Once, List::Advice],
            Mode::Live | Mode::Cumulative | Mode::Scan => vec![List::Live],
        };
        if !self.log().about.defects.is_empty() {
            lists.push(List::Defects);
        }
        lists
    }

    pub(super) fn name(&self, name: Option<NameId>) -> Option<&str> {
        Some(self.log().names.get(name?.0 as usize)?)
    }

    /// What a group is called when it is grouped so.
    pub(super) fn group_name(&self, group: &Group, by: By) -> &str {
        let owner = || self.adviser.owner(group.alloc);
        let none = if group.alloc.is_none() { NO_STACK } else { UNKNOWN };
        match by {
            By::Site => owner().map_or(none, |owner| &owner.function),
            By::Owner => owner().map_or(none, |owner| owner.subject()),
            By::Module => owner().map(|owner| &*owner.module).filter(|module| !module.is_empty()).unwrap_or(none),
            By::Type => self.name(group.type_name).unwrap_or(UNKNOWN),
            By::Context => self.name(group.context).unwrap_or("(none)"),
        }
    }

    /// All blocks of a list, whether their stacks are known or not.
    pub(super) fn total(&self, list: List) -> Amount {
        let mut total = Amount::default();
        for group in self.log().groups.iter().filter(|group| self.list_of(group) == list) {
            total += self.log().counted(group);
        }
        total
    }

    fn list_of(&self, group: &Group) -> List {
        match (self.log().mode, group.reports) {
            (Mode::DarkMatter, [None, _]) => List::Unreported,
            (Mode::DarkMatter, [Some(_), None]) => List::Once,
            (Mode::DarkMatter, [Some(_), Some(_)]) => List::Twice,
            _ => List::Live,
        }
    }

    /// The groups that are wanted, each by what it is put together with.
    fn chosen<'a>(&'a self, choice: &'a Choice<'a>) -> impl Iterator<Item = (u64, u32, &'a Group)> {
        let (wanted, is_wanted) = match choice.filter.strip_prefix('!') {
            Some(unwanted) => (unwanted, false),
            None => (choice.filter.strip_prefix('\\').unwrap_or(choice.filter), true),
        };
        let has = |texts: &[String]| -> Vec<bool> { texts.iter().map(|text| text.contains(wanted)).collect() };
        let (frames, names) = (has(&self.log().frames), has(&self.log().names));
        let any = |trace: &Vec<FrameId>| trace.iter().any(|frame| frames.get(frame.0 as usize) == Some(&true));
        let traces: Vec<bool> = self.log().traces.iter().map(any).collect();
        let passes = move |group: &Group| {
            let trace = |trace: TraceId| traces.get(trace.0 as usize) == Some(&true);
            let name = |name: Option<NameId>| name.is_some_and(|name| names.get(name.0 as usize) == Some(&true));
            let mut reports = group.reports.iter().flatten();
            let is_found = group.alloc.is_some_and(trace)
                || name(group.type_name)
                || name(group.context)
                || reports.any(|report| trace(report.trace) || name(report.reporter));
            wanted.is_empty() || is_found == is_wanted
        };
        let is_estimated = self.log().about.sampling.is_some();
        let groups = (0..).zip(&self.log().groups);
        groups.filter_map(move |(number, group)| {
            let is_chosen = self.list_of(group) == choice.list
                && (group.alloc.is_some() || !is_estimated)
                && choice.within.is_none_or(|(by, name)| self.group_name(group, by) == name)
                && passes(group);
            is_chosen.then(|| (self.key(group, choice.by), number, group))
        })
    }

    fn key(&self, group: &Group, by: By) -> u64 {
        if by != By::Site {
            return hash(self.group_name(group, by));
        }
        let stack = |trace: TraceId| self.stacks.get(trace.0 as usize);
        let report = |report: Report| (self.name(report.reporter), stack(report.trace));
        hash(&(group.alloc.map(stack), group.reports.map(|one| one.map(report))))
    }
}

/// The rows of a list, with those of a base subtracted, sorted.
pub(super) fn rows(read: &Read, base: Option<&Read>, choice: &Choice<'_>, sort: Sort) -> Vec<Row> {
    let mut places: HashMap<u64, usize> = HashMap::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut row = |rows: &mut Vec<Row>, key| {
        *places.entry(key).or_insert_with(|| {
            rows.push(Row::default());
            rows.len() - 1
        })
    };
    for (key, number, group) in read.chosen(choice) {
        let at = row(&mut rows, key);
        rows[at].amount += read.log().estimated(group);
        rows[at].groups.push(number);
    }
    if let Some(base) = base {
        for (key, number, group) in base.chosen(choice) {
            let at = row(&mut rows, key);
            rows[at].amount -= base.log().estimated(group);
            rows[at].base.push(number);
        }
        // What has not changed is no difference.
        rows.retain(|row| row.amount.usable != 0.0 || row.amount.requested != 0.0 || row.amount.blocks != 0.0);
    }
    let by = |row: &Row| {
        let Amount { usable, requested, blocks, .. } = row.amount;
        match sort {
            Sort::Usable => (usable, requested),
            Sort::Req => (requested, usable),
            Sort::Slop => (row.amount.slop(), usable),
            Sort::NumBlocks => (blocks, usable),
        }
    };
    rows.sort_by(|one, other| {
        let ((one, then), (other, other_then)) = (by(one), by(other));
        other.abs().total_cmp(&one.abs()).then(other_then.abs().total_cmp(&then.abs()))
    });
    rows
}

/// The same for the same, in two logs of one page.
fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
