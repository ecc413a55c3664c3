//! The edges that retain, in depth-first preorder: the input of the dominator algorithm.

use super::{NONE, Unreached};
use crate::graph::{Graph, NodeIndex};

/// A depth-first spanning tree of a graph, and the edges beside it.
///
/// Nodes are named by their positions in preorder. The position of a parent in the spanning tree is
/// less than those of its children.
pub(super) struct Flow {
    /// Positions, by node.
    pub(super) numbers: Vec<u32>,
    /// Nodes, by position.
    pub(super) order: Vec<u32>,
    /// Parents in the spanning tree, by position.
    pub(super) parents: Vec<u32>,
    /// The least position with an edge to each position. Of edges from lesser positions no more
    /// than this matters.
    pub(super) least: Vec<u32>,
    /// The ranges of `sources`, by position: one more than there are positions.
    pub(super) starts: Vec<u64>,
    /// Origins of the edges from greater positions, by the edge's target.
    pub(super) sources: Vec<u32>,
}

impl Flow {
    /// Walks the graph from its root. Takes O(nodes + edges).
    pub(super) fn of(graph: &Graph, unreached: Unreached) -> Flow {
        let mut walk = Walk {
            graph,
            numbers: vec![NONE; graph.node_count()],
            order: Vec::with_capacity(graph.node_count()),
            parents: Vec::with_capacity(graph.node_count()),
            stack: Vec::new(),
        };
        walk.visit(graph.root(), 0);
        let mut held = Vec::new();
        if unreached == Unreached::HeldByRoot && walk.order.len() < graph.node_count() {
            held = walk.visit_rest();
        }
        let Walk { numbers, order, parents, .. } = walk;
        let mut flow =
            Flow { numbers, least: parents.clone(), order, parents, starts: Vec::new(), sources: Vec::new() };
        for position in held {
            flow.least[position as usize] = 0;
        }
        flow.collect_edges(graph);
        flow
    }

    /// Fills the tables of edges: counts those of each target, then puts each in its range.
    fn collect_edges(&mut self, graph: &Graph) {
        let mut starts = vec![0_u64; self.order.len() + 1];
        for position in 0..self.order.len() as u32 {
            for target in retained_by(graph, NodeIndex(self.order[position as usize])) {
                let target = self.numbers[target.index()];
                if position > target {
                    starts[target as usize] += 1;
                } else {
                    let least = &mut self.least[target as usize];
                    *least = position.min(*least);
                }
            }
        }
        let mut total = 0;
        for start in &mut starts {
            total += *start;
            *start = total;
        }
        // From here on, each start is the end of its range, and moves down to its beginning.
        let mut sources = vec![0; total as usize];
        for position in 0..self.order.len() as u32 {
            for target in retained_by(graph, NodeIndex(self.order[position as usize])) {
                let target = self.numbers[target.index()];
                if position > target {
                    let start = &mut starts[target as usize];
                    *start -= 1;
                    sources[*start as usize] = position;
                }
            }
        }
        (self.starts, self.sources) = (starts, sources);
    }
}

/// Iterates over the targets of the edges of a node that retain them.
fn retained_by(graph: &Graph, node: NodeIndex) -> impl Iterator<Item = NodeIndex> + '_ {
    let edges = graph.edge_range(node).zip(graph.targets(node));
    edges.filter(|&(edge, _)| graph.retains(edge)).map(|(_, &target)| target)
}

/// A depth-first walk, which keeps its place in the edges of each node on a stack of its own.
struct Walk<'a> {
    graph: &'a Graph,
    numbers: Vec<u32>,
    order: Vec<u32>,
    parents: Vec<u32>,
    /// Positions, and the next edge and the end of the edges of each.
    stack: Vec<(u32, usize, usize)>,
}

impl Walk<'_> {
    /// Visits a node as a child of a position, and everything below it that was not visited.
    fn visit(&mut self, start: NodeIndex, parent: u32) {
        self.enter(start, parent);
        while let Some((position, next, end)) = self.stack.last_mut() {
            let (from, mut edge) = (*position, *next);
            let mut found = None;
            while edge < *end {
                let target = self.graph.edge(edge).target;
                let is_new = self.numbers[target.index()] == NONE;
                edge += 1;
                if is_new && self.graph.retains(edge - 1) {
                    found = Some(target);
                    break;
                }
            }
            *next = edge;
            match found {
                Some(target) => self.enter(target, from),
                None => {
                    self.stack.pop();
                }
            }
        }
    }

    fn enter(&mut self, node: NodeIndex, parent: u32) {
        let position = self.order.len() as u32;
        self.numbers[node.index()] = position;
        self.order.push(node.0);
        self.parents.push(parent);
        let edges = self.graph.edge_range(node);
        self.stack.push((position, edges.start, edges.end));
    }

    /// Visits all nodes that the root does not reach, as children of the root: first those to which
    /// no edge leads, then, of cycles, the node with the lowest index.
    ///
    /// Returns the positions of these children.
    fn visit_rest(&mut self) -> Vec<u32> {
        let mut is_retained = vec![false; self.graph.node_count()];
        for node in self.graph.nodes() {
            for target in retained_by(self.graph, node).filter(|&target| target != node) {
                is_retained[target.index()] = true;
            }
        }
        let mut held = Vec::new();
        for is_in_cycle in [false, true] {
            for node in self.graph.nodes() {
                if self.numbers[node.index()] == NONE && is_retained[node.index()] == is_in_cycle {
                    held.push(self.order.len() as u32);
                    self.visit(node, 0);
                }
            }
        }
        held
    }
}
