//! The dominator tree of a graph, and the bytes that each node retains.
//!
//! A node dominates another if every path from the root to the other goes through it. If it were
//! freed, everything that it dominates would be freed with it: its *retained size* is its own size
//! and theirs. Only edges that retain their target count ([`Graph::retains`]).
//!
//! Sizes are those of the file. If the root of a snapshot of V8 holds a global object, Chrome's
//! DevTools first adds the size of each array and each hidden node that only one node holds to that
//! of its holder. So it shows less for such arrays and hidden nodes, and the same for all others.

mod flow;
mod semi_nca;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use crate::graph::{Graph, NodeIndex, Origin};

use self::flow::Flow;

/// The treatment of nodes to which no path of retaining edges leads from the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// They are in no tree, and nobody retains them, as in Firefox.
    Excluded,
    /// The root retains them, as in Chrome's DevTools. Those that no retaining edge leads to, and
    /// one of each cycle, are treated as if the root had an edge to them.
    HeldByRoot,
}

impl Unreached {
    /// Returns the treatment by the program that made the snapshot.
    pub fn of(origin: Origin) -> Unreached {
        match origin {
            Origin::V8 => Unreached::HeldByRoot,
            Origin::Firefox | Origin::Other => Unreached::Excluded,
        }
    }
}

/// The dominator tree of a graph.
///
/// Takes 16 bytes per node of the tree and 4 per node of the graph; 12 more per node of the tree
/// after the first question for [children](Dominators::children) or
/// [groups](Dominators::retained_together).
#[derive(Debug)]
pub struct Dominators {
    /// Positions in depth-first preorder, by node; [`NONE`] for nodes that are not in the tree.
    numbers: Vec<u32>,
    /// Nodes, by position.
    order: Vec<u32>,
    /// Positions of the immediate dominators, by position; that of the root is its own.
    parents: Vec<u32>,
    /// Bytes, by position.
    retained: Vec<u64>,
    index: OnceLock<TreeIndex>,
}

/// The position of nodes that are not in the tree.
const NONE: u32 = u32::MAX;

/// The tree in preorder of its own: the descendants of a node follow it directly.
#[derive(Debug)]
struct TreeIndex {
    /// Places in the preorder, by position.
    places: Vec<u32>,
    /// Positions, by place.
    positions: Vec<u32>,
    /// Numbers of nodes of each subtree, by position.
    counts: Vec<u32>,
}

impl Dominators {
    /// Computes the tree, with the rules of the program that made the snapshot.
    ///
    /// Takes O(edges · log nodes) time in the worst case, and at most 40 bytes per node and 12
    /// per edge while it runs.
    pub fn of(graph: &Graph) -> Dominators {
        Dominators::with(graph, Unreached::of(graph.about().origin))
    }

    /// Computes the tree with a treatment of nodes that are not reached.
    pub fn with(graph: &Graph, unreached: Unreached) -> Dominators {
        let flow = Flow::of(graph, unreached);
        let parents = semi_nca::immediate_dominators(&flow);
        let Flow { numbers, order, .. } = flow;
        let mut retained: Vec<u64> = order.iter().map(|&node| graph.size(NodeIndex(node))).collect();
        for position in (1..order.len()).rev() {
            // A dominator comes before the nodes that it dominates. The sizes of all nodes together
            // are less than 2^64 bytes.
            retained[parents[position] as usize] += retained[position];
        }
        Dominators { numbers, order, parents, retained, index: OnceLock::new() }
    }

    /// The root of the tree, which is that of the graph.
    pub fn root(&self) -> NodeIndex {
        NodeIndex(self.order[0])
    }

    /// The number of nodes in the tree.
    pub fn count(&self) -> usize {
        self.order.len()
    }

    /// True if a node is in the tree.
    pub fn contains(&self, node: NodeIndex) -> bool {
        self.position(node).is_some()
    }

    /// Returns the retained size of a node in bytes, or `None` if it is not in the tree.
    pub fn retained(&self, node: NodeIndex) -> Option<u64> {
        self.position(node).map(|position| self.retained[position])
    }

    /// Returns the immediate dominator of a node: `None` for the root and for nodes that are not in
    /// the tree.
    pub fn dominator(&self, node: NodeIndex) -> Option<NodeIndex> {
        let position = self.position(node).filter(|&it| it != 0)?;
        Some(NodeIndex(self.order[self.parents[position] as usize]))
    }

    /// Returns the nodes from the root to a node, each of which dominates the next. Empty if the
    /// node is not in the tree.
    pub fn chain(&self, node: NodeIndex) -> Vec<NodeIndex> {
        let mut chain = Vec::new();
        if self.contains(node) {
            chain.extend(std::iter::successors(Some(node), |&it| self.dominator(it)));
            chain.reverse();
        }
        chain
    }

    /// Returns the nodes that a node dominates immediately, the largest retained size first; nodes
    /// of equal sizes are in the order of their indexes.
    pub fn children(&self, node: NodeIndex) -> Vec<NodeIndex> {
        let Some(position) = self.position(node) else { return Vec::new() };
        let index = self.index();
        let mut children = Vec::new();
        let start = index.places[position] as usize;
        let end = start + index.counts[position] as usize;
        let mut place = start + 1;
        while place < end {
            let child = index.positions[place] as usize;
            children.push(NodeIndex(self.order[child]));
            place += index.counts[child] as usize;
        }
        children.sort_by_key(|&it| (std::cmp::Reverse(self.retained(it)), it));
        children
    }

    /// True if `above` dominates `below`. A node dominates itself.
    pub fn dominates(&self, above: NodeIndex, below: NodeIndex) -> bool {
        let (Some(above), Some(below)) = (self.position(above), self.position(below)) else { return false };
        let index = self.index();
        let distance = index.places[below].wrapping_sub(index.places[above]);
        distance < index.counts[above]
    }

    /// Returns the bytes that would be freed if no node of a set were held: the retained sizes of
    /// those that no other node of the set dominates.
    ///
    /// This is a lower bound if something is held by several nodes of the set and by nothing else.
    /// Nodes that are not in the tree count nothing. Takes O(k log k) for k nodes.
    pub fn retained_together(&self, nodes: &[NodeIndex]) -> u64 {
        let index = self.index();
        let mut positions: Vec<usize> = nodes.iter().filter_map(|&node| self.position(node)).collect();
        positions.sort_unstable_by_key(|&position| index.places[position]);
        let (mut bytes, mut end) = (0, 0);
        for position in positions {
            let place = index.places[position];
            if place >= end {
                bytes += self.retained[position];
                end = place + index.counts[position];
            }
        }
        bytes
    }

    fn position(&self, node: NodeIndex) -> Option<usize> {
        self.numbers.get(node.index()).filter(|&&number| number != NONE).map(|&number| number as usize)
    }

    fn index(&self) -> &TreeIndex {
        self.index.get_or_init(|| TreeIndex::of(&self.parents))
    }
}

impl TreeIndex {
    fn of(parents: &[u32]) -> TreeIndex {
        let mut counts = vec![1; parents.len()];
        for position in (1..parents.len()).rev() {
            counts[parents[position] as usize] += counts[position];
        }
        // The next free place below each node, of those that have one.
        let mut free: Vec<u32> = vec![1; parents.len()];
        let mut places = vec![0; parents.len()];
        let mut positions = vec![0; parents.len()];
        for position in 1..parents.len() {
            let parent = parents[position] as usize;
            places[position] = free[parent];
            free[position] = free[parent] + 1;
            free[parent] += counts[position];
            positions[places[position] as usize] = position as u32;
        }
        TreeIndex { places, positions, counts }
    }
}
