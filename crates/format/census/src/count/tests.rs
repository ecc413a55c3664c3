use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::time::Instant;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::breakdown::By;
use crate::graph::{AllocationStack, CoarseType, EdgeKind, Frame};
use crate::random::{graph_of, graphs, heap, plain_graph};
use crate::result::array_index;

fn value(graph: &Graph, breakdown: &Breakdown, options: CensusOptions<'_>) -> Value {
    serde_json::to_value(Census::take_with(graph, breakdown, options).unwrap()).unwrap()
}

fn ids(graph: &Graph, options: CensusOptions<'_>) -> Value {
    value(graph, &Breakdown::Bucket, options)
}

#[test]
fn the_root_counts_only_if_an_edge_leads_to_it() {
    let graph = plain_graph(&[&[1], &[2], &[]]);
    assert_eq!(ids(&graph, CensusOptions::default()), json!([2, 3]));
    let graph = plain_graph(&[&[1], &[2], &[0, 1]]);
    assert_eq!(ids(&graph, CensusOptions::default()), json!([2, 3, 1]));
    let graph = plain_graph(&[&[0]]);
    assert_eq!(ids(&graph, CensusOptions::default()), json!([1]));
    let graph = plain_graph(&[&[]]);
    assert_eq!(value(&graph, &Breakdown::count(), CensusOptions::default()), json!({"count": 0, "bytes": 0}));
}

#[test]
fn nodes_are_counted_in_breadth_first_order() {
    let graph = plain_graph(&[&[3, 1], &[5], &[], &[2, 4], &[], &[], &[0]]);
    assert_eq!(ids(&graph, CensusOptions::default()), json!([4, 2, 3, 5, 6]));
}

#[test]
fn filters_count_less() {
    let graph = plain_graph(&[&[1, 2], &[3], &[0], &[1]]);
    let options = CensusOptions::default();
    assert_eq!(ids(&graph, CensusOptions { roots: Some(&[NodeIndex(3)]), ..options }), json!([4, 2]));
    assert_eq!(ids(&graph, CensusOptions { roots: Some(&[]), ..options }), json!([]));
    assert_eq!(
        ids(&graph, CensusOptions { roots: Some(&[NodeIndex(2), NodeIndex(2)]), ..options }),
        json!([3, 1, 2, 4])
    );
    let earlier = plain_graph(&[&[1], &[]]);
    assert_eq!(ids(&graph, CensusOptions { newer_than: Some(&earlier), ..options }), json!([3, 4]));
    assert_eq!(ids(&graph, CensusOptions { size_min: 4, ..options }), json!([3, 4]));
    let weak = graph_of(&[vec![(1, EdgeKind::Weak), (2, EdgeKind::Plain)], vec![], vec![]]);
    assert_eq!(ids(&weak, options), json!([2, 3]));
    assert_eq!(ids(&weak, CensusOptions { only_retained: true, ..options }), json!([3]));
}

#[test]
fn a_word_within_itself_is_an_error() {
    let graph = plain_graph(&[&[]]);
    let breakdown = Breakdown::filename(Breakdown::filename(Breakdown::count()));
    assert!(matches!(Census::take(&graph, &breakdown), Err(BreakdownError::Nested(_))));
}

/// Counts by the definition, in the way of the documentation and not of the implementation: each
/// group is the list of its nodes, which is divided again.
fn expected(graph: &Graph, breakdown: &Breakdown, nodes: &[NodeIndex]) -> Value {
    let text = |name| graph.text(name).to_owned();
    let with =
        |keep: &dyn Fn(NodeIndex) -> bool| -> Vec<NodeIndex> { nodes.iter().copied().filter(|&it| keep(it)).collect() };
    let by_name =
        |property: &dyn Fn(NodeIndex) -> Option<String>, then: &Breakdown, rest: Option<(&str, &Breakdown)>| {
            let mut groups: BTreeMap<String, Vec<NodeIndex>> = BTreeMap::new();
            for &node in nodes {
                if let Some(key) = property(node) {
                    groups.entry(key).or_default().push(node);
                }
            }
            let mut object = serde_json::Map::new();
            for (key, inner) in groups {
                let key = if rest.is_some_and(|(rest, _)| rest == key) { format!("{key} (name)") } else { key };
                object.insert(key, expected(graph, then, &inner));
            }
            if let Some((key, rest)) = rest {
                object.insert(String::from(key), expected(graph, rest, &with(&|it| property(it).is_none())));
            }
            Value::Object(object)
        };
    match breakdown {
        Breakdown::Count { .. } => {
            json!({"count": nodes.len(), "bytes": nodes.iter().map(|&it| graph.size(it)).sum::<u64>()})
        }
        Breakdown::Bucket => nodes.iter().map(|&it| graph.id(it).0).collect(),
        Breakdown::CoarseType(types) => {
            let of = |coarse, then| expected(graph, then, &with(&|it| graph.coarse_type(it) == coarse));
            json!({
                "objects": of(CoarseType::Object, &types.objects),
                "scripts": of(CoarseType::Script, &types.scripts),
                "strings": of(CoarseType::String, &types.strings),
                "other": of(CoarseType::Other, &types.other),
                "domNode": of(CoarseType::DomNode, &types.dom_node),
            })
        }
        Breakdown::InternalType { then } => by_name(&|it| Some(text(graph.type_name(it))), then, None),
        Breakdown::ObjectClass { then, other } => {
            by_name(&|it| graph.class(it).map(text), then, Some(("other", other)))
        }
        Breakdown::Filename { then, no_filename } => {
            by_name(&|it| graph.script_file(it).map(text), then, Some(("noFilename", no_filename)))
        }
        Breakdown::DescriptiveType { then, other } => {
            let has_rest = nodes.iter().any(|&it| graph.descriptive_name(it).is_none());
            by_name(&|it| graph.descriptive_name(it).map(text), then, has_rest.then_some(("other", other)))
        }
        Breakdown::All(list) => list.iter().map(|inner| expected(graph, inner, nodes)).collect(),
        Breakdown::AllocationStack { then, no_stack } => {
            let key = |it| stack_text(graph, it);
            let mut groups: Vec<(Value, Vec<NodeIndex>)> = Vec::new();
            for &node in nodes {
                let Some(key) = key(node) else { continue };
                match groups.iter_mut().find(|it| it.0 == key) {
                    Some(group) => group.1.push(node),
                    None => groups.push((key, vec![node])),
                }
            }
            groups.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.iter().map(|&it| graph.id(it)).min()));
            let mut pairs: Vec<Value> =
                groups.into_iter().map(|(key, inner)| json!([key, expected(graph, then, &inner)])).collect();
            let rest = with(&|it| key(it).is_none());
            if !rest.is_empty() {
                pairs.push(json!(["noStack", expected(graph, no_stack, &rest)]));
            }
            Value::Array(pairs)
        }
    }
}

/// Returns the stack of a node: its text tells it apart from all others that are not equal.
fn stack_text(graph: &Graph, node: NodeIndex) -> Option<Value> {
    let text = |name| graph.text(name).to_owned();
    let frame = |frame: &Frame| {
        json!({
            "source": frame.source.map(text),
            "line": frame.line,
            "column": frame.column,
            "functionDisplayName": frame.function.map(text),
        })
    };
    match graph.stack(node)? {
        AllocationStack::At(innermost) => {
            Some(graph.frames().stack(innermost).map(|it| frame(graph.frame(it))).collect())
        }
        AllocationStack::Empty => Some(Value::Null),
    }
}

/// Returns the nodes in the order of the census, by the textbook's queue.
fn order(graph: &Graph) -> Vec<NodeIndex> {
    let mut order = Vec::new();
    let mut queue = VecDeque::from([graph.root()]);
    while let Some(node) = queue.pop_front() {
        for &target in graph.targets(node) {
            if !order.contains(&target) {
                order.push(target);
                queue.push_back(target);
            }
        }
    }
    order
}

/// Returns a strategy for breakdowns of up to three words, with an array and the default among
/// them.
fn breakdowns() -> impl Strategy<Value = Breakdown> {
    let words = prop::sample::subsequence(By::ALL[2..].to_vec(), 0..4).prop_shuffle();
    let last = prop_oneof![Just(By::Count), Just(By::Bucket)];
    let nested = (words, last).prop_map(|(mut words, last)| {
        words.push(last);
        Breakdown::nested(&words).unwrap()
    });
    let all = prop::collection::vec(nested.clone(), 0..4).prop_map(Breakdown::All);
    prop_oneof![4 => nested, 1 => all, 1 => Just(Breakdown::default())]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_census_is_as_defined(graph in graphs(), breakdown in breakdowns()) {
        let nodes = order(&graph);
        let census = Census::take(&graph, &breakdown).unwrap();
        prop_assert_eq!(census.count, nodes.len() as u64);
        let unknown = nodes.iter().filter(|&&it| !graph.is_size_known(it)).count();
        prop_assert_eq!(census.sizes_unknown, unknown as u64);
        prop_assert_eq!(serde_json::to_value(&census).unwrap(), expected(&graph, &breakdown, &nodes));
    }

    /// The order of keys is lost in `Value`, so that it is compared apart from them.
    #[test]
    fn keys_are_in_the_engines_order(graph in graphs(), by in prop::sample::select(By::ALL[2..].to_vec())) {
        let breakdown = Breakdown::nested(&[by, By::Bucket]).unwrap();
        let census = Census::take(&graph, &breakdown).unwrap();
        let crate::result::CensusValue::Groups { groups, .. } = &census.value else { return Ok(()) };
        if by == By::CoarseType {
            let keys: Vec<&str> = groups.iter().map(|(key, _)| &**key).collect();
            prop_assert_eq!(keys, ["objects", "scripts", "strings", "other", "domNode"]);
            return Ok(());
        }
        let rank = |(key, value): &(Box<str>, crate::result::CensusValue)| {
            let crate::result::CensusValue::Bucket(ids) = value else { panic!("{value:?}") };
            (array_index(key).map_or((1, 0), |it| (0, it)), std::cmp::Reverse(ids.iter().min().copied()))
        };
        for pair in groups.windows(2) {
            let [first, second] = [&pair[0], &pair[1]].map(rank);
            let is_ordered = if first.0.0 == 0 { first.0 < second.0 } else { second.0.0 == 1 && first.1 < second.1 };
            prop_assert!(is_ordered, "{:?}", groups);
        }
    }

    #[test]
    fn one_node_is_one_leaf(graph in graphs(), node in any::<prop::sample::Index>(), breakdown in breakdowns()) {
        let node = NodeIndex(node.index(graph.node_count()) as u32);
        let census = Census::of_nodes(&graph, &breakdown, &[node, node]).unwrap();
        let leaves = census.value.leaves().into_iter().filter(|it| !it.is_zero()).count();
        let expected = if let Breakdown::All(list) = &breakdown { list.len() } else { 1 };
        prop_assert_eq!(leaves, expected);
        prop_assert_eq!(serde_json::to_value(&census).unwrap(), self::expected(&graph, &breakdown, &[node]));
    }
}

/// Prints the best times of censuses of generated heaps. The first has the size of the example in
/// the documentation of `takeCensus`, which gives some 100 ms for it, in 2014.
#[test]
#[ignore = "a measurement; run it with --release --nocapture"]
fn censuses_measured() {
    for count in [130_000, 362_566, 3_000_000] {
        let graph = heap(count, 1);
        let by = |words: &[By]| Breakdown::nested(words).unwrap();
        let breakdowns =
            [by(&[By::Count]), Breakdown::default(), by(&[By::InternalType, By::Bucket]), by(&[By::AllocationStack])];
        println!("{count} nodes, {} edges", graph.edge_count());
        for breakdown in breakdowns {
            let times = (0..7).map(|_| {
                let started = Instant::now();
                black_box(Census::take(&graph, &breakdown).unwrap());
                started.elapsed()
            });
            println!("    {:?}: {}", times.min().unwrap(), serde_json::to_string(&breakdown).unwrap());
        }
    }
}
