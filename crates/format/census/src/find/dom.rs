//! DOM nodes that are in no document.

use std::cmp::Reverse;

use super::{NotAvailable, name_of};
use crate::dominators::Dominators;
use crate::graph::{CoarseType, Detachedness, EdgeName, Graph, Name, NodeIndex, Origin};

/// A DOM node that no document contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetachedNode {
    /// The node.
    pub node: NodeIndex,
    /// Its retained size in bytes.
    pub retained: u64,
}

/// Returns the DOM nodes that are in no document, the largest retained size first.
///
/// V8's snapshots say so for each node. In Firefox's, a node is detached if neither it nor a parent
/// of it is a child of a document; nodes below a `#document-fragment`, which may be a shadow tree,
/// are left out.
///
/// # Errors
///
/// Fails if the source has DOM nodes and does not know it of any.
pub fn detached_dom(graph: &Graph, dominators: &Dominators) -> Result<Vec<DetachedNode>, NotAvailable> {
    let is_detached = match graph.about().origin {
        Origin::Firefox => detached_by_parents(graph),
        Origin::V8 | Origin::Other => detached_by_source(graph)?,
    };
    let nodes = graph.nodes().filter(|node| is_detached[node.index()]);
    let mut all: Vec<DetachedNode> =
        nodes.map(|node| DetachedNode { node, retained: dominators.retained(node).unwrap_or(0) }).collect();
    all.sort_by_key(|it| (Reverse(it.retained), it.node));
    Ok(all)
}

fn detached_by_source(graph: &Graph) -> Result<Vec<bool>, NotAvailable> {
    let detachedness: Vec<_> = graph.nodes().map(|node| graph.detachedness(node)).collect();
    let is_known = detachedness.iter().any(|&it| it != Detachedness::Unknown);
    if !is_known && graph.nodes().any(|node| graph.coarse_type(node) == CoarseType::DomNode) {
        return Err(NotAvailable::Detachedness);
    }
    // Node.js calls objects of its own detached, too. They have such names, and are no DOM.
    let is_dom = |node: NodeIndex| !graph.label(node).is_some_and(|label| graph.text(label).starts_with("Node / "));
    let nodes = graph.nodes().zip(detachedness);
    Ok(nodes.map(|(node, it)| it == Detachedness::Detached && is_dom(node)).collect())
}

/// The state of a DOM node, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// It is in a document, or may be in a shadow tree.
    Attached,
    Detached,
}

fn detached_by_parents(graph: &Graph) -> Vec<bool> {
    let [document, fragment, attribute] = ["#document", "#document-fragment", "Attr"].map(|text| name_of(graph, text));
    let [parent_edge, child_edge] = ["Parent Node", "Child Node"].map(|text| name_of(graph, text));
    let is_dom = |node: NodeIndex| graph.coarse_type(node) == CoarseType::DomNode;
    let has_name = |node: NodeIndex, name: Option<Name>| name.is_some() && graph.descriptive_name(node) == name;
    let mut states = vec![State::Open; graph.node_count()];
    for node in graph.nodes() {
        let is_document = has_name(node, document);
        // An attribute is in no tree.
        if !is_dom(node) || is_document || has_name(node, fragment) || Some(graph.type_name(node)) == attribute {
            states[node.index()] = State::Attached;
        }
        if is_document {
            for child in followed(graph, node, child_edge) {
                states[child.index()] = State::Attached;
            }
        }
    }
    // From each node up to the first whose state is known; all on the way get its state.
    let mut way = Vec::new();
    for node in graph.nodes() {
        let mut at = node;
        while states[at.index()] == State::Open {
            way.push(at);
            // For now, so that a cycle, which only a damaged file has, comes to an end.
            states[at.index()] = State::Detached;
            match followed(graph, at, parent_edge).next() {
                Some(parent) => at = parent,
                None => break,
            }
        }
        let state = states[at.index()];
        for below in way.drain(..) {
            states[below.index()] = state;
        }
    }
    states.into_iter().map(|state| state == State::Detached).collect()
}

/// Iterates over the targets of a node's edges of a name.
fn followed(graph: &Graph, node: NodeIndex, name: Option<Name>) -> impl Iterator<Item = NodeIndex> + '_ {
    let is_named = move |edge: &crate::graph::Edge| name.is_some() && edge.name == name.map(EdgeName::Name);
    graph.edges(node).filter(is_named).map(|edge| edge.target)
}
