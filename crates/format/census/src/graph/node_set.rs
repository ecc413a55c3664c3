//! Sets of nodes.

use super::NodeIndex;

/// A set of nodes of one graph: one bit for each node of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSet(Vec<u64>);

impl NodeSet {
    /// Returns an empty set for a graph with so many nodes.
    pub fn new(node_count: usize) -> NodeSet {
        NodeSet(vec![0; node_count.div_ceil(64)])
    }

    /// Adds a node. Returns true if it is new. Panics if it is not of the graph.
    #[inline]
    pub fn insert(&mut self, node: NodeIndex) -> bool {
        let (word, bit) = (&mut self.0[node.index() / 64], 1 << (node.index() % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// True if a node is in the set.
    #[inline]
    pub fn contains(&self, node: NodeIndex) -> bool {
        self.0.get(node.index() / 64).is_some_and(|word| word & (1 << (node.index() % 64)) != 0)
    }
}
