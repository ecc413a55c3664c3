//! Other algorithms for immediate dominators: for comparison of results and of times.

use super::super::flow::Flow;

/// A forest for path compression, as in the textbook.
struct Forest {
    ancestors: Vec<u32>,
    labels: Vec<u32>,
    semi: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Forest {
    fn new(flow: &Flow) -> Forest {
        let count = flow.parents.len() as u32;
        Forest { ancestors: vec![NONE; count as usize], labels: (0..count).collect(), semi: flow.least.clone() }
    }

    /// Returns the node with the least semidominator on the path to the root of its tree.
    fn eval(&mut self, node: u32) -> u32 {
        if self.ancestors[node as usize] == NONE {
            return node;
        }
        let mut path = vec![node];
        while self.ancestors[self.ancestors[path[path.len() - 1] as usize] as usize] != NONE {
            path.push(self.ancestors[path[path.len() - 1] as usize]);
        }
        let mut above = path.pop().unwrap();
        while let Some(below) = path.pop() {
            let (label, other) = (self.labels[below as usize], self.labels[above as usize]);
            if self.semi[other as usize] < self.semi[label as usize] {
                self.labels[below as usize] = other;
            }
            self.ancestors[below as usize] = self.ancestors[above as usize];
            above = below;
        }
        self.labels[node as usize]
    }

    fn semidominate(&mut self, flow: &Flow, node: u32) {
        for at in flow.starts[node as usize]..flow.starts[node as usize + 1] {
            let best = self.eval(flow.sources[at as usize]);
            self.semi[node as usize] = self.semi[node as usize].min(self.semi[best as usize]);
        }
    }
}

/// The simple version of Lengauer and Tarjan's algorithm, with buckets.
pub(super) fn lengauer_tarjan(flow: &Flow) -> Vec<u32> {
    let count = flow.parents.len();
    let mut forest = Forest::new(flow);
    let mut parents = vec![0; count];
    let (mut first, mut next) = (vec![NONE; count], vec![NONE; count]);
    for node in (1..count as u32).rev() {
        forest.semidominate(flow, node);
        let semi = forest.semi[node as usize] as usize;
        next[node as usize] = std::mem::replace(&mut first[semi], node);
        let parent = flow.parents[node as usize];
        forest.ancestors[node as usize] = parent;
        let mut waiting = std::mem::replace(&mut first[parent as usize], NONE);
        while waiting != NONE {
            let best = forest.eval(waiting);
            let is_less = forest.semi[best as usize] < forest.semi[waiting as usize];
            parents[waiting as usize] = if is_less { best } else { parent };
            waiting = next[waiting as usize];
        }
    }
    for node in 1..count {
        if parents[node] != forest.semi[node] {
            parents[node] = parents[parents[node] as usize];
        }
    }
    parents
}

/// Semi-NCA without skip pointers.
pub(super) fn semi_nca(flow: &Flow) -> Vec<u32> {
    let semidominators = super::super::semi_nca::semidominators(flow);
    let mut parents = flow.parents.clone();
    for node in 1..parents.len() {
        while parents[node] > semidominators[node] {
            parents[node] = parents[parents[node] as usize];
        }
    }
    parents
}

/// The iterative algorithm of Cooper, Harvey and Kennedy, which Firefox uses. It visits nodes in
/// the reverse postorder of a depth-first walk.
pub(super) fn cooper_harvey_kennedy(flow: &Flow) -> Vec<u32> {
    let count = flow.parents.len();
    let postorder = postorder(flow);
    let mut order: Vec<u32> = (0..count as u32).collect();
    order.sort_unstable_by_key(|&it| std::cmp::Reverse(postorder[it as usize]));
    let mut parents = vec![NONE; count];
    parents[0] = 0;
    let mut is_changed = true;
    while is_changed {
        is_changed = false;
        for &node in &order[1..] {
            let mut best = NONE;
            let sources = flow.starts[node as usize] as usize..flow.starts[node as usize + 1] as usize;
            // Among the edges from lesser positions, the least and the parent have the same meet as
            // all.
            let lesser = [flow.parents[node as usize], flow.least[node as usize]];
            for &source in flow.sources[sources].iter().chain(&lesser) {
                if parents[source as usize] == NONE {
                    continue;
                }
                best = if best == NONE { source } else { meet(&parents, &postorder, best, source) };
            }
            is_changed |= std::mem::replace(&mut parents[node as usize], best) != best;
        }
    }
    parents
}

fn meet(parents: &[u32], postorder: &[u32], mut a: u32, mut b: u32) -> u32 {
    while a != b {
        while postorder[a as usize] < postorder[b as usize] {
            a = parents[a as usize];
        }
        while postorder[b as usize] < postorder[a as usize] {
            b = parents[b as usize];
        }
    }
    a
}

/// Returns the postorder of the spanning tree: a node comes after its descendants and everything
/// before it in preorder that is not its ancestor.
fn postorder(flow: &Flow) -> Vec<u32> {
    let count = flow.parents.len();
    let mut sizes = vec![1_u32; count];
    for node in (1..count).rev() {
        sizes[flow.parents[node] as usize] += sizes[node];
    }
    let mut depths = vec![0_u32; count];
    let mut postorder = vec![0; count];
    for node in 0..count {
        if node > 0 {
            depths[node] = depths[flow.parents[node] as usize] + 1;
        }
        // Preorder and postorder differ by the descendants, which come before, and the ancestors,
        // which come after.
        postorder[node] = node as u32 + sizes[node] - 1 - depths[node];
    }
    postorder
}
