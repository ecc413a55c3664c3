//! Cuts small subtrees off a call tree.

use crate::columns::ColumnTree;

/// Returns the tree without subtrees that have less than a share of the whole, from 0 to 1, in the
/// first metric. Their amounts become their parents' own, so that all amounts still add up.
///
/// Takes time and memory in proportion to the number of nodes.
pub(super) fn pruned(tree: &ColumnTree, share: f64) -> ColumnTree {
    let Some(first) = tree.metrics.first() else { return tree.clone() };
    let parents = parents(&tree.depth);
    let mut totals = first.own.clone();
    for node in (1..totals.len()).rev() {
        totals[parents[node]] += totals[node];
    }
    let least = share * first.total as f64;
    // For each node the one that has its amount now: itself, or the nearest one above that is kept.
    let mut holders: Vec<usize> = Vec::with_capacity(totals.len());
    let (mut cut_nodes, mut cut) = tree.cut;
    for (node, &parent) in parents.iter().enumerate() {
        let is_kept = node == 0 || holders[parent] == parent && totals[node] as f64 >= least;
        if !is_kept && holders[parent] == parent {
            cut_nodes += 1;
            cut += totals[node];
        }
        holders.push(if is_kept { node } else { holders[parent] });
    }
    let kept = || holders.iter().enumerate().filter(|&(node, &holder)| node == holder).map(|(node, _)| node);
    let mut names = vec![tree.names.first().cloned().unwrap_or_default()];
    let mut new_names = vec![None; tree.names.len()];
    if let Some(root) = new_names.first_mut() {
        *root = Some(0);
    }
    let name = kept().map(|node| {
        let old = tree.name[node] as usize;
        *new_names[old].get_or_insert_with(|| {
            names.push(tree.names[old].clone());
            (names.len() - 1) as u32
        })
    });
    let name = name.collect();
    let metrics = tree.metrics.iter().map(|metric| {
        let mut own = metric.own.clone();
        for (node, &holder) in holders.iter().enumerate().filter(|&(node, &holder)| node != holder) {
            own[holder] += metric.own[node];
        }
        let own = kept().map(|node| own[node]).collect();
        crate::columns::MetricColumn { own, ..*metric }
    });
    let metrics = metrics.collect();
    let depth = kept().map(|node| tree.depth[node]).collect();
    ColumnTree { unit: tree.unit, depth, name, names, metrics, cut: (cut_nodes, cut) }
}

/// Returns the parent of each node; the root is its own.
fn parents(depth: &[u32]) -> Vec<usize> {
    let mut path = Vec::new();
    let parent = |(node, &depth): (usize, &u32)| {
        path.truncate(depth as usize);
        let parent = path.last().copied().unwrap_or(node);
        path.push(node);
        parent
    };
    depth.iter().enumerate().map(parent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{ColumnFrame, MetricColumn};

    /// Each node as its name with its own amounts, in preorder.
    fn shown(tree: &ColumnTree) -> Vec<(u32, &str, Vec<u64>)> {
        let node = |node: usize| {
            let own = tree.metrics.iter().map(|metric| metric.own[node]).collect();
            (tree.depth[node], &*tree.names[tree.name[node] as usize].function, own)
        };
        (0..tree.depth.len()).map(node).collect()
    }

    #[test]
    fn small_subtrees_count_for_their_parents() {
        let frame = |function: &str| ColumnFrame { function: function.into(), ..ColumnFrame::default() };
        let metric = |name, own: Vec<u64>| MetricColumn { name, total: own.iter().sum(), own };
        let tree = ColumnTree {
            unit: "bytes",
            depth: vec![0, 1, 2, 3, 2, 1, 2],
            name: vec![0, 1, 2, 3, 4, 4, 5],
            names: ["", "a", "b", "c", "d", "e"].map(frame).into(),
            metrics: vec![metric("bytes", vec![0, 10, 2, 3, 60, 0, 25]), metric("blocks", vec![0, 1, 1, 1, 1, 1, 1])],
            cut: (1, 4),
        };
        assert_eq!(pruned(&tree, 0.0), tree);
        let cut = pruned(&tree, 0.06);
        let expected = [
            (0, "", vec![0, 0]),
            (1, "a", vec![15, 3]),
            (2, "d", vec![60, 1]),
            (1, "d", vec![0, 1]),
            (2, "e", vec![25, 1]),
        ];
        assert_eq!(shown(&cut), expected);
        // One subtree of two nodes, beside what was cut before.
        assert_eq!((cut.cut, cut.names.len()), ((2, 9), 4));
        assert_eq!(cut.metrics.iter().map(|metric| metric.total).collect::<Vec<_>>(), [100, 6]);
        let root = pruned(&tree, 1.1);
        assert_eq!(shown(&root), [(0, "", vec![100, 6])]);
    }
}
