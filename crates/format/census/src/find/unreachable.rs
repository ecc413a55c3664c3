//! Nodes that nothing retains.

use crate::graph::{Graph, NodeIndex};

/// Returns the nodes that no path of retaining edges leads to from the root, in their order.
///
/// They are garbage that was not collected yet, or held only by weak references. Takes O(nodes +
/// edges), and one byte per node and 4 per pending node while it runs.
pub fn unreachable(graph: &Graph) -> Vec<NodeIndex> {
    let mut is_reached = vec![false; graph.node_count()];
    is_reached[graph.root().index()] = true;
    let mut pending = vec![graph.root()];
    while let Some(node) = pending.pop() {
        for (position, &target) in graph.edge_range(node).zip(graph.targets(node)) {
            if !is_reached[target.index()] && graph.retains(position) {
                is_reached[target.index()] = true;
                pending.push(target);
            }
        }
    }
    graph.nodes().filter(|node| !is_reached[node.index()]).collect()
}
