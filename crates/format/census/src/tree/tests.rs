use proptest::prelude::*;

use super::*;
use crate::breakdown::{Breakdown, By};
use crate::graph::{EdgeData, GraphBuilder, NodeData, NodeIndex};
use crate::random::graphs;
use crate::result::Figures;

fn count(count: i64, bytes: i64) -> CensusValue {
    CensusValue::Count(Figures { count: Some(count), bytes: Some(bytes), label: None })
}

fn groups(groups: Vec<(&str, CensusValue)>, rest: Option<(&'static str, CensusValue)>) -> CensusValue {
    let groups = groups.into_iter().map(|(key, value)| (Box::from(key), value)).collect();
    CensusValue::Groups { groups, rest: rest.map(|(key, value)| (key, Box::new(value))) }
}

/// Draws the tree: each row is indented by its depth, with its total bytes and count.
fn drawn(tree: &CensusTree<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut pending = vec![(0, 0)];
    while let Some((index, depth)) = pending.pop() {
        let row = &tree.rows[index];
        let label = tree.label(&row.name);
        lines.push(format!("{}{label} {} {}", " ".repeat(depth), row.total_bytes, row.total_count));
        pending.extend(row.children.iter().rev().map(|&child| (child, depth + 1)));
    }
    lines
}

fn example() -> CensusValue {
    let file = |small, large| groups(vec![("Array", count(1, small)), ("Date", count(2, large))], None);
    groups(vec![("a.js", file(10, 20)), ("b.js", file(1, 50))], Some(("noFilename", count(1, 7))))
}

fn tree<'a>(value: &CensusValue, frames: &'a ReportFrames) -> CensusTree<'a> {
    CensusTree::of_value(value, frames, RowOrder::Total)
}

#[test]
fn rows_are_sorted_by_their_totals() {
    let frames = ReportFrames::default();
    let tree = tree(&example(), &frames);
    let expected = [
        "all 88 7",
        " b.js 51 3",
        "  Date 50 2",
        "  Array 1 1",
        " a.js 30 3",
        "  Date 20 2",
        "  Array 10 1",
        " noFilename 7 1",
    ];
    assert_eq!(drawn(&tree), expected);
    assert_eq!(tree.root().leaves, [] as [usize; 0]);
    assert_eq!(tree.leaves_below(0), [0, 1, 2, 3, 4]);
}

#[test]
fn an_inverted_tree_has_the_innermost_groups_on_top() {
    let frames = ReportFrames::default();
    let inverted = tree(&example(), &frames).invert();
    let expected = [
        "all 88 7",
        " Date 70 4",
        "  b.js 50 2",
        "  a.js 20 2",
        " Array 11 2",
        "  a.js 10 1",
        "  b.js 1 1",
        " noFilename 7 1",
    ];
    // Rows of equal own figures, which are 0 here, are in the order of their totals.
    assert_eq!(drawn(&inverted), expected);
    let date = inverted.root().children[0];
    assert_eq!(inverted.leaves_below(date), [1, 3]);
}

#[test]
fn a_filter_keeps_what_is_below_and_above() {
    let frames = ReportFrames::default();
    let tree = tree(&example(), &frames);
    assert_eq!(drawn(&tree.filter("b.js")), ["all 88 7", " b.js 51 3", "  Date 50 2", "  Array 1 1"]);
    assert_eq!(drawn(&tree.filter("Arr")), ["all 88 7", " b.js 51 3", "  Array 1 1", " a.js 30 3", "  Array 10 1"]);
    assert_eq!(drawn(&tree.filter("arr")), ["all 88 7"]);
    assert_eq!(drawn(&tree.filter("")), drawn(&tree));
    assert_eq!((tree.leaves_with("b.js"), tree.leaves_with("Arr")), (vec![2, 3], vec![0, 2]));
    // The root's name is none of the census.
    assert_eq!((tree.leaves_with("all"), tree.leaves_with("")), (vec![], vec![0, 1, 2, 3, 4]));
}

#[test]
fn rows_know_which_figures_they_have() {
    let frames = ReportFrames::default();
    let bytes_alone = CensusValue::Count(Figures { count: None, bytes: Some(5), label: None });
    let value = groups(vec![("a", CensusValue::Bucket(vec![NodeId(7)])), ("b", bytes_alone)], None);
    let tree = tree(&value, &frames);
    for tree in [&tree, &tree.invert(), &tree.filter("")] {
        let has: Vec<_> = tree.rows().iter().map(|row| (tree.label(&row.name), row.has_bytes, row.has_count)).collect();
        let expected = [("all", true, true), ("a", false, true), ("b", true, false)];
        assert_eq!(has, expected.map(|(label, bytes, count)| (label.to_owned(), bytes, count)));
    }
}

#[test]
fn each_breakdown_of_an_array_counts_the_same_nodes() {
    let frames = ReportFrames::default();
    let value =
        CensusValue::All(vec![CensusValue::Bucket(vec![]), count(3, 9), groups(vec![("a", count(3, 9))], None)]);
    assert_eq!(drawn(&tree(&value, &frames)), ["all 9 3", " [1] 9 3", " [2] 9 3", "  a 9 3", " [0] 0 0"]);
}

#[test]
fn changes_are_sorted_without_their_sign() {
    let frames = ReportFrames::default();
    let value = groups(vec![("a", count(1, 5)), ("b", count(-1, -9)), ("c", count(0, 7))], None);
    let tree = CensusTree::of_value(&value, &frames, RowOrder::Change);
    assert_eq!(drawn(&tree), ["all 3 0", " b -9 -1", " c 7 0", " a 5 1"]);
}

#[test]
fn stacks_share_the_rows_of_their_callers() {
    let mut builder = GraphBuilder::new();
    let names = ["main", "a", "b", "T"].map(|it| builder.intern(it).unwrap());
    let frames = [(None, 0), (Some(0), 1), (Some(1), 2), (Some(0), 2)];
    for (id, (parent, function)) in frames.into_iter().enumerate() {
        builder.add_frame(crate::random::frame(id as u64, parent, names[function])).unwrap();
    }
    // The nodes' stacks: main, main a b, main a, main b, none.
    let stacks = [None, Some(0), Some(2), Some(1), Some(3), None];
    for (index, stack) in stacks.into_iter().enumerate() {
        let stack = stack.map(|it| crate::graph::AllocationStack::At(crate::graph::FrameIndex(it)));
        let data = NodeData::new(NodeId(index as u64 + 1), names[3], Some(1 << index));
        builder.add_node(NodeData { stack, ..data }).unwrap();
        if index == 0 {
            (1..6).for_each(|target| builder.add_edge(NodeIndex(target), EdgeData::default()).unwrap());
        }
    }
    let graph = builder.finish().unwrap();
    let census = Census::take(&graph, &Breakdown::allocation_stack(Breakdown::count())).unwrap();
    let tree = CensusTree::of(&census);
    let expected = [
        "all 62 5",
        " (no stack) 32 1",
        " main (main:1:2) 30 4",
        "  b (b:1:2) 16 1",
        "  a (a:1:2) 12 2",
        "   b (b:1:2) 4 1",
    ];
    assert_eq!(drawn(&tree), expected);
    let main = &tree.rows[tree.root().children[1]];
    assert_eq!((main.bytes, main.count), (2, 1));
    let a = main.children[1];
    let options = CensusOptions::default();
    assert_eq!(individuals(&graph, &census, options, &tree.rows[a].leaves), Ok(vec![NodeId(4)]));
    let mut below = individuals(&graph, &census, options, &tree.leaves_below(a)).unwrap();
    below.sort();
    assert_eq!(below, [NodeId(3), NodeId(4)]);
    // Frames that differ only in their callers are one row of the inverted tree.
    let expected = [
        "all 62 5",
        " (no stack) 32 1",
        " b (b:1:2) 20 2",
        "  main (main:1:2) 16 1",
        "  a (a:1:2) 4 1",
        "   main (main:1:2) 4 1",
        " a (a:1:2) 8 1",
        "  main (main:1:2) 8 1",
        " main (main:1:2) 2 1",
    ];
    assert_eq!(drawn(&tree.invert()), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn figures_add_up(
        graph in graphs(),
        words in prop::sample::subsequence(By::ALL[2..].to_vec(), 1..4).prop_shuffle(),
    ) {
        let breakdown = Breakdown::nested(&words).unwrap();
        let census = Census::take(&graph, &breakdown).unwrap();
        let tree = CensusTree::of(&census);
        for tree in [&tree, &tree.invert(), &tree.filter("a")] {
            prop_assert_eq!(tree.root().total_count as u64, census.count);
            for (index, row) in tree.rows().iter().enumerate() {
                prop_assert!(row.parent.is_none_or(|parent| parent < index));
                prop_assert!(row.children.iter().all(|&child| tree.rows()[child].parent == Some(index)));
            }
        }
        let own: i64 = tree.rows().iter().map(|row| row.bytes).sum();
        prop_assert_eq!(tree.root().total_bytes, own);
        let inverted = tree.invert();
        let own: i64 = inverted.root().children.iter().map(|&row| inverted.rows()[row].bytes).sum();
        prop_assert_eq!(tree.root().total_bytes, own);
        // Each row's individuals are as many as it counts.
        for row in tree.rows() {
            let found = individuals(&graph, &census, CensusOptions::default(), &row.leaves).unwrap();
            prop_assert_eq!(found.len() as i64, row.count);
        }
    }
}
