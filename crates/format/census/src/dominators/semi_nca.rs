//! Immediate dominators by the Semi-NCA algorithm, with skip pointers.
//!
//! Semi-NCA (Georgiadis, 2005) computes semidominators as Lengauer and Tarjan do. The immediate
//! dominator of a node is then the nearest ancestor of its parent, in the dominator tree so far,
//! whose position is at most the semidominator's. The plain algorithm looks for it step by step,
//! which is quadratic for a long list whose last node holds what the root holds, too. Skip pointers
//! (Myers, 1983) bound the search by O(log nodes).
//!
//! Best times of 7 rounds, on a generated heap of 362,566 nodes and 1,116,249 edges, without the
//! walk (`cargo test --release -p heapledger-census algorithms_compared -- --ignored --nocapture`,
//! on two shared processors). They are of the first design of the walk that [`flow`](super::flow)
//! compares; searches were not fetched early yet.
//!
//! | algorithm | time |
//! |---|---|
//! | Semi-NCA with skip pointers | 17 ms |
//! | Semi-NCA | 24 ms |
//! | Lengauer-Tarjan, simple | 93 ms |
//! | Cooper-Harvey-Kennedy | 103 ms |

use super::flow::Flow;

/// A position in the forest of nodes whose semidominators are known.
#[derive(Clone, Copy)]
struct Link {
    /// An ancestor in the spanning tree, nearer to the root after each search.
    ancestor: u32,
    /// The least semidominator on the path to the ancestor, which is not part of it.
    least: u32,
}

/// A node of the dominator tree.
#[derive(Clone, Copy)]
struct Dominated {
    parent: u32,
    /// An ancestor further up.
    skip: u32,
    depth: u32,
}

/// Searches whose first link is on its way to the cache before it is needed.
const AHEAD: usize = 16;

/// Returns the position of each position's immediate dominator; that of the root is its own.
pub(super) fn immediate_dominators(flow: &Flow) -> Vec<u32> {
    let semidominators = semidominators(flow);
    let mut tree: Vec<Dominated> = Vec::with_capacity(semidominators.len());
    tree.push(Dominated { parent: 0, skip: 0, depth: 0 });
    for (&limit, &parent) in semidominators.iter().zip(&flow.parents).skip(1) {
        let mut parent = parent;
        while parent > limit {
            let Dominated { parent: next, skip, .. } = tree[parent as usize];
            parent = if skip > limit { skip } else { next };
        }
        let above = tree[parent as usize];
        let further = tree[above.skip as usize];
        let is_even = above.depth - further.depth == further.depth - tree[further.skip as usize].depth;
        let skip = if is_even { further.skip } else { parent };
        tree.push(Dominated { parent, skip, depth: above.depth + 1 });
    }
    tree.into_iter().map(|node| node.parent).collect()
}

/// Returns the semidominator of each position.
pub(super) fn semidominators(flow: &Flow) -> Vec<u32> {
    let links = flow.parents.iter().zip(&flow.least);
    let mut links: Vec<Link> = links.map(|(&ancestor, &least)| Link { ancestor, least }).collect();
    // Searches replace `least` of the positions that they pass.
    let mut semidominators = flow.least.clone();
    let mut path = Vec::new();
    for position in (1..links.len()).rev() {
        let mut least = links[position].least;
        let sources = flow.starts[position] as usize..flow.starts[position + 1] as usize;
        // Backwards, so that all searches together go through the list from its end.
        for at in sources.rev() {
            if let Some(ahead) = at.checked_sub(AHEAD) {
                std::hint::black_box(links[flow.sources[ahead] as usize].ancestor);
            }
            least = least.min(search(&mut links, flow.sources[at], position as u32, &mut path));
        }
        links[position].least = least;
        semidominators[position] = least;
    }
    semidominators
}

/// Returns the least semidominator on the path of the spanning tree from `source` up to, without,
/// the first position that is not greater than `limit`. Shortens the path for later searches.
fn search(links: &mut [Link], source: u32, limit: u32, path: &mut Vec<u32>) -> u32 {
    let mut at = source;
    while links[at as usize].ancestor > limit {
        path.push(at);
        at = links[at as usize].ancestor;
    }
    let Link { ancestor, mut least } = links[at as usize];
    while let Some(below) = path.pop() {
        let link = &mut links[below as usize];
        link.least = link.least.min(least);
        link.ancestor = ancestor;
        least = link.least;
    }
    least
}
