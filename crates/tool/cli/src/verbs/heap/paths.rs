//! `heapledger heap paths`: the shortest paths from the root to nodes.

use heapledger_census::graph::{Graph, NodeIndex};
use heapledger_census::paths::{PathOptions, ShortestPaths, Step};
use heapledger_report_format::{Row, Tree, escape};
use serde::Serialize;

use super::json::{EdgeNameJson, NodeJson};
use super::{begin, names, snapshot};
use crate::args::HeapPaths;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::document::{Document, Form};
use crate::output::Output;

/// The answer of `heap paths --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapPathsJson {
    /// The node at which all paths begin.
    from: u64,
    nodes: Vec<TargetJson>,
}

/// A node, and the paths that lead to it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TargetJson {
    #[serde(flatten)]
    node: NodeJson,
    /// The shortest first; none if nothing that retains it leads to the node.
    paths: Vec<Vec<StepJson>>,
}

/// An edge of a path, and the node from which it comes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StepJson {
    predecessor: u64,
    /// The name of the edge; `null` if it has none.
    edge: Option<EdgeNameJson>,
}

impl Document for HeapPathsJson {
    const SCHEMA: &'static str = "heap-paths";
    const ROWS: Option<&'static str> = None;
}

pub(super) fn run(arguments: &HeapPaths, out: &mut Output) -> Result<()> {
    begin(&arguments.answer.written, &[&arguments.file], out)?;
    let graph = snapshot::read(&arguments.file)?;
    let find = |id: &u64| snapshot::find(&graph, *id);
    let targets = arguments.ids.iter().map(find).collect::<Result<Vec<_>>>()?;
    let start = arguments.from.as_ref().map(find).transpose()?.unwrap_or(graph.root());
    let options = PathOptions { start, targets: &targets, paths_max: arguments.max, only_retained: true };
    let found = ShortestPaths::find(&graph, options)
        .map_err(|error| Failure::caused(Exit::Usage, "no path can be found", error))?;
    if arguments.answer.json {
        let nodes = found.targets().map(|target| TargetJson {
            node: NodeJson::new(&graph, target),
            paths: found
                .paths(target)
                .map(|path| path.iter().map(|step| StepJson::new(&graph, step)).collect())
                .collect(),
        });
        let document = HeapPathsJson { from: graph.id(start).0, nodes: nodes.collect() };
        return out.document(&document, Form::Json);
    }
    for (at, target) in found.targets().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        let title = format!("paths from {} to {}", names::node(&graph, start), names::node(&graph, target));
        out.title(escape(&title))?;
        let mut is_reached = false;
        for path in found.paths(target) {
            is_reached = true;
            out.line("")?;
            out.tree(&table(&graph, &path, target))?;
        }
        if !is_reached {
            out.dim_line("there are none: nothing there retains it")?;
        }
    }
    Ok(())
}

/// Returns a path, with the edge that leads to each node beside it.
fn table(graph: &Graph, path: &[Step], target: NodeIndex) -> Tree {
    let mut table = Tree::new([""]);
    let mut edge = String::new();
    for step in path {
        table.push(0, Row::new(names::node(graph, step.from)).cells([edge]));
        edge = names::edge(graph, &step.edge);
    }
    table.push(0, Row::new(names::node(graph, target)).cells([edge]));
    table
}

impl StepJson {
    fn new(graph: &Graph, step: &Step) -> StepJson {
        let edge = step.edge.name.map(|name| EdgeNameJson::new(graph, name));
        StepJson { predecessor: graph.id(step.from).0, edge }
    }
}
