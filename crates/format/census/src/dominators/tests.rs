mod others;

use std::hint::black_box;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::graph::{EdgeKind, Origin};
use crate::random::{edge_lists, graph_from, graph_of, heap, plain_graph};

/// The edges that retain, by the definition, and those that are added to the root's.
struct Edges(Vec<(NodeIndex, NodeIndex)>);

impl Edges {
    fn of(graph: &Graph) -> Edges {
        let all = || graph.nodes().flat_map(|from| graph.edges(from).map(move |edge| (from, edge)));
        let (root, is_v8) = (graph.root(), graph.about().origin == Origin::V8);
        // The nodes that can be reached from global objects, in V8.
        let mut is_program = vec![false; graph.node_count()];
        for (_, edge) in all().filter(|(from, edge)| *from == root && edge.kind == EdgeKind::Shortcut) {
            is_program[edge.target.index()] = is_v8;
        }
        for _ in graph.nodes() {
            for (from, edge) in all() {
                is_program[edge.target.index()] |= is_program[from.index()] && edge.kind != EdgeKind::Weak;
            }
        }
        let is_allowed =
            |from: NodeIndex, to: NodeIndex| from == root || is_program[from.index()] || !is_program[to.index()];
        let retains = |kind: EdgeKind, from: NodeIndex| match kind {
            EdgeKind::Weak => false,
            EdgeKind::Shortcut => from == root,
            _ => true,
        };
        let retaining = all().filter(|&(from, edge)| retains(edge.kind, from) && is_allowed(from, edge.target));
        Edges(retaining.map(|(from, edge)| (from, edge.target)).collect())
    }

    /// Returns the nodes that can be reached from the root without one node.
    fn reached(&self, graph: &Graph, without: Option<NodeIndex>) -> Vec<bool> {
        let mut is_reached = vec![false; graph.node_count()];
        is_reached[0] = without != Some(graph.root());
        for _ in graph.nodes() {
            for &(from, to) in &self.0 {
                is_reached[to.index()] |= is_reached[from.index()] && Some(to) != without;
            }
        }
        is_reached
    }
}

/// Compares with the definition: a node dominates another that cannot be reached without it.
fn check(graph: &Graph, dominators: &Dominators, edges: &Edges) {
    let whole = edges.reached(graph, None);
    let count = graph.node_count();
    let mut dominated = vec![vec![false; count]; count];
    for above in graph.nodes() {
        let rest = edges.reached(graph, Some(above));
        for below in graph.nodes() {
            dominated[above.index()][below.index()] = whole[below.index()] && !rest[below.index()];
        }
    }
    for node in graph.nodes() {
        let at = node.index();
        assert_eq!(dominators.contains(node), whole[at]);
        if !whole[at] {
            assert_eq!((dominators.retained(node), dominators.dominator(node)), (None, None));
            continue;
        }
        let retained: u64 = graph.nodes().filter(|it| dominated[at][it.index()]).map(|it| graph.size(it)).sum();
        assert_eq!(dominators.retained(node), Some(retained), "{node:?}");
        // The immediate dominator is the one that all others dominate.
        let above = |it: &NodeIndex| *it != node && dominated[it.index()][at];
        let immediate = graph
            .nodes()
            .filter(above)
            .max_by_key(|it| graph.nodes().filter(|other| dominated[other.index()][it.index()]).count());
        assert_eq!(dominators.dominator(node), immediate, "{node:?}");
        for other in graph.nodes() {
            assert_eq!(dominators.dominates(node, other), dominated[at][other.index()], "{node:?} {other:?}");
        }
    }
    check_tree(graph, dominators);
}

fn check_tree(graph: &Graph, dominators: &Dominators) {
    let mut seen = 0;
    for node in graph.nodes().filter(|&it| dominators.contains(it)) {
        let children = dominators.children(node);
        seen += children.len();
        for pair in children.windows(2) {
            assert!(dominators.retained(pair[0]) >= dominators.retained(pair[1]));
        }
        for child in children {
            assert_eq!(dominators.dominator(child), Some(node));
            assert_eq!(*dominators.chain(child).iter().rev().nth(1).unwrap(), node);
        }
    }
    assert_eq!(seen + 1, dominators.count());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn dominators_are_as_defined(edges in edge_lists()) {
        let graph = graph_of(&edges);
        check(&graph, &Dominators::of(&graph), &Edges::of(&graph));
    }

    #[test]
    fn in_v8_the_root_holds_what_it_does_not_reach(edges in edge_lists()) {
        let graph = graph_from(Origin::V8, &edges);
        let dominators = Dominators::of(&graph);
        prop_assert_eq!(dominators.count(), graph.node_count());
        let total: u64 = graph.nodes().map(|it| graph.size(it)).sum();
        prop_assert_eq!(dominators.retained(graph.root()), Some(total));
        let mut edges = Edges::of(&graph);
        let whole = edges.reached(&graph, None);
        let is_entered = |it: NodeIndex| edges.0.iter().any(|&(from, to)| to == it && from != it);
        let held = graph.nodes().filter(|&it| !whole[it.index()] && !is_entered(it));
        let held: Vec<_> = held.map(|it| (graph.root(), it)).collect();
        edges.0.extend(held);
        // The node of the lowest index of a cycle is held.
        while let Some(missed) = edges.reached(&graph, None).iter().position(|it| !it) {
            edges.0.push((graph.root(), NodeIndex(missed as u32)));
        }
        check(&graph, &dominators, &edges);
    }

    #[test]
    fn a_set_retains_what_no_path_without_it_reaches_at_least(
        edges in edge_lists(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let graph = graph_of(&edges);
        let dominators = Dominators::with(&graph, Unreached::Excluded);
        let set: Vec<NodeIndex> = picks.iter().map(|it| NodeIndex(it.index(graph.node_count()) as u32)).collect();
        let is_below = |node: NodeIndex| set.iter().any(|&it| dominators.dominates(it, node));
        let expected: u64 = graph.nodes().filter(|&it| is_below(it)).map(|it| graph.size(it)).sum();
        prop_assert_eq!(dominators.retained_together(&set), expected);
    }
}

#[test]
fn textbook_graphs() {
    // A diamond: the root dominates the node at which both ways meet.
    let graph = plain_graph(&[&[1, 2], &[3], &[3], &[]]);
    let dominators = Dominators::of(&graph);
    assert_eq!(dominators.dominator(NodeIndex(3)), Some(NodeIndex(0)));
    assert_eq!(dominators.retained(NodeIndex(0)), Some(15));
    assert_eq!(dominators.children(NodeIndex(0)), [NodeIndex(3), NodeIndex(2), NodeIndex(1)]);
    // The graph of Lengauer and Tarjan, 1979, figure 1: R A B C D E F G H I J K L.
    let edges: [&[u32]; 13] =
        [&[1, 2, 3], &[4], &[1, 4, 5], &[6, 7], &[12], &[8], &[9], &[9, 10], &[5, 11], &[11], &[9], &[0, 9], &[8]];
    let dominators = Dominators::of(&plain_graph(&edges));
    let parents: Vec<u32> = (1..13).map(|it| dominators.dominator(NodeIndex(it)).unwrap().0).collect();
    assert_eq!(parents, [0, 0, 0, 0, 0, 3, 3, 0, 0, 7, 0, 4]);
}

#[test]
fn only_edges_that_retain_count() {
    let [plain, weak, shortcut] = [EdgeKind::Plain, EdgeKind::Weak, EdgeKind::Shortcut];
    // 1 is held by the root's shortcut; 2 by 1 only weakly; 3 by 2 only; 4 by a shortcut of 1 only.
    let edges = vec![vec![(1, shortcut)], vec![(2, weak), (4, shortcut)], vec![(3, plain)], vec![], vec![]];
    let graph = graph_of(&edges);
    let excluded = Dominators::with(&graph, Unreached::Excluded);
    assert_eq!(excluded.count(), 2);
    assert_eq!(excluded.retained(NodeIndex(0)), Some(0b11));
    let held = Dominators::with(&graph, Unreached::HeldByRoot);
    assert_eq!(held.retained(NodeIndex(0)), Some(0b11111));
    assert_eq!(held.retained(NodeIndex(2)), Some(0b1100));
    assert_eq!(held.dominator(NodeIndex(3)), Some(NodeIndex(2)));
    assert_eq!(held.dominator(NodeIndex(4)), Some(NodeIndex(0)));
}

#[test]
fn the_engine_does_not_retain_nodes_of_the_program() {
    let [plain, shortcut, weak] = [EdgeKind::Plain, EdgeKind::Shortcut, EdgeKind::Weak];
    // The global object 1 holds 3, as does the engine's node 2. Nothing of the program but a weak
    // edge leads to 4, so that it is the engine's.
    let edges = vec![
        vec![(1, shortcut), (2, plain)],
        vec![(3, plain), (4, weak)],
        vec![(1, plain), (3, plain), (4, plain)],
        vec![],
        vec![],
    ];
    let dominator =
        |origin, node| Dominators::of(&graph_from(origin, &edges)).dominator(NodeIndex(node)).map(|it| it.0);
    assert_eq!(dominator(Origin::V8, 3), Some(1));
    assert_eq!(dominator(Origin::Other, 3), Some(0));
    assert_eq!(dominator(Origin::V8, 4), Some(2));
}

/// A long list whose last node holds everything that the root holds: the worst case of the search
/// for dominators without skip pointers, which would take 10^10 steps here.
#[test]
fn a_long_list_takes_no_quadratic_time() {
    let count = 100_000_u32;
    let mut edges: Vec<Vec<(u32, EdgeKind)>> = (1..count).map(|it| vec![(it, EdgeKind::Plain)]).collect();
    let leaves: Vec<_> = (count..2 * count).map(|it| (it, EdgeKind::Plain)).collect();
    edges[0].extend(leaves.clone());
    edges.push(leaves);
    edges.extend((0..count).map(|_| Vec::new()));
    // The root's first edge is that of the list, so that the walk reaches the leaves from its end.
    let graph = graph_of(&edges);
    let started = Instant::now();
    let dominators = Dominators::of(&graph);
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    assert_eq!(dominators.dominator(NodeIndex(count)), Some(NodeIndex(0)));
    assert_eq!(dominators.dominator(NodeIndex(count - 1)), Some(NodeIndex(count - 2)));
}

#[test]
fn other_algorithms_agree_on_larger_graphs() {
    for seed in 0..4 {
        let flow = Flow::of(&heap(20_000, seed), Unreached::Excluded);
        let expected = semi_nca::immediate_dominators(&flow);
        assert_eq!(others::lengauer_tarjan(&flow), expected);
        assert_eq!(others::cooper_harvey_kennedy(&flow), expected);
    }
}

/// Prints the times of the algorithms, in turns, and the best of each.
#[test]
#[ignore = "a measurement; run it with --release --nocapture"]
fn algorithms_compared() {
    type Algorithm = fn(&Flow) -> Vec<u32>;
    let algorithms: [(&str, Algorithm); 4] = [
        ("Semi-NCA with skip pointers", semi_nca::immediate_dominators),
        ("Semi-NCA", others::semi_nca),
        ("Lengauer-Tarjan", others::lengauer_tarjan),
        ("Cooper-Harvey-Kennedy", others::cooper_harvey_kennedy),
    ];
    for count in [130_000, 362_566, 3_000_000] {
        let graph = heap(count, 1);
        let mut best = [Duration::MAX; 5];
        for _ in 0..7 {
            let started = Instant::now();
            let flow = Flow::of(&graph, Unreached::Excluded);
            best[4] = best[4].min(started.elapsed());
            for (at, (_, algorithm)) in algorithms.iter().enumerate() {
                let started = Instant::now();
                black_box(algorithm(&flow));
                best[at] = best[at].min(started.elapsed());
            }
        }
        println!("{count} nodes, {} edges: the walk takes {:?}", graph.edge_count(), best[4]);
        for (at, (name, _)) in algorithms.iter().enumerate() {
            println!("    {name}: {:?}", best[at]);
        }
    }
}
