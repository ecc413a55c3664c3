//! The edges that retain, in depth-first preorder: the input of the dominator algorithm.
//!
//! In a large graph, its time is that of accesses to memory which wait for each other. Times of the
//! whole computation, for a snapshot of Firefox (376,000 nodes, 1.2 million edges) and a generated
//! heap (2 million nodes, 8 million edges); the best of 3 turns of `Dominators::of`, in processor
//! time, while other programs ran:
//!
//! | design | Firefox | generated |
//! |---|---|---|
//! | the walk finds the tree; two more passes over all edges sort out the others | 44 ms | 2.2 s |
//! | the walk itself sorts out each edge by the position of its target | 25 ms | 1.7 s |
//! | the walk asks one bit for each target; positions are looked up after it, all at once | 26 ms | 1.5 s |
//! | nor are kinds of edges read if all retain; links of later searches are fetched early | 23 ms | 1.2 s |

use super::{NONE, Unreached};
use crate::graph::{Graph, NodeIndex, NodeSet};

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
    /// Origins of the edges from greater positions, by the edge's target. Positions to which the
    /// root has an edge have none: the root is their immediate dominator.
    pub(super) sources: Vec<u32>,
}

impl Flow {
    /// Walks the graph from its root. Takes O(nodes + edges).
    pub(super) fn of(graph: &Graph, unreached: Unreached) -> Flow {
        let mut walk = Walk {
            graph,
            seen: NodeSet::new(graph.node_count()),
            order: Vec::with_capacity(graph.node_count()),
            parents: Vec::with_capacity(graph.node_count()),
            others: Vec::new(),
            stack: Vec::new(),
        };
        walk.visit(graph.root(), 0);
        let mut held = Vec::new();
        if unreached == Unreached::HeldByRoot && walk.order.len() < graph.node_count() {
            held = walk.visit_rest();
        }
        walk.finish(&held)
    }
}

/// Iterates over the targets of the edges of a node that retain them.
fn retained_by(graph: &Graph, node: NodeIndex) -> impl Iterator<Item = NodeIndex> + '_ {
    let edges = graph.edge_range(node).zip(graph.targets(node));
    edges.filter(|&(edge, _)| graph.retains(edge)).map(|(_, &target)| target)
}

/// A depth-first walk, which keeps its place in the edges of each node on a stack of its own.
///
/// In a large graph, the walk waits for memory: each step depends on the one before. So it looks up
/// no more than one bit of each edge's target. Positions of targets are looked up when it is over,
/// by accesses that do not depend on each other.
struct Walk<'a> {
    graph: &'a Graph,
    seen: NodeSet,
    /// Nodes, by position.
    order: Vec<u32>,
    /// Parents, by position.
    parents: Vec<u32>,
    /// The edges to nodes that had been seen: targets, and the positions of origins.
    others: Vec<(u32, u32)>,
    /// Positions, and the next edge and the end of the edges of each.
    stack: Vec<(u32, usize, usize)>,
}

impl Walk<'_> {
    /// Visits a node as a child of a position, and everything below it that was not visited.
    fn visit(&mut self, start: NodeIndex, parent: u32) {
        self.seen.insert(start);
        self.enter(start, parent);
        while let Some((position, next, end)) = self.stack.last_mut() {
            let (from, mut edge, end) = (*position, *next, *end);
            let mut found = None;
            while edge < end {
                let target = self.graph.target(edge);
                edge += 1;
                if !self.graph.retains(edge - 1) {
                    continue;
                }
                if self.seen.insert(target) {
                    found = Some(target);
                    break;
                }
                self.others.push((target.0, from));
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
        self.order.push(node.0);
        self.parents.push(parent);
        let edges = self.graph.edge_range(node);
        if !edges.is_empty() {
            self.stack.push((position, edges.start, edges.end));
        }
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
                if !self.seen.contains(node) && is_retained[node.index()] == is_in_cycle {
                    held.push(self.order.len() as u32);
                    self.visit(node, 0);
                }
            }
        }
        held
    }

    /// Sorts out the edges beside the tree. `held` are positions that the root holds without an
    /// edge of the graph.
    fn finish(self, held: &[u32]) -> Flow {
        let Walk { graph, order, parents, mut others, .. } = self;
        let mut numbers = vec![NONE; graph.node_count()];
        for (position, &node) in (0..).zip(&order) {
            numbers[node as usize] = position;
        }
        let mut least = parents.clone();
        for &position in held {
            least[position as usize] = 0;
        }
        let mut counts = vec![0_u32; order.len()];
        for (target, from) in &mut others {
            let number = numbers[*target as usize];
            *target = number;
            if *from > number {
                counts[number as usize] += 1;
            } else {
                let least = &mut least[number as usize];
                *least = (*least).min(*from);
            }
        }
        let mut starts = Vec::with_capacity(order.len() + 1);
        let mut total = 0;
        for (&count, &least) in counts.iter().zip(&least) {
            total += if least > 0 { u64::from(count) } else { 0 };
            starts.push(total);
        }
        starts.push(total);
        drop(counts);
        // Each start is the end of its range yet, and moves down to its beginning.
        let mut sources = vec![0; total as usize];
        for (target, from) in others {
            if from > target && least[target as usize] > 0 {
                let start = &mut starts[target as usize];
                *start -= 1;
                sources[*start as usize] = from;
            }
        }
        Flow { numbers, order, parents, least, starts, sources }
    }
}
