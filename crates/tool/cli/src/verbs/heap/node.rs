//! `heapledger heap node`: one node, its edges and its holders.

use heapledger_census::dominators::Dominators;
use heapledger_census::graph::{Detachedness, Edge, Graph, NodeIndex};
use heapledger_census::paths::holders;
use heapledger_report_format::{Row, Tree, escape};
use serde::Serialize;

use super::json::{EdgeJson, HeapFrameJson, NodeJson};
use super::{begin, names, snapshot};
use crate::args::HeapNode;
use crate::error::Result;
use crate::format::{bytes, count, share};
use crate::json::document::{Document, Form};
use crate::output::Output;
use crate::views::table::limit;

/// The answer of `heap node --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapNodeJson {
    #[serde(flatten)]
    node: NodeJson,
    /// Its size and that of all nodes that it dominates; `null` if nothing retains it. In snapshots
    /// of V8, the root retains such nodes.
    retained: Option<u64>,
    /// The node that dominates it immediately; `null` for the root, and if nothing retains it.
    dominator: Option<u64>,
    /// The stack that allocated it, innermost first; `null` if it was not recorded.
    stack: Option<Vec<HeapFrameJson>>,
    edges_all: usize,
    /// The nodes that it holds.
    edges: Vec<EdgeJson>,
    holders_all: usize,
    /// The nodes that hold it.
    holders: Vec<EdgeJson>,
}

impl Document for HeapNodeJson {
    const SCHEMA: &'static str = "heap-node";
    const ROWS: Option<&'static str> = None;
}

pub(super) fn run(arguments: &HeapNode, out: &mut Output) -> Result<()> {
    begin(&arguments.answer.written, &[&arguments.file], out)?;
    let graph = snapshot::read(&arguments.file)?;
    let node = snapshot::find(&graph, arguments.id)?;
    let dominators = Dominators::of(&graph);
    let rows = limit(arguments.rows);
    let (holders, holders_all) = holders(&graph, node, rows);
    if arguments.answer.json {
        let document = HeapNodeJson {
            node: NodeJson::new(&graph, node),
            retained: dominators.retained(node),
            dominator: dominators.dominator(node).map(|dominator| graph.id(dominator).0),
            stack: HeapFrameJson::stack(&graph, node),
            edges_all: graph.edge_range(node).len(),
            edges: graph.edges(node).take(rows).map(|edge| EdgeJson::new(&graph, &edge, edge.target)).collect(),
            holders_all,
            holders: holders.iter().map(|step| EdgeJson::new(&graph, &step.edge, step.from)).collect(),
        };
        return out.document(&document, Form::Json);
    }
    out.title(escape(&names::node(&graph, node)))?;
    properties(&graph, node, &dominators, out)?;
    let (edges, edges_all) = (graph.edges(node).take(rows), graph.edge_range(node).len());
    let edges = edges.map(|edge| row(&graph, &dominators, edge.target, &edge)).collect();
    list("holds", edges, edges_all, out)?;
    let holders = holders.iter().map(|step| row(&graph, &dominators, step.from, &step.edge)).collect();
    list("held by", holders, holders_all, out)
}

fn properties(graph: &Graph, node: NodeIndex, dominators: &Dominators, out: &mut Output) -> Result<()> {
    let text = |name| graph.text(name).to_owned();
    let size = if graph.is_size_known(node) { bytes(graph.size(node)) } else { "not known".to_owned() };
    let whole = dominators.retained(graph.root()).unwrap_or_default();
    let retained = dominators.retained(node).map(|retained| {
        let part = share(retained as f64 / whole.max(1) as f64);
        format!("{}, {part} of the heap", bytes(retained))
    });
    let place = graph.location(node).map(|place| {
        format!(
            "script {}, line {}, column {}",
            place.script_id,
            u64::from(place.line) + 1,
            u64::from(place.column) + 1
        )
    });
    let mut table = Tree::new(["", ""]);
    let mut push = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            table.push(0, Row::new(value).cells([name]));
        }
    };
    push("type", Some(text(graph.type_name(node))));
    push("class", graph.class(node).map(text));
    push("DOM node", graph.descriptive_name(node).map(text));
    let label = graph.label(node).filter(|label| graph.class(node) != Some(*label)).map(text);
    push("text", label.filter(|label| !label.is_empty()).map(|label| names::cut(&label)));
    push("size", Some(size));
    push("retained", Some(retained.unwrap_or_else(|| "nothing: it cannot be reached".to_owned())));
    push("dominator", dominators.dominator(node).map(|dominator| names::node(graph, dominator)));
    push("script", graph.script_file(node).map(text));
    push("defined", place);
    push("detached", (graph.detachedness(node) == Detachedness::Detached).then(|| "yes".to_owned()));
    for (at, frame) in names::frames(graph, node).into_iter().enumerate() {
        push(if at == 0 { "allocated" } else { "" }, Some(frame));
    }
    Ok(out.tree(&table)?)
}

fn row(graph: &Graph, dominators: &Dominators, other: NodeIndex, edge: &Edge) -> Row {
    let retained = dominators.retained(other).map_or_else(String::new, bytes);
    let cells = [bytes(graph.size(other)), retained, names::edge(graph, edge)];
    let note = if edge.retains { "" } else { "(does not retain)" };
    Row::new(names::node(graph, other)).note(note).cells(cells)
}

fn list(title: &str, rows: Vec<Row>, all: usize, out: &mut Output) -> Result<()> {
    out.line("")?;
    if rows.is_empty() {
        out.title(format_args!("{title} nothing"))?;
        return Ok(());
    }
    out.title(title)?;
    let rest = all - rows.len();
    let mut table = Tree::new(["size", "retained", "by"]);
    rows.into_iter().for_each(|row| table.push(0, row));
    out.tree(&table)?;
    if rest > 0 {
        out.dim_line(format_args!("and {} more: -n 0 shows them", count(rest as u64)))?;
    }
    Ok(())
}
