//! The call tree of the sites that a session keeps: the same tree without a pass over all stacks.

use heapledger_analysis::{CallColumns, ColumnName, ColumnRequest, Direction, SiteSet, SiteTable};
use heapledger_viewer::{ColumnFrame, ColumnTree, MetricColumn};

use super::{LEAST, NODES_MAX, frame, metrics, unit};
use crate::question::Question;

/// The limits on the nodes that are sent.
#[derive(Clone, Copy)]
pub(super) struct CutBy {
    /// The most levels.
    pub(super) depth: Option<u32>,
    /// The least share of the whole that a node must have.
    pub(super) least: f64,
}

/// Returns the tree of some sites, the largest first.
pub(super) fn columns(table: &SiteTable, set: &SiteSet, question: &Question<'_, '_>, cut: CutBy) -> ColumnTree {
    let moment = question.selection.moment;
    let metrics = metrics(moment, question.metric);
    let request = ColumnRequest {
        moment,
        metrics: metrics.iter().map(|&(_, metric)| metric).collect(),
        least: 0.0,
        direction: Direction::TopDown,
    };
    let all = table.columns(set, &request);
    let labels = &question.labels;
    let mut tree = Walk::new(&all, cut).columns(|name| match name {
        ColumnName::Root | ColumnName::Smaller => ColumnFrame::default(),
        ColumnName::Function(function, location) => {
            let location = location.as_ref().map(|at| (at.file.to_string(), at.line));
            frame(labels, *function, location.as_ref())
        }
    });
    tree.unit = unit(question.metric);
    tree.metrics.iter_mut().zip(metrics).for_each(|(column, (name, _))| column.name = name);
    tree
}

/// A walk through the nodes of a whole tree that are sent, in preorder.
struct Walk<'c> {
    all: &'c CallColumns,
    /// The amount of each node and of all nodes inside of it, in the first metric.
    sums: Vec<u64>,
    cut: CutBy,
}

impl<'c> Walk<'c> {
    fn new(all: &'c CallColumns, cut: CutBy) -> Walk<'c> {
        let mut sums = all.own[0].clone();
        let mut walk = Walk { all, sums: Vec::new(), cut };
        let parents = walk.parents();
        for node in (1..sums.len()).rev() {
            let parent = parents[node] as usize;
            sums[parent] = sums[parent].saturating_add(sums[node]);
        }
        walk.sums = sums;
        while walk.nodes() > NODES_MAX {
            walk.cut.least = (walk.cut.least * 2.0).max(LEAST);
        }
        walk
    }

    /// Returns the parent of each node; the root is its own.
    fn parents(&self) -> Vec<u32> {
        let mut parents = vec![0; self.all.depths.len()];
        let mut path: Vec<u32> = vec![0];
        for (node, &depth) in self.all.depths.iter().enumerate().skip(1) {
            path.truncate(depth as usize);
            parents[node] = path.last().copied().unwrap_or(0);
            path.push(node as u32);
        }
        parents
    }

    /// True if a node is sent whose parent is.
    fn is_sent(&self, node: usize) -> bool {
        let share = match self.sums[0] {
            0 => 0.0,
            whole => self.sums[node] as f64 / whole as f64,
        };
        let depth = self.all.depths[node];
        depth == 0 || (share >= self.cut.least && self.cut.depth.is_none_or(|deepest| depth <= deepest))
    }

    /// Calls a function for each node: with true if it is sent, and with its number.
    fn visit(&self, mut each: impl FnMut(bool, usize)) {
        // The depth of the node that is cut, while the walk is inside of it.
        let mut cut_at = u32::MAX;
        for (node, &depth) in self.all.depths.iter().enumerate() {
            if depth > cut_at {
                each(false, node);
                continue;
            }
            let is_sent = self.is_sent(node);
            cut_at = if is_sent { u32::MAX } else { depth };
            each(is_sent, node);
        }
    }

    fn nodes(&self) -> usize {
        let mut nodes = 0;
        self.visit(|is_sent, _| nodes += usize::from(is_sent));
        nodes
    }

    /// Returns the nodes that are sent. The amounts of all others count for those that they are
    /// inside of.
    fn columns(&self, mut named: impl FnMut(&ColumnName) -> ColumnFrame) -> ColumnTree {
        let column = |&total: &u64| MetricColumn { total, ..MetricColumn::default() };
        let mut tree = ColumnTree {
            names: vec![ColumnFrame::default()],
            metrics: self.all.total.iter().map(column).collect(),
            ..ColumnTree::default()
        };
        let mut numbers: Vec<Option<u32>> = vec![None; self.all.names.len()];
        numbers[self.all.names_of[0] as usize] = Some(0);
        // The nodes that are sent on the way to the current one, by depth.
        let mut path: Vec<usize> = Vec::new();
        let mut cut_at = u32::MAX;
        self.visit(|is_sent, node| {
            let depth = self.all.depths[node];
            if is_sent {
                cut_at = u32::MAX;
                path.truncate(depth as usize);
                path.push(tree.depth.len());
                let name = self.all.names_of[node] as usize;
                tree.depth.push(depth);
                tree.name.push(*numbers[name].get_or_insert_with(|| {
                    tree.names.push(named(&self.all.names[name]));
                    tree.names.len() as u32 - 1
                }));
                tree.metrics.iter_mut().zip(&self.all.own).for_each(|(column, own)| column.own.push(own[node]));
                return;
            }
            if depth <= cut_at {
                cut_at = depth;
                path.truncate(depth as usize);
                tree.cut.0 += 1;
                tree.cut.1 = tree.cut.1.saturating_add(self.sums[node]);
            }
            let Some(&outer) = path.last() else { return };
            for (column, own) in tree.metrics.iter_mut().zip(&self.all.own) {
                column.own[outer] = column.own[outer].saturating_add(own[node]);
            }
        });
        tree
    }
}

#[cfg(test)]
mod tests;
