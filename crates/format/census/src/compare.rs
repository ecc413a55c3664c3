//! The comparison of two graphs whose names and frames are numbered differently; for tests.

use crate::graph::{AllocationStack, Edge, EdgeName, Frame, FrameIndex, Graph, Name, NodeIndex};

/// Panics if two graphs differ, except in the numbers of names and frames.
pub(crate) fn assert_same(a: &Graph, b: &Graph) {
    assert_eq!(a.about(), b.about());
    assert_eq!((a.node_count(), a.edge_count(), a.root()), (b.node_count(), b.edge_count(), b.root()));
    for node in a.nodes() {
        assert_eq!(node_text(a, node), node_text(b, node), "node {node:?}");
        for (one, other) in a.edges(node).zip(b.edges(node)) {
            assert_eq!(edge_text(a, &one), edge_text(b, &other), "an edge of node {node:?}");
        }
    }
}

/// Returns everything about a node but its edges, as text.
pub(crate) fn node_text(graph: &Graph, node: NodeIndex) -> String {
    let text = |name: Option<Name>| name.map(|it| graph.text(it));
    format!(
        "{} {} {}/{} {:?} class {:?} label {:?} descriptive {:?} file {:?} {:?} {:?} {} edges, stack {:?}",
        graph.id(node).0,
        graph.text(graph.type_name(node)),
        graph.size(node),
        graph.is_size_known(node),
        graph.coarse_type(node),
        text(graph.class(node)),
        text(graph.label(node)),
        text(graph.descriptive_name(node)),
        text(graph.script_file(node)),
        graph.detachedness(node),
        graph.location(node),
        graph.edge_range(node).len(),
        stack_text(graph, node),
    )
}

/// Returns an edge as text.
pub(crate) fn edge_text(graph: &Graph, edge: &Edge) -> String {
    let name = match edge.name {
        None => String::new(),
        Some(EdgeName::Index(index)) => format!("[{index}]"),
        Some(EdgeName::Name(name)) => format!(".{}", graph.text(name)),
    };
    format!("{:?}{name} -> {}", edge.kind, edge.target.0)
}

/// Returns the frames of a node's stack, innermost first, one per line. The frames of deep stacks
/// beyond the first 100 are left out.
fn stack_text(graph: &Graph, node: NodeIndex) -> Option<String> {
    let frames: Vec<FrameIndex> = match graph.stack(node)? {
        AllocationStack::Empty => Vec::new(),
        AllocationStack::At(innermost) => graph.frames().stack(innermost).take(100).collect(),
    };
    let lines = frames.iter().map(|&it| frame_text(graph, graph.frame(it)));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

fn frame_text(graph: &Graph, frame: &Frame) -> String {
    let text = |name: Option<Name>| name.map(|it| graph.text(it));
    let Frame { line, column, is_system, is_self_hosted, .. } = frame;
    let (function, source) = (text(frame.function), text(frame.source));
    format!("{function:?} {source:?}:{line}:{column} {is_system} {is_self_hosted}")
}
