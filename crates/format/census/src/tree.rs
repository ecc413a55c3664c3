//! A census, or a difference, as a tree of rows that can be sorted, inverted and filtered.
//!
//! The tree is that of Firefox's memory tool. Each group is a row. A stack becomes one row per
//! frame, the outermost on top, so that stacks share the rows of their common callers.

mod filter;
mod invert;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::breakdown::BreakdownError;
use crate::count::CensusOptions;
use crate::diff::CensusDifference;
use crate::graph::{Graph, NodeId};
use crate::result::{Census, CensusValue, ReportFrames, StackId, StackKey, ValueKey};

pub use invert::INVERTED_DEPTH_MAX;

/// A census as a tree of rows. The row at index 0 is the root, which is the whole census.
#[derive(Clone, Debug)]
pub struct CensusTree<'a> {
    frames: &'a ReportFrames,
    rows: Vec<Row>,
}

/// A row of the tree.
///
/// Its own figures are those of nodes that belong to none of its children; its totals include them.
/// A row that lists ids has their number as its count, and no bytes.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name.
    pub name: RowName,
    /// Its own bytes.
    pub bytes: i64,
    /// Its own number of nodes.
    pub count: i64,
    /// Its bytes, and those of the rows below it.
    pub total_bytes: i64,
    /// Its number of nodes, and that of the rows below it.
    pub total_count: i64,
    /// True if the breakdown asks for the bytes of this row or of a row below it.
    pub has_bytes: bool,
    /// True if the breakdown asks for the number or the ids of nodes here or below.
    pub has_count: bool,
    /// The row above; none for the root.
    pub parent: Option<usize>,
    /// The rows below, in order.
    pub children: Vec<usize>,
    /// The values that this row shows itself, by their positions among the
    /// [leaves](CensusValue::leaves) of the result.
    pub leaves: Vec<usize>,
}

/// The name of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RowName {
    /// The whole census.
    Root,
    /// The key of a group: a class, a type, a file.
    Group(Box<str>),
    /// The key of nodes that belong to no group, such as `other`.
    Rest(&'static str),
    /// A frame: the innermost one of this stack.
    Frame(StackId),
    /// The empty stack.
    EmptyStack,
    /// No stack was recorded.
    NoStack,
    /// A position in an array of breakdowns.
    Position(usize),
}

/// The order of rows with the same parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOrder {
    /// By total bytes, then total count, own bytes, own count; the largest first.
    Total,
    /// By own bytes, then own count, total bytes, total count; the largest first.
    Own,
    /// By total bytes without their sign, then total count without its sign; the largest first. For
    /// differences.
    Change,
}

impl<'a> CensusTree<'a> {
    /// Returns the rows of a census, in the order of [`RowOrder::Total`].
    pub fn of(census: &'a Census) -> CensusTree<'a> {
        CensusTree::of_value(&census.value, &census.frames, RowOrder::Total)
    }

    /// Returns the rows of a difference, in the order of [`RowOrder::Change`].
    pub fn of_difference(difference: &'a CensusDifference) -> CensusTree<'a> {
        CensusTree::of_value(&difference.value, &difference.frames, RowOrder::Change)
    }

    fn of_value(value: &CensusValue, frames: &'a ReportFrames, order: RowOrder) -> CensusTree<'a> {
        let mut maker = Maker { frames, rows: Vec::new(), leaf_count: 0 };
        maker.add_row(RowName::Root, None);
        maker.add_value(value, 0);
        let mut tree = CensusTree { frames, rows: maker.rows };
        tree.add_totals();
        tree.sort(order);
        tree
    }

    /// All rows; the root is the first. A row comes after its parent.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The root.
    pub fn root(&self) -> &Row {
        &self.rows[0]
    }

    /// The frames of the rows that are frames.
    pub fn frames(&self) -> &'a ReportFrames {
        self.frames
    }

    /// Returns the name of a row in words: of a frame, its function, file, line and column.
    pub fn label(&self, name: &RowName) -> String {
        match name {
            RowName::Root => String::from("all"),
            RowName::Group(key) => String::from(&**key),
            RowName::Rest(key) => String::from(*key),
            RowName::EmptyStack => String::from("(empty stack)"),
            RowName::NoStack => String::from("(no stack)"),
            RowName::Position(position) => format!("[{position}]"),
            RowName::Frame(stack) => {
                let frame = self.frames.get(*stack);
                let (function, source) = (frame.function.unwrap_or("(anonymous)"), frame.source.unwrap_or(""));
                format!("{function} ({source}:{}:{})", frame.line, frame.column)
            }
        }
    }

    /// Sorts the rows below each row. Equal rows stay in their order.
    pub fn sort(&mut self, order: RowOrder) {
        for index in 0..self.rows.len() {
            let mut children = std::mem::take(&mut self.rows[index].children);
            children.sort_by_key(|&child| {
                let row = &self.rows[child];
                Reverse(match order {
                    RowOrder::Total => [row.total_bytes, row.total_count, row.bytes, row.count].map(i128::from),
                    RowOrder::Own => [row.bytes, row.count, row.total_bytes, row.total_count].map(i128::from),
                    RowOrder::Change => {
                        [row.total_bytes, row.total_count, row.bytes, row.count].map(|it| i128::from(it).abs())
                    }
                })
            });
            self.rows[index].children = children;
        }
    }

    /// Returns the positions of all leaves of a row and of the rows below it, for [`individuals`].
    pub fn leaves_below(&self, row: usize) -> Vec<usize> {
        let mut leaves = Vec::new();
        let mut pending = vec![row];
        while let Some(row) = pending.pop() {
            leaves.extend(&self.rows[row].leaves);
            pending.extend(&self.rows[row].children);
        }
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// Adds up the totals. A row comes after its parent, so one pass from the end is enough.
    ///
    /// Each breakdown of an array counts the same nodes, so only the first with figures counts.
    fn add_totals(&mut self) {
        let mut of_arrays = vec![(0, 0); self.rows.len()];
        for index in (0..self.rows.len()).rev() {
            let row = &mut self.rows[index];
            row.total_bytes = row.total_bytes.saturating_add(row.bytes).saturating_add(of_arrays[index].0);
            row.total_count = row.total_count.saturating_add(row.count).saturating_add(of_arrays[index].1);
            let totals = (row.total_bytes, row.total_count);
            let (has_bytes, has_count) = (row.has_bytes, row.has_count);
            let Some(parent) = row.parent else { continue };
            self.rows[parent].has_bytes |= has_bytes;
            self.rows[parent].has_count |= has_count;
            if matches!(self.rows[index].name, RowName::Position(_)) {
                if totals != (0, 0) {
                    of_arrays[parent] = totals;
                }
            } else {
                let parent = &mut self.rows[parent];
                parent.total_bytes = parent.total_bytes.saturating_add(totals.0);
                parent.total_count = parent.total_count.saturating_add(totals.1);
            }
        }
    }
}

/// Returns the ids of the nodes in some leaves of a census, in its order: the individuals of a row.
///
/// Takes the census again, with the options it was taken with, and with ids instead of figures.
///
/// # Errors
///
/// Fails if a word of the breakdown is within itself.
pub fn individuals(
    graph: &Graph,
    census: &Census,
    options: CensusOptions<'_>,
    leaves: &[usize],
) -> Result<Vec<NodeId>, BreakdownError> {
    let buckets = Census::take_with(graph, &census.breakdown.with_buckets(), options)?;
    let all = buckets.value.leaves();
    let mut ids = Vec::new();
    for &leaf in leaves {
        if let Some(CensusValue::Bucket(found)) = all.get(leaf) {
            ids.extend(found);
        }
    }
    Ok(ids)
}

/// Makes the rows of a value.
struct Maker<'a> {
    frames: &'a ReportFrames,
    rows: Vec<Row>,
    leaf_count: usize,
}

impl Maker<'_> {
    fn add_row(&mut self, name: RowName, parent: Option<usize>) -> usize {
        let index = self.rows.len();
        self.rows.push(Row::new(name, parent));
        if let Some(parent) = parent {
            self.rows[parent].children.push(index);
        }
        index
    }

    /// Adds the rows of a value below its row. The depth is bounded, as that of breakdowns is.
    fn add_value(&mut self, value: &CensusValue, row: usize) {
        if let CensusValue::Count(_) | CensusValue::Bucket(_) = value {
            let shown = &mut self.rows[row];
            let (count, bytes) = match value {
                CensusValue::Count(figures) => (figures.count, figures.bytes),
                CensusValue::Bucket(ids) => (Some(ids.len() as i64), None),
                _ => (None, None),
            };
            shown.has_count |= count.is_some();
            shown.has_bytes |= bytes.is_some();
            shown.count = shown.count.saturating_add(count.unwrap_or(0));
            shown.bytes = shown.bytes.saturating_add(bytes.unwrap_or(0));
            shown.leaves.push(self.leaf_count);
            self.leaf_count += 1;
            return;
        }
        // The rows of frames below this row.
        let mut known: HashMap<StackId, usize, RandomState> = HashMap::default();
        for (key, child) in value.children() {
            let name = match key {
                ValueKey::Group(key) => RowName::Group(Box::from(key)),
                ValueKey::Rest(key) => RowName::Rest(key),
                ValueKey::Position(position) => RowName::Position(position),
                ValueKey::Stack(StackKey::Empty) => RowName::EmptyStack,
                ValueKey::Stack(StackKey::NoStack) => RowName::NoStack,
                ValueKey::Stack(StackKey::Stack(stack)) => {
                    let below = self.add_stack(stack, row, &mut known);
                    self.add_value(child, below);
                    continue;
                }
            };
            let below = self.add_row(name, Some(row));
            self.add_value(child, below);
        }
    }

    /// Adds the rows of a stack that are not there yet. Returns that of its innermost frame.
    fn add_stack(&mut self, stack: StackId, row: usize, known: &mut HashMap<StackId, usize, RandomState>) -> usize {
        let mut missing = Vec::new();
        let mut next = Some(stack);
        let mut below = row;
        while let Some(stack) = next {
            if let Some(&found) = known.get(&stack) {
                below = found;
                break;
            }
            missing.push(stack);
            next = self.frames.caller(stack);
        }
        for &stack in missing.iter().rev() {
            below = self.add_row(RowName::Frame(stack), Some(below));
            known.insert(stack, below);
        }
        below
    }
}

impl Row {
    fn new(name: RowName, parent: Option<usize>) -> Row {
        Row {
            name,
            bytes: 0,
            count: 0,
            total_bytes: 0,
            total_count: 0,
            has_bytes: false,
            has_count: false,
            parent,
            children: Vec::new(),
            leaves: Vec::new(),
        }
    }
}
