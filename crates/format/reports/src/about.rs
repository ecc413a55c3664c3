//! What Firefox's about:memory shows of reports, as data and as text.
//!
//! The rules are those of Firefox: what is one tree, what is merged, hidden, summed up as tiny or found invalid; how
//! numbers are written and lines are drawn. No report should have others below it. If it has one, Firefox leaves out its
//! own amount, and so is it here, with its path in [`Section::left_out`]. If it has several, Firefox shows nothing at all;
//! here a `(fake child)` has the amount, as Firefox has it in differences.

use std::fmt;
use std::sync::Arc;

use regex::Regex;

mod arrange;
mod build;
mod number;
mod text;

use crate::{Difference, MAIN_PROCESS, Reports, Unit};

pub use self::text::Row;

/// Names of a path from here on are taken as one: nobody reads a tree as deep as that.
const DEPTH_MAX: usize = 400;

/// How reports are shown.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Bytes to the last, and nothing hidden.
    pub verbose: bool,
    /// Only reports whose path it matches.
    pub filter: Option<Filter>,
}

/// Which paths are of interest. A `/` in a name of a path is a `\`.
#[derive(Clone, Debug)]
pub enum Filter {
    /// Those with this in them.
    Text(String),
    /// Those that it matches.
    Pattern(Regex),
}

/// All that about:memory shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// What all processes have in memory, about: what the main one has, and what the others do not share.
    pub total_resident: String,
    /// One for each process of which there is something to show, in the order in which they are shown.
    pub sections: Vec<Section>,
}

/// What is shown of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Which one.
    pub process: Arc<str>,
    /// Why figures are not what they should be.
    pub warnings: Vec<String>,
    /// The paths of values that cannot be, for another warning.
    pub invalid: Vec<String>,
    /// The paths of reports that are not shown, as in Firefox, because there is one more with a longer path.
    pub left_out: Vec<String>,
    /// What the program has allocated.
    pub explicit: Option<Node>,
    /// The other trees.
    pub others: Vec<Node>,
    /// Measurements that are no tree.
    pub degenerates: Vec<Node>,
}

/// A line of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What is shown as its name: several names with `/` between them where a node has but one node below it.
    pub name: Arc<str>,
    /// Which it is: names from the root on, of which `/` in each is `\`. No other node of the tree has the same.
    pub path: Arc<str>,
    /// What its amount counts.
    pub unit: Unit,
    /// How much.
    pub amount: i64,
    /// The amount as it is shown.
    pub value: String,
    /// What part that is of the root; of nodes of trees.
    pub percent: Option<String>,
    /// What it means.
    pub description: Arc<str>,
    /// What stands behind the name, in this order.
    pub notes: Vec<Note>,
    /// Whether the nodes below are not shown at first.
    pub is_collapsed: bool,
    /// Whether the amount cannot be: it is negative, or more than all of the tree.
    pub is_invalid: bool,
    /// The nodes below, in the order in which they are shown.
    pub children: Vec<Node>,
}

/// What stands behind a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// The value cannot be.
    Invalid,
    /// The sum of so many reports with the same path.
    Merged(u32),
    /// Only in the first of two sets of reports.
    FirstOnly,
    /// Only in the second.
    SecondOnly,
    /// Put there for the amount of a report that has others below it.
    Fake,
}

impl Filter {
    /// Paths with this text in them.
    pub fn text(text: impl Into<String>) -> Filter {
        Filter::Text(text.into())
    }

    /// Paths that a regular expression matches somewhere.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn pattern(pattern: &str) -> Result<Filter, regex::Error> {
        Regex::new(pattern).map(Filter::Pattern)
    }

    /// Whether it lets a path pass.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Filter::Text(text) => path.contains(text),
            Filter::Pattern(pattern) => pattern.is_match(path),
        }
    }

    /// Whether it lets everything pass as if there were none.
    fn is_none(&self) -> bool {
        matches!(self, Filter::Text(text) if text.is_empty())
    }
}

impl Note {
    /// As it is shown.
    pub fn text(self) -> String {
        match self {
            Note::Invalid => "[?!]".to_owned(),
            Note::Merged(count) => format!("[{count}]"),
            Note::FirstOnly => "[-]".to_owned(),
            Note::SecondOnly => "[+]".to_owned(),
            Note::Fake => "[!]".to_owned(),
        }
    }

    /// What it means.
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
    /// What is shown of reports.
    ///
    /// Each entry of a tree should have the unit of its root; see [`Reports::check`].
    pub fn of(reports: &Reports, options: &Options) -> Page {
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

    /// What is shown of a difference.
    pub fn of_difference(difference: &Difference, options: &Options) -> Page {
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
                presence: change.presence.note(),
            });
        }
        forest.finish(difference.has_usable_size)
    }

    /// Writes it as Firefox's about:memory is copied from.
    ///
    /// Only characters that could control a terminal are not as they are there; see [`escape`](crate::escape).
    pub fn print(&self, out: &mut impl fmt::Write) -> fmt::Result {
        text::print(self, out)
    }
}

impl Section {
    /// All of its trees, in the order in which they are shown.
    pub fn trees(&self) -> impl Iterator<Item = &Node> {
        self.explicit.iter().chain(&self.others).chain(&self.degenerates)
    }
}
