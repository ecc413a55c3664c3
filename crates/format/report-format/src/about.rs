//! The display of reports as in Firefox's about:memory, as data and as text.
//!
//! The rules are those of Firefox: which reports form one tree, which are merged, hidden, summed up
//! as tiny or found invalid; how numbers are written and lines are drawn. No report should have
//! others below it. If a report has one below it, Firefox leaves out the upper report's amount; so
//! does this module, with its path in [`Section::left_out`]. If it has several below it, Firefox
//! shows nothing at all; here a `(fake child)` has the amount, as Firefox has it in differences.

use std::fmt;
use std::sync::Arc;

use regex::Regex;

mod arrange;
mod build;
mod drafts;
mod number;
mod text;

use crate::difference::{Difference, Presence};
use crate::report::{MAIN_PROCESS, Reports, Unit};

pub use self::text::Row;

/// Names of a path from this depth on are taken as one: nobody reads a tree as deep as that.
const DEPTH_MAX: usize = 400;

/// The options for showing reports.
#[derive(Clone, Debug, Default)]
pub struct AboutOptions {
    /// True to show exact bytes and to hide nothing.
    pub verbose: bool,
    /// The filter that paths have to match.
    pub filter: Option<Filter>,
}

/// A filter of paths. It sees a `/` within a name of a path as `\`.
#[derive(Clone, Debug)]
pub enum Filter {
    /// Paths that contain this text.
    Text(String),
    /// Paths that this expression matches.
    Pattern(Regex),
}

/// Everything that about:memory shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The approximate resident memory of all processes: that of the main one, and what the others
    /// do not share.
    pub total_resident: String,
    /// The processes that have something to show, in the order in which they are shown.
    pub sections: Vec<Section>,
}

/// The part of the page about one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The name of the process.
    pub process: Arc<str>,
    /// The reasons why figures are not right.
    pub warnings: Vec<String>,
    /// The paths of impossible values, for another warning.
    pub invalid: Vec<String>,
    /// The paths of reports that are not shown, as in Firefox, because there is exactly one report
    /// with a longer path below them.
    pub left_out: Vec<String>,
    /// The tree of memory that the program has allocated.
    pub explicit: Option<Node>,
    /// The other trees.
    pub others: Vec<Node>,
    /// Measurements that do not form a tree.
    pub degenerates: Vec<Node>,
}

/// A line of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The name as shown: several names with `/` between them if each has only one node below it.
    pub name: Arc<str>,
    /// The node's unique path in the tree: names from the root on, with each `/` in a name written
    /// `\`.
    pub path: Arc<str>,
    /// The unit of the amount.
    pub unit: Unit,
    /// The amount.
    pub amount: i64,
    /// The amount as it is shown.
    pub value: String,
    /// The amount in percent of the root; only for nodes of trees.
    pub percent: Option<String>,
    /// The meaning of the node.
    pub description: Arc<str>,
    /// The notes behind the name, in this order.
    pub notes: Vec<Note>,
    /// True if the nodes below are not shown at first.
    pub is_collapsed: bool,
    /// True if the amount is impossible: negative, or more than all of the tree.
    pub is_invalid: bool,
    /// The nodes below, in the order in which they are shown.
    pub children: Vec<Node>,
}

/// A note behind a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// The value is impossible.
    Invalid,
    /// The node is the sum of this number of reports with the same path.
    Merged(u32),
    /// Only in the first of two sets of reports.
    FirstOnly,
    /// Only in the second.
    SecondOnly,
    /// The node was added for the amount of a report that has others below it.
    Fake,
}

impl Filter {
    /// Matches paths that contain this text.
    pub fn text(text: impl Into<String>) -> Filter {
        Filter::Text(text.into())
    }

    /// Matches paths in which a regular expression is found.
    ///
    /// # Errors
    ///
    /// Fails if it is not a valid regular expression.
    pub fn pattern(pattern: &str) -> Result<Filter, regex::Error> {
        Regex::new(pattern).map(Filter::Pattern)
    }

    /// True if the filter lets a path pass.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Filter::Text(text) => path.contains(text),
            Filter::Pattern(pattern) => pattern.is_match(path),
        }
    }

    /// True if the filter lets every path pass, as if there were no filter.
    fn is_none(&self) -> bool {
        matches!(self, Filter::Text(text) if text.is_empty())
    }
}

impl Note {
    /// Returns the note on a path that only one of two sets has.
    fn of(presence: Presence) -> Option<Note> {
        match presence {
            Presence::Both => None,
            Presence::First => Some(Note::FirstOnly),
            Presence::Second => Some(Note::SecondOnly),
        }
    }

    /// Returns the note as it is shown.
    pub fn text(self) -> String {
        match self {
            Note::Invalid => "[?!]".to_owned(),
            Note::Merged(count) => format!("[{count}]"),
            Note::FirstOnly => "[-]".to_owned(),
            Note::SecondOnly => "[+]".to_owned(),
            Note::Fake => "[!]".to_owned(),
        }
    }

    /// Returns the note's meaning.
    pub fn meaning(self) -> String {
        match self {
            Note::Invalid => "This value cannot be right: a reporter has a defect.".to_owned(),
            Note::Merged(count) => format!("The sum of {count} reports with the same path."),
            Note::FirstOnly => "Only the first set of reports has this.".to_owned(),
            Note::SecondOnly => "Only the second set of reports has this.".to_owned(),
            Note::Fake => {
                "The amount of the entry above as it was reported itself, without those beside this.".to_owned()
            }
        }
    }
}

impl Page {
    /// Returns the display of reports.
    ///
    /// Each entry of a tree should have the unit of its root; see [`Reports::check`].
    pub fn of(reports: &Reports, options: &AboutOptions) -> Page {
        let mut forest = build::Forest::new(options, false);
        for report in &reports.reports {
            let process = if report.process.is_empty() { MAIN_PROCESS } else { &report.process };
            forest.add(&build::Entry {
                process,
                path: &report.path,
                kind: report.kind,
                unit: report.unit,
                amount: report.amount,
                description: &report.description,
                merged: 1,
                presence: None,
            });
        }
        forest.finish(reports.has_usable_size)
    }

    /// Returns the display of a difference.
    pub fn of_difference(difference: &Difference, options: &AboutOptions) -> Page {
        let mut forest = build::Forest::new(options, true);
        for change in &difference.changes {
            forest.add(&build::Entry {
                process: if change.process.is_empty() { MAIN_PROCESS } else { &change.process },
                path: &change.path,
                kind: change.kind,
                unit: change.unit,
                amount: change.amount,
                description: &change.description,
                merged: change.merged,
                presence: Note::of(change.presence),
            });
        }
        forest.finish(difference.has_usable_size)
    }

    /// Writes the page as text, as it would be copied from Firefox's about:memory.
    ///
    /// Only characters that could control a terminal are changed; see [`escape`](crate::escape).
    pub fn print(&self, out: &mut impl fmt::Write) -> fmt::Result {
        text::print(self, out)
    }
}

impl Section {
    /// Returns all trees, in the order in which they are shown.
    pub fn trees(&self) -> impl Iterator<Item = &Node> {
        self.explicit.iter().chain(&self.others).chain(&self.degenerates)
    }
}
