use proptest::prelude::*;

use super::*;
use crate::graph::EdgeKind;
use crate::random::{graph_of, graphs, plain_graph};

fn question(targets: &[NodeIndex], paths_max: usize) -> PathOptions<'_> {
    PathOptions { start: NodeIndex(0), targets, paths_max, only_retained: false }
}

fn nodes(path: &[Step]) -> Vec<u32> {
    path.iter().map(|step| step.from.0).collect()
}

#[test]
fn each_of_the_first_edges_to_a_target_ends_a_path() {
    // Ways to 4: 0-1-4 twice (two edges), 0-2-4, 0-2-3-4.
    let graph = plain_graph(&[&[1, 2], &[4, 4], &[3, 4], &[4], &[]]);
    let target = [NodeIndex(4)];
    let found = ShortestPaths::find(&graph, question(&target, 3)).unwrap();
    let paths: Vec<_> = found.paths(target[0]).map(|it| nodes(&it)).collect();
    assert_eq!(paths, [vec![0, 1], vec![0, 1], vec![0, 2]]);
    let found = ShortestPaths::find(&graph, question(&target, 100)).unwrap();
    assert_eq!(found.paths(target[0]).last().map(|it| nodes(&it)), Some(vec![0, 2, 3]));
    assert_eq!(found.paths(NodeIndex(1)).count(), 0);
}

#[test]
fn a_target_may_be_unreachable_or_the_start() {
    let graph = plain_graph(&[&[1], &[0], &[1]]);
    let targets = [NodeIndex(2), NodeIndex(0), NodeIndex(2)];
    let found = ShortestPaths::find(&graph, question(&targets, 9)).unwrap();
    assert_eq!(found.targets().collect::<Vec<_>>(), [NodeIndex(2), NodeIndex(0)]);
    assert_eq!(found.paths(NodeIndex(2)).count(), 0);
    assert_eq!(found.paths(NodeIndex(0)).map(|it| nodes(&it)).collect::<Vec<_>>(), [vec![0, 1]]);
}

#[test]
fn edges_that_do_not_retain_can_be_left_out() {
    let [plain, weak] = [EdgeKind::Plain, EdgeKind::Weak];
    let graph = graph_of(&[vec![(2, weak), (1, plain)], vec![(2, plain)], vec![]]);
    let target = [NodeIndex(2)];
    let paths = |only_retained| {
        let options = PathOptions { only_retained, ..question(&target, 5) };
        ShortestPaths::find(&graph, options).unwrap().paths(target[0]).map(|it| nodes(&it)).collect::<Vec<_>>()
    };
    assert_eq!(paths(false), [vec![0], vec![0, 1]]);
    assert_eq!(paths(true), [vec![0, 1]]);
}

#[test]
fn a_question_without_an_answer_is_an_error() {
    let graph = plain_graph(&[&[]]);
    assert_eq!(ShortestPaths::find(&graph, question(&[], 1)).err(), Some(PathError::NoTargets));
    assert_eq!(ShortestPaths::find(&graph, question(&[NodeIndex(0)], 0)).err(), Some(PathError::NoPaths));
}

/// Returns the lengths of the shortest paths from the start, by repeated relaxation.
fn distances(graph: &Graph) -> Vec<Option<usize>> {
    let mut distances = vec![None; graph.node_count()];
    distances[0] = Some(0);
    for _ in graph.nodes() {
        for from in graph.nodes() {
            let Some(distance) = distances[from.index()] else { continue };
            for target in graph.targets(from) {
                let known: &mut Option<usize> = &mut distances[target.index()];
                *known = Some(known.unwrap_or(usize::MAX).min(distance + 1));
            }
        }
    }
    distances
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn paths_are_the_shortest(graph in graphs(), paths_max in 1_usize..6) {
        let targets: Vec<NodeIndex> = graph.nodes().collect();
        let found = ShortestPaths::find(&graph, question(&targets, paths_max)).unwrap();
        let distances = distances(&graph);
        for target in graph.nodes() {
            let paths: Vec<_> = found.paths(target).collect();
            // One for each edge from a node that is reached, in the order of the nodes' distances.
            let mut lengths: Vec<usize> = graph.nodes().filter_map(|from| Some((from, distances[from.index()]?)))
                .flat_map(|(from, distance)| graph.targets(from).iter().filter(|&&it| it == target).map(move |_| distance + 1))
                .collect();
            lengths.sort_unstable();
            lengths.truncate(paths_max);
            prop_assert_eq!(paths.iter().map(Vec::len).collect::<Vec<_>>(), lengths);
            for (index, path) in paths.iter().enumerate() {
                prop_assert_eq!(path[0].from, graph.root());
                prop_assert_eq!(path[path.len() - 1].edge.target, target);
                prop_assert!(path.windows(2).all(|pair| pair[0].edge.target == pair[1].from));
                prop_assert!(path.iter().all(|step| graph.edges(step.from).any(|edge| edge == step.edge)));
                // Two equal paths are two equal edges.
                let equal = paths[..index].iter().filter(|&it| it == path).count();
                let last = path[path.len() - 1];
                prop_assert!(equal < graph.edges(last.from).filter(|&edge| edge == last.edge).count());
            }
        }
    }

    #[test]
    fn holders_are_the_edges_that_lead_to_a_node(graph in graphs(), node in any::<prop::sample::Index>()) {
        let node = NodeIndex(node.index(graph.node_count()) as u32);
        let expected: Vec<Step> = graph.nodes()
            .flat_map(|from| graph.edges(from).map(move |edge| Step { from, edge }))
            .filter(|step| step.edge.target == node)
            .collect();
        prop_assert_eq!(holders(&graph, node, 2), (expected.iter().copied().take(2).collect(), expected.len()));
    }
}
