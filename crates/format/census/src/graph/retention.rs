//! The edges that retain, by the rules of Chrome's DevTools (`HeapSnapshot.ts` there).

use super::{EdgeKind, Graph, NodeIndex, Origin, tags};

/// The node of V8's snapshots below which the documents of a browser are.
const DOCUMENTS: &str = "(Document DOM trees)";

/// Marks the edges that do not retain: weak ones and others [by their kind](EdgeKind::retains), and
/// in snapshots of V8 those that lead from the engine's own nodes to nodes of the program.
///
/// The program's nodes are those that can be reached from its global objects, to which the root has
/// shortcuts, and from its documents. Without this rule, the tables of the engine would seem to
/// retain the objects of the program beside the program itself.
pub(super) fn mark(graph: &mut Graph) {
    let is_v8 = graph.about.origin == Origin::V8;
    if !is_v8 && graph.edge_tags.iter().all(|tag| tag & tags::KIND == EdgeKind::Plain as u8) {
        graph.all_retain = true;
        return;
    }
    let is_program = if is_v8 { program(graph) } else { Vec::new() };
    for node in graph.nodes() {
        let is_root = node == graph.root;
        let is_system = is_program.get(node.index()) == Some(&false) && !is_root;
        for edge in graph.edge_range(node) {
            let is_foreign = is_system && is_program[graph.targets[edge].index()];
            if is_foreign || !graph.edge_kind(edge).retains(is_root) {
                graph.edge_tags[edge] |= tags::DOES_NOT_RETAIN;
            }
        }
    }
}

/// Returns for each node whether it is the program's.
fn program(graph: &Graph) -> Vec<bool> {
    let mut is_program = vec![false; graph.node_count()];
    let mut open: Vec<NodeIndex> = Vec::new();
    let root = graph.root();
    for edge in graph.edges(root) {
        let is_start = match edge.kind {
            EdgeKind::Shortcut => true,
            EdgeKind::Element => is_documents(graph, edge.target),
            _ => false,
        };
        if is_start && !std::mem::replace(&mut is_program[edge.target.index()], true) {
            open.push(edge.target);
        }
    }
    while let Some(node) = open.pop() {
        for edge in graph.edge_range(node).filter(|&it| graph.edge_kind(it) != EdgeKind::Weak) {
            let target = graph.targets[edge];
            if !std::mem::replace(&mut is_program[target.index()], true) {
                open.push(target);
            }
        }
    }
    is_program
}

fn is_documents(graph: &Graph, node: NodeIndex) -> bool {
    graph.label(node).is_some_and(|it| graph.text(it) == DOCUMENTS) && graph.text(graph.type_name(node)) == "synthetic"
}
