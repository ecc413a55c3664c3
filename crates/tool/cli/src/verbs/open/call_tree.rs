//! The call tree that the page draws.

mod kept;

use std::collections::HashMap;
use std::io;

use heapledger_analysis::{Amount, CallId, CallTree, Direction, FunctionId, Layer, Metric, Moment, Profile};
use heapledger_viewer::{ColumnFrame, ColumnTree, MetricColumn};

use self::kept::CutBy;
use crate::args::Tree;
use crate::error::Result;
use crate::label::Labels;
use crate::output::Output;
use crate::question::Question;
use crate::views::call_tree::{Levels, Limits};

/// The maximum number of nodes. With two metrics they take 100 MB, also in the page.
const NODES_MAX: usize = 1 << 22;

/// The least share of the whole that nodes must have once there are too many of them.
const LEAST: f64 = 1e-7;

/// Returns the tree that `heapledger tree` would print with these options.
pub(super) fn columns(arguments: &Tree) -> Result<ColumnTree> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let input = arguments.input.find_as(arguments.what.counts_mappings(), &mut Output::into(io::sink()))?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let levels = Levels::new(&arguments.by)?;
    let direction = if arguments.bottom_up { Direction::BottomUp } else { Direction::TopDown };
    let is_of_stacks = direction == Direction::TopDown && levels.layers == [Layer::Stack] && arguments.rows == 0;
    let profile = if is_of_stacks { question.sums()? } else { levels.profile(&mut question)? };
    if let Some((table, set)) = question.kept_sites() {
        let cut = CutBy { depth: arguments.depth, least: arguments.threshold / 100.0 };
        return Ok(kept::columns(&table, &set, &question, cut));
    }
    let tree = tree(&profile, &mut question, &levels, direction);
    let mut limits = Limits {
        depth: arguments.depth.map_or(usize::MAX, |depth| depth as usize),
        least: arguments.threshold / 100.0,
        unfold: true,
        shown: None,
    };
    limits.keep_rows(arguments.rows, &tree, metric);
    let moment = question.selection.moment;
    let mut walk = Walk { tree: &tree, limits: &limits, metric, least: limits.least };
    while walk.nodes() > NODES_MAX {
        walk.least = (walk.least * 2.0).max(LEAST);
    }
    Ok(walk.columns(&question.labels, moment))
}

/// Makes the tree: the one place that computes.
fn tree(profile: &Profile, question: &mut Question<'_, '_>, levels: &Levels, direction: Direction) -> CallTree {
    CallTree::new(profile, &mut question.labels.names, &levels.layers, direction, question.metric)
}

/// A walk through the nodes that are sent, in preorder.
struct Walk<'t> {
    tree: &'t CallTree,
    limits: &'t Limits,
    metric: Metric,
    /// The least share of the whole that a node must have.
    least: f64,
}

/// A name and a place in the source.
type Place = (FunctionId, Option<(String, u32)>);

impl Walk<'_> {
    /// Returns the number of nodes that are sent.
    fn nodes(&self) -> usize {
        let mut nodes = 0;
        self.visit(|_, _, _| nodes += 1);
        nodes
    }

    /// Calls a function for each node that is sent, with its depth and the amount that is its own:
    /// with that of its children that are not sent, so that the amounts add up. Returns the number
    /// of nodes that are left out at the top of their subtrees, and their amount.
    fn visit(&self, mut node: impl FnMut(CallId, usize, Amount)) -> (u64, Amount) {
        let whole = self.tree.node(CallId::ROOT).amount;
        let (mut cut_nodes, mut cut) = (0, Amount::default());
        let mut open = vec![(CallId::ROOT, 0)];
        while let Some((id, depth)) = open.pop() {
            let mut own = self.tree.node(id).own;
            for &child in self.tree.children(id).iter().rev() {
                let amount = self.tree.node(child).amount;
                let is_shown = self.limits.shown.as_ref().is_none_or(|shown| shown.contains(&child));
                if is_shown && depth < self.limits.depth && amount.share(&whole, self.metric) >= self.least {
                    open.push((child, depth + 1));
                } else {
                    own += amount;
                    cut += amount;
                    cut_nodes += 1;
                }
            }
            node(id, depth, own);
        }
        (cut_nodes, cut)
    }

    fn columns(&self, labels: &Labels<'_, '_>, moment: Moment) -> ColumnTree {
        let whole = self.tree.node(CallId::ROOT).amount;
        let metrics = metrics(moment, self.metric);
        let column = |&(name, metric): &(_, Metric)| MetricColumn { name, total: whole.by(metric), own: Vec::new() };
        let mut columns = ColumnTree {
            unit: unit(self.metric),
            names: vec![ColumnFrame::default()],
            metrics: metrics.iter().map(column).collect(),
            ..ColumnTree::default()
        };
        let mut known: HashMap<Place, u32> = HashMap::new();
        let (nodes, cut) = self.visit(|id, depth, own| {
            let node = self.tree.node(id);
            let name = node.function.map_or(0, |function| {
                let location = node.location.as_ref().map(|location| (location.file.to_string(), location.line));
                *known.entry((function, location)).or_insert_with_key(|(function, location)| {
                    columns.names.push(frame(labels, *function, location.as_ref()));
                    (columns.names.len() - 1) as u32
                })
            });
            columns.depth.push(depth as u32);
            columns.name.push(name);
            for (column, (_, metric)) in columns.metrics.iter_mut().zip(&metrics) {
                column.own.push(own.by(*metric));
            }
        });
        columns.cut = (nodes, cut.by(self.metric));
        columns
    }
}

/// Returns the metrics that a tree has at a moment, with their names in JSON. The first one is that
/// by which siblings are ordered.
fn metrics(moment: Moment, metric: Metric) -> Vec<(&'static str, Metric)> {
    let mut metrics = vec![("bytes", Metric::Bytes), ("blocks", Metric::Blocks)];
    if moment == Moment::Total {
        metrics.push(("temporary", Metric::Temporaries));
    }
    if metric == Metric::Slop {
        metrics.push(("slop", Metric::Slop));
    }
    metrics.sort_by_key(|&(_, other)| other != metric);
    metrics
}

fn unit(metric: Metric) -> &'static str {
    match metric {
        Metric::Bytes | Metric::Slop => "bytes",
        Metric::Blocks | Metric::Temporaries => "blocks",
    }
}

fn frame(labels: &Labels<'_, '_>, function: FunctionId, location: Option<&(String, u32)>) -> ColumnFrame {
    let module = labels.module(labels.names.function(function).module);
    ColumnFrame {
        function: labels.function(function),
        module: Some(module).filter(|module| !module.is_empty()),
        file: location.map(|(file, _)| file.clone()),
        line: location.map(|&(_, line)| line).filter(|&line| line > 0),
    }
}
