//! The page as rows, from which the browser requests those that it shows.

use std::collections::HashSet;
use std::sync::Arc;

use heapledger_report_format::Unit;
use heapledger_report_format::about::{Node, Note, Page, Section};
use serde::Serialize;

/// All rows of a page, in the order in which they are shown, including those in closed nodes.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    /// The row of each process.
    processes: Vec<usize>,
    /// The largest row of each process that has an explicit tree.
    explicit: Vec<usize>,
}

#[derive(Debug)]
struct Row {
    kind: RowKind,
    /// The depth in the tree; 0 for roots, and for rows that are not nodes.
    depth: u32,
    /// The parent row.
    parent: Option<u32>,
    /// The number of rows below it.
    descendants: u32,
    /// The position among its siblings, from 1.
    position: u32,
    siblings: u32,
    name: Arc<str>,
    value: String,
    percent: Option<String>,
    /// The share of the tree's largest amount, from -1 to 1.
    share: f32,
    about: Arc<str>,
    notes: Vec<Note>,
    amount: i64,
    unit: Unit,
    key: u64,
    is_collapsed: bool,
    is_invalid: bool,
    /// The index of the explicit tree's branch that it is in.
    branch: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum RowKind {
    /// A process begins.
    Process,
    Warning,
    /// `Explicit Allocations` or `Other Measurements`.
    Heading,
    Node,
    /// A measurement that is not in a tree.
    Single,
    /// Empty: trees stand apart.
    Gap,
}

/// The visible rows with some nodes toggled.
#[derive(Debug, Default)]
pub(crate) struct VisibleRows(Vec<u32>);

/// A row as sent to the browser. Names are short because there are many rows.
#[derive(Debug, Serialize)]
pub(crate) struct Shown<'a> {
    /// Its number among the visible rows.
    row: usize,
    kind: RowKind,
    #[serde(skip_serializing_if = "is_zero")]
    depth: u32,
    /// For each level from 1 on: `1` if the line goes on below this row.
    #[serde(skip_serializing_if = "String::is_empty")]
    rails: String,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<&'a str>,
    share: f32,
    #[serde(skip_serializing_if = "str::is_empty")]
    about: &'a str,
    /// The notes as shown, and their meanings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<(String, String)>,
    amount: i64,
    unit: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    key: String,
    /// `None` if the row cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<bool>,
    #[serde(skip_serializing_if = "is_false")]
    invalid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<u32>,
    position: u32,
    siblings: u32,
}

/// A process in the index of processes.
#[derive(Debug, Serialize)]
pub(crate) struct Process<'a> {
    row: usize,
    name: &'a str,
    /// Its explicit memory, if it was reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<&'a str>,
}

/// A row that is named: an ancestor, a branch of the explicit tree.
#[derive(Debug, Serialize)]
pub(crate) struct NamedRow<'a> {
    row: usize,
    name: &'a str,
    depth: u32,
}

/// The parts of one process's explicit memory.
#[derive(Debug, Serialize)]
pub(crate) struct Overview<'a> {
    process: &'a str,
    row: usize,
    total: &'a str,
    branches: Vec<Branch<'a>>,
}

#[derive(Debug, Serialize)]
struct Branch<'a> {
    row: usize,
    name: &'a str,
    value: &'a str,
    percent: &'a str,
    share: f32,
    about: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<u32>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The most characters in a line of a warning.
const WARNING_CHARACTERS_MAX: usize = 130;
/// The most paths of invalid nodes in the warning; the others are still marked in the trees.
const INVALID_MAX: usize = 100;

/// The number of levels for which lines are drawn: deeper trees were not made by a person.
const RAILS_MAX: u32 = 64;

/// The most visible rows, because an element in a browser can be some 16 million pixels high. With
/// more rows, users have to filter.
pub(crate) const VISIBLE_ROWS_MAX: usize = 600_000;

impl Rows {
    pub(crate) fn of(page: Page) -> Rows {
        let mut rows = Rows::default();
        for section in page.sections {
            rows.section(section);
        }
        rows
    }

    fn section(&mut self, section: Section) {
        self.processes.push(self.rows.len());
        self.line(RowKind::Process, section.process.clone());
        for warning in section.warnings {
            self.warning(&warning);
        }
        if !section.invalid.is_empty() {
            self.warning(
                "These values are negative, or larger than the tree that they are in. A reporter has a defect:",
            );
            for path in section.invalid.iter().take(INVALID_MAX) {
                self.warning(path);
            }
        }
        if let Some(tree) = section.explicit {
            self.line(RowKind::Heading, "Explicit Allocations".into());
            self.explicit.push(self.rows.len());
            self.tree(&section.process, tree, true);
            self.line(RowKind::Gap, "".into());
        }
        if section.others.is_empty() && section.degenerates.is_empty() {
            return;
        }
        self.line(RowKind::Heading, "Other Measurements".into());
        for tree in section.others {
            self.tree(&section.process, tree, false);
            self.line(RowKind::Gap, "".into());
        }
        let has_degenerates = !section.degenerates.is_empty();
        for node in section.degenerates {
            self.tree(&section.process, node, false);
        }
        if has_degenerates {
            self.line(RowKind::Gap, "".into());
        }
    }

    /// Adds a warning, with as many rows as it needs: each is one line.
    fn warning(&mut self, text: &str) {
        let mut line = String::new();
        let first = self.rows.len();
        for word in text.split(' ') {
            if !line.is_empty() && line.chars().count() + word.chars().count() >= WARNING_CHARACTERS_MAX {
                self.line(RowKind::Warning, std::mem::take(&mut line).into());
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(RowKind::Warning, line.into());
        for (row, position) in self.rows[first..].iter_mut().zip(1..) {
            row.position = position;
        }
    }

    /// Adds a row that is not a node.
    fn line(&mut self, kind: RowKind, name: Arc<str>) {
        self.rows.push(Row {
            kind,
            depth: 0,
            parent: None,
            descendants: 0,
            position: 1,
            siblings: 1,
            name,
            value: String::new(),
            percent: None,
            share: 0.0,
            about: "".into(),
            notes: Vec::new(),
            amount: 0,
            unit: Unit::Bytes,
            key: 0,
            is_collapsed: false,
            is_invalid: false,
            branch: None,
        });
    }

    /// Adds a tree's nodes in preorder, however deep.
    fn tree(&mut self, process: &str, root: Node, is_explicit: bool) {
        let first = self.rows.len();
        let mut largest = 0;
        // The nodes to come, with row above, depth, position, number of siblings. The last is next.
        let mut coming = vec![(root, None::<u32>, 0, 1, 1)];
        let mut amounts = Vec::new();
        while let Some((node, parent, depth, position, siblings)) = coming.pop() {
            let number = self.rows.len() as u32;
            largest = largest.max(node.amount.unsigned_abs());
            amounts.push(node.amount);
            let is_single = depth == 0 && !is_explicit && node.children.is_empty();
            let branch = match (is_explicit, depth) {
                (true, 1) => Some(position - 1),
                (true, 2..) => parent.and_then(|parent| self.rows[parent as usize].branch),
                _ => None,
            };
            let key = key(process, node.unit, &node.path);
            let count = node.children.len() as u32;
            let descendants = (1..count + 1).zip(node.children).rev();
            coming.extend(descendants.map(|(position, child)| (child, Some(number), depth + 1, position, count)));
            self.rows.push(Row {
                kind: if is_single { RowKind::Single } else { RowKind::Node },
                depth,
                parent,
                descendants: 0,
                position,
                siblings,
                name: node.name,
                value: node.value,
                percent: node.percent,
                share: 0.0,
                about: node.description,
                notes: node.notes,
                amount: node.amount,
                unit: node.unit,
                key,
                is_collapsed: node.is_collapsed,
                is_invalid: node.is_invalid,
                branch,
            });
        }
        for number in (first..self.rows.len()).rev() {
            let row = &mut self.rows[number];
            row.share = if largest == 0 { 0.0 } else { (amounts[number - first] as f64 / largest as f64) as f32 };
            let descendants = row.descendants + 1;
            if let Some(parent) = row.parent {
                self.rows[parent as usize].descendants += descendants;
            }
        }
    }

    /// Returns roughly how much memory the rows take, without names and descriptions, which are
    /// those of the reports.
    pub(crate) fn bytes(&self) -> usize {
        self.rows
            .iter()
            .map(|row| size_of::<Row>() + row.value.len() + row.percent.as_ref().map_or(0, String::len))
            .sum()
    }

    /// Returns the number of rows, visible or not.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the visible rows if these nodes are toggled.
    pub(crate) fn visible(&self, toggled: &HashSet<u64>) -> VisibleRows {
        let mut seen = Vec::new();
        let mut number = 0;
        while let Some(row) = self.rows.get(number) {
            if seen.len() == VISIBLE_ROWS_MAX {
                break;
            }
            seen.push(number as u32);
            number += if row.is_open(toggled) { 1 } else { 1 + row.descendants as usize };
        }
        VisibleRows(seen)
    }

    /// Returns some of the visible rows.
    pub(crate) fn show<'a>(
        &'a self,
        seen: &VisibleRows,
        toggled: &HashSet<u64>,
        from: usize,
        count: usize,
    ) -> Vec<Shown<'a>> {
        let wanted = seen.0.iter().enumerate().skip(from).take(count);
        wanted
            .map(|(row, &number)| {
                let one = &self.rows[number as usize];
                Shown {
                    row,
                    kind: one.kind,
                    depth: one.depth,
                    rails: self.rails(one),
                    name: &one.name,
                    value: &one.value,
                    percent: one.percent.as_deref(),
                    share: one.share,
                    about: &one.about,
                    notes: one.notes.iter().map(|note| (note.text(), note.meaning())).collect(),
                    amount: one.amount,
                    unit: match one.unit {
                        Unit::Bytes => "bytes",
                        Unit::Count => "count",
                        Unit::CountCumulative => "cumulative",
                        Unit::Percentage => "percentage",
                    },
                    key: if one.descendants > 0 { format!("{:x}", one.key) } else { String::new() },
                    open: (one.descendants > 0).then(|| one.is_open(toggled)),
                    invalid: one.is_invalid,
                    branch: one.branch,
                    position: one.position,
                    siblings: one.siblings,
                }
            })
            .collect()
    }

    /// Returns the nodes above a row, from the root on; if there are very many, the nearest ones.
    pub(crate) fn ancestors<'a>(&'a self, seen: &VisibleRows, row: usize) -> Vec<NamedRow<'a>> {
        let mut above = Vec::new();
        let mut parent = seen.0.get(row).and_then(|&number| self.rows[number as usize].parent);
        while let Some(number) = parent.filter(|_| above.len() < RAILS_MAX as usize) {
            above.extend(self.named_row(seen, number as usize));
            parent = self.rows[number as usize].parent;
        }
        above.reverse();
        above
    }

    /// Returns the processes, in the order of their rows.
    pub(crate) fn processes<'a>(&'a self, seen: &VisibleRows) -> Vec<Process<'a>> {
        let mut explicit = self.explicit.iter().copied().peekable();
        let ends = self.processes.iter().skip(1).copied().chain([self.rows.len()]);
        let process = |(&number, end): (&usize, usize)| {
            let total = explicit.next_if(|&root| root < end).map(|root| self.rows[root].value.trim());
            Some(Process { row: seen.row_of(number)?, name: &self.rows[number].name, total })
        };
        self.processes.iter().zip(ends).filter_map(process).collect()
    }

    /// Returns the parts of explicit memory.
    pub(crate) fn overview<'a>(&'a self, seen: &VisibleRows) -> Vec<Overview<'a>> {
        let process = |number: usize| self.processes.iter().rev().find(|&&process| process < number);
        let overview = |&number: &usize| {
            let root = &self.rows[number];
            let mut branches = Vec::new();
            let mut child = number + 1;
            while let Some(row) = self.rows.get(child).filter(|row| row.depth > 0) {
                branches.push(Branch {
                    row: seen.row_of(child)?,
                    name: &row.name,
                    value: &row.value,
                    percent: row.percent.as_deref().unwrap_or_default(),
                    share: row.share,
                    about: &row.about,
                    branch: row.branch,
                });
                child += 1 + row.descendants as usize;
            }
            let process = &self.rows[*process(number)?].name;
            Some(Overview { process, row: seen.row_of(number)?, total: &root.value, branches })
        };
        self.explicit.iter().filter_map(overview).collect()
    }

    fn named_row<'a>(&'a self, seen: &VisibleRows, number: usize) -> Option<NamedRow<'a>> {
        let row = &self.rows[number];
        Some(NamedRow { row: seen.row_of(number)?, name: &row.name, depth: row.depth })
    }

    fn rails(&self, row: &Row) -> String {
        let mut rails = Vec::new();
        let mut at = Some(row);
        while let Some(row) = at.filter(|row| row.depth > 0) {
            if row.depth <= RAILS_MAX {
                rails.push(if row.position < row.siblings { b'1' } else { b'0' });
            }
            at = row.parent.map(|parent| &self.rows[parent as usize]);
        }
        rails.iter().rev().copied().map(char::from).collect()
    }
}

impl Row {
    fn is_open(&self, toggled: &HashSet<u64>) -> bool {
        self.is_collapsed == toggled.contains(&self.key)
    }
}

impl VisibleRows {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    fn row_of(&self, number: usize) -> Option<usize> {
        self.0.binary_search(&(number as u32)).ok()
    }
}

/// Returns the key by which a node is toggled, which stays the same from one measurement to the
/// next: a hash of its name. Two nodes with one key are toggled together.
pub(crate) fn key(process: &str, unit: Unit, path: &str) -> u64 {
    // FNV-1a.
    let bytes = process.bytes().chain([0xff, unit as u8]).chain(path.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
