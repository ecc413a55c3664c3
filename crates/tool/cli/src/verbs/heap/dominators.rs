//! `heapledger heap dominators`: which nodes keep others alive, and what would be freed with each.

use heapledger_census::dominators::Dominators;
use heapledger_census::graph::{Graph, NodeIndex};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use super::json::NodeJson;
use super::{begin, names, snapshot};
use crate::args::HeapDominators;
use crate::error::Result;
use crate::format::{bytes, count, counted, share};
use crate::json::document::{Document, Form};
use crate::output::Output;
use crate::views::table::limit;

/// The answer of `heap dominators --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapDominatorsJson {
    /// The retained size of the root, in bytes: that of all nodes to which paths of retaining edges
    /// lead; in snapshots of V8, that of all nodes.
    retained_root: u64,
    /// The nodes asked for, each followed by those that it dominates.
    nodes: Vec<DominatorJson>,
}

/// A node of the tree of dominators.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DominatorJson {
    #[serde(flatten)]
    node: NodeJson,
    /// Its size and that of all nodes that it dominates; `null` if nothing retains it. In snapshots
    /// of V8, the root retains such nodes.
    retained: Option<u64>,
    /// The node that dominates it immediately; `null` for the root, and if nothing retains it.
    dominator: Option<u64>,
    /// The distance from the node asked for.
    depth: usize,
    /// The number of nodes that it dominates immediately.
    dominates: usize,
}

impl Document for HeapDominatorsJson {
    const SCHEMA: &'static str = "heap-dominators";
    const ROWS: Option<&'static str> = Some("nodes");
}

/// A node of the tree that is shown.
struct Shown {
    node: NodeIndex,
    depth: usize,
    /// The number of nodes that it dominates immediately.
    children: usize,
    /// The number of them that are not shown, and their retained size.
    left_out: (usize, u64),
}

pub(super) fn run(arguments: &HeapDominators, out: &mut Output) -> Result<()> {
    begin(&arguments.answer.written, &[&arguments.file], out)?;
    let graph = snapshot::read(&arguments.file)?;
    let roots = match &arguments.ids[..] {
        [] => vec![graph.root()],
        ids => ids.iter().map(|id| snapshot::find(&graph, *id)).collect::<Result<Vec<_>>>()?,
    };
    let dominators = Dominators::of(&graph);
    let mut shown = Vec::new();
    for root in roots {
        add(&dominators, root, arguments, &mut shown);
    }
    let whole = dominators.retained(graph.root()).unwrap_or_default();
    if arguments.answer.json {
        let nodes = shown.iter().map(|shown| DominatorJson {
            node: NodeJson::new(&graph, shown.node),
            retained: dominators.retained(shown.node),
            dominator: dominators.dominator(shown.node).map(|dominator| graph.id(dominator).0),
            depth: shown.depth,
            dominates: shown.children,
        });
        let document = HeapDominatorsJson { retained_root: whole, nodes: nodes.collect() };
        return out.document(&document, Form::Json);
    }
    let nodes = counted(dominators.count() as u64, "node", "nodes");
    out.title(format_args!("{} in {nodes}, the root among them", bytes(whole)))?;
    out.line("")?;
    Ok(out.tree(&table(&graph, &dominators, &shown, whole))?)
}

/// Adds a node and the largest of those that it dominates, to the depth that was asked for.
fn add(dominators: &Dominators, root: NodeIndex, arguments: &HeapDominators, shown: &mut Vec<Shown>) {
    // The nodes still to add, the next one last.
    let mut waiting = vec![(root, 0)];
    while let Some((node, depth)) = waiting.pop() {
        let mut children: Vec<NodeIndex> = dominators.children(node);
        let all = children.len();
        let rows = if depth < arguments.depth { limit(arguments.rows).min(all) } else { 0 };
        let rest = children.split_off(rows);
        let left_out = match depth < arguments.depth {
            true => (rest.len(), rest.iter().filter_map(|node| dominators.retained(*node)).sum()),
            false => (0, 0),
        };
        shown.push(Shown { node, depth, children: all, left_out });
        waiting.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
    }
}

fn table(graph: &Graph, dominators: &Dominators, shown: &[Shown], whole: u64) -> Tree {
    let mut table = Tree::new(["retained", "share", "size"]);
    let part = |retained: u64| share(retained as f64 / whole.max(1) as f64);
    // The rows of nodes that are left out come after the last node below their dominator.
    let mut open: Vec<(usize, (usize, u64))> = Vec::new();
    let close = |table: &mut Tree, open: &mut Vec<(usize, (usize, u64))>, depth: usize| {
        while let Some((at, (nodes, retained))) = open.pop_if(|(at, _)| *at >= depth) {
            if nodes > 0 {
                let row = Row::default().line("", format!("and {} more", count(nodes as u64)));
                table.push(at + 1, row.cells([bytes(retained), part(retained), String::new()]));
            }
        }
    };
    for one in shown {
        close(&mut table, &mut open, one.depth);
        let retained = dominators.retained(one.node);
        let cells = [
            retained.map_or_else(String::new, bytes),
            retained.map_or_else(String::new, part),
            bytes(graph.size(one.node)),
        ];
        table.push(one.depth, Row::new(names::node(graph, one.node)).cells(cells));
        open.push((one.depth, one.left_out));
    }
    close(&mut table, &mut open, 0);
    table
}
