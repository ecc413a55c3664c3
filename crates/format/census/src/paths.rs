//! The shortest paths to nodes: the edges that keep them alive, with their names.
//!
//! The paths are those of SpiderMonkey. A breadth-first walk from the start remembers the edge by
//! which it first reached each node. Each of the first edges that lead to a target, in the order of
//! the walk, ends one path, whose other edges are the remembered ones.

#[cfg(test)]
mod tests;

use std::fmt;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::graph::{Edge, Graph, NodeIndex};

/// The question for paths.
#[derive(Clone, Copy, Debug)]
pub struct PathOptions<'a> {
    /// The node at which paths begin; that is usually the root.
    pub start: NodeIndex,
    /// The nodes at which paths end. A node that is given twice counts once.
    pub targets: &'a [NodeIndex],
    /// The maximum number of paths to each target.
    pub paths_max: usize,
    /// Follows only edges that retain their targets. Firefox follows all.
    pub only_retained: bool,
}

/// The reasons why a question for paths has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// The maximum number of paths is 0.
    NoPaths,
    /// There are no targets.
    NoTargets,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathError::NoPaths => "the maximum number of paths is 0",
            PathError::NoTargets => "there is no node to find paths to",
        })
    }
}

impl std::error::Error for PathError {}

/// A step of a path: an edge, and the node from which it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The node from which the edge comes.
    pub from: NodeIndex,
    /// The edge.
    pub edge: Edge,
}

/// The shortest paths to some nodes: 8 bytes per node of the graph, and 8 per path.
#[derive(Debug)]
pub struct ShortestPaths<'a> {
    graph: &'a Graph,
    start: NodeIndex,
    /// The edge by which the walk first reached each node, or [`NONE`].
    reached_by: Vec<u64>,
    /// The targets, each with the last edges of its paths.
    found: Vec<(NodeIndex, Vec<u64>)>,
    /// The places of the targets in `found`.
    places: HashMap<NodeIndex, usize, RandomState>,
}

/// The edge of nodes that the walk has not reached.
const NONE: u64 = u64::MAX;

impl<'a> ShortestPaths<'a> {
    /// Finds the paths. Takes at most O(nodes + edges) time; it ends when all paths are found.
    ///
    /// # Errors
    ///
    /// Fails if there are no targets, or if no paths are asked for.
    pub fn find(graph: &'a Graph, options: PathOptions<'_>) -> Result<ShortestPaths<'a>, PathError> {
        let PathOptions { start, targets, paths_max, only_retained } = options;
        if paths_max == 0 {
            return Err(PathError::NoPaths);
        }
        let mut paths = ShortestPaths {
            graph,
            start,
            reached_by: vec![NONE; graph.node_count()],
            found: Vec::new(),
            places: HashMap::default(),
        };
        for &target in targets {
            paths.places.entry(target).or_insert_with(|| {
                paths.found.push((target, Vec::new()));
                paths.found.len() - 1
            });
        }
        if paths.places.is_empty() {
            return Err(PathError::NoTargets);
        }
        // The number of targets to which not all paths are known.
        let mut open = paths.places.len();
        let (mut frontier, mut next) = (vec![start], Vec::new());
        while !frontier.is_empty() {
            for &node in &frontier {
                for (position, &target) in graph.edge_range(node).zip(graph.targets(node)) {
                    if only_retained && !graph.retains(position) {
                        continue;
                    }
                    let reached_by = &mut paths.reached_by[target.index()];
                    if *reached_by == NONE {
                        *reached_by = position as u64;
                        // The walk began at the start.
                        if target != start {
                            next.push(target);
                        }
                    }
                    let Some(&place) = paths.places.get(&target) else { continue };
                    let ends = &mut paths.found[place].1;
                    if ends.len() < paths_max {
                        ends.push(position as u64);
                        open -= usize::from(ends.len() == paths_max);
                    }
                    if open == 0 {
                        return Ok(paths);
                    }
                }
            }
            frontier.clear();
            std::mem::swap(&mut frontier, &mut next);
        }
        Ok(paths)
    }

    /// The targets, in the order of the question.
    pub fn targets(&self) -> impl ExactSizeIterator<Item = NodeIndex> + '_ {
        self.found.iter().map(|(target, _)| *target)
    }

    /// Iterates over the paths to a target, the shortest first: none if nothing leads there, or if
    /// the node is not a target. A path is made when it is asked for.
    pub fn paths(&self, target: NodeIndex) -> impl Iterator<Item = Vec<Step>> + '_ {
        let ends = self.places.get(&target).map(|&place| self.found[place].1.as_slice());
        ends.unwrap_or_default().iter().map(|&end| self.path(end))
    }

    /// Returns the steps from the start that end with an edge.
    fn path(&self, end: u64) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut position = end as usize;
        loop {
            let from = origin(self.graph, position);
            steps.push(Step { from, edge: self.graph.edge(position) });
            if from == self.start {
                break;
            }
            position = self.reached_by[from.index()] as usize;
        }
        steps.reverse();
        steps
    }
}

/// Returns the node from which the edge at a position comes. Takes O(log nodes).
fn origin(graph: &Graph, position: usize) -> NodeIndex {
    let (mut low, mut high) = (0, graph.node_count() as u32);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if graph.edge_range(NodeIndex(middle)).start <= position {
            low = middle;
        } else {
            high = middle;
        }
    }
    NodeIndex(low)
}

/// Returns the nodes that hold a node directly, with their edges, in the order of the source.
///
/// Takes O(edges) time. At most `holders_max` are returned, with the number of all edges.
pub fn holders(graph: &Graph, node: NodeIndex, holders_max: usize) -> (Vec<Step>, usize) {
    let (mut steps, mut count) = (Vec::new(), 0);
    for from in graph.nodes() {
        for (position, &target) in graph.edge_range(from).zip(graph.targets(from)) {
            if target == node {
                count += 1;
                if steps.len() < holders_max {
                    steps.push(Step { from, edge: graph.edge(position) });
                }
            }
        }
    }
    (steps, count)
}
