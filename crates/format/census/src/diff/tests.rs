use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::breakdown::By;
use crate::graph::{EdgeData, Graph, GraphBuilder, NodeData, NodeId, NodeIndex};
use crate::random::graphs;
use crate::result::ValueKey;

/// A root with nodes of these classes and sizes.
fn classes(nodes: &[(&str, u64)]) -> Graph {
    let mut builder = GraphBuilder::new();
    let type_name = builder.intern("T").unwrap();
    builder.add_node(NodeData::new(NodeId(1), type_name, Some(0))).unwrap();
    for index in 0..nodes.len() {
        builder.add_edge(NodeIndex(index as u32 + 1), EdgeData::default()).unwrap();
    }
    for (index, &(class, size)) in nodes.iter().enumerate() {
        let class = Some(builder.intern(class).unwrap());
        let data = NodeData::new(NodeId(index as u64 + 2), type_name, Some(size));
        builder.add_node(NodeData { class, ..data }).unwrap();
    }
    builder.finish().unwrap()
}

fn json(difference: &CensusDifference) -> String {
    serde_json::to_string(&difference.value.in_json(&difference.frames)).unwrap()
}

#[test]
fn groups_of_one_census_only_are_negative_or_taken_over() {
    let breakdown = Breakdown::object_class(Breakdown::count());
    let first = Census::take(&classes(&[("a", 1), ("b", 10), ("b", 5)]), &breakdown).unwrap();
    let second = Census::take(&classes(&[("c", 7), ("b", 20), ("3", 2)]), &breakdown).unwrap();
    let difference = CensusDifference::of(&first, &second).unwrap();
    assert_eq!((difference.basis_count, difference.basis_bytes), (3, 16));
    let expected = concat!(
        r#"{"3":{"count":1,"bytes":2},"b":{"count":-1,"bytes":5},"a":{"count":-1,"bytes":-1},"#,
        r#""c":{"count":1,"bytes":7},"other":{"count":0,"bytes":0}}"#
    );
    assert_eq!(json(&difference), expected);
}

#[test]
fn figures_that_were_not_asked_for_stay_away() {
    let breakdown = Breakdown::from_json(r#"{"by":"objectClass","then":{"by":"count","bytes":false,"label":"x"}}"#);
    let breakdown = breakdown.unwrap();
    let first = Census::take(&classes(&[("a", 1)]), &breakdown).unwrap();
    let second = Census::take(&classes(&[("b", 1)]), &breakdown).unwrap();
    let expected =
        concat!(r#"{"a":{"count":-1,"label":"x"},"b":{"count":1,"label":"x"},"#, r#""other":{"count":0,"bytes":0}}"#);
    assert_eq!(json(&CensusDifference::of(&first, &second).unwrap()), expected);
}

#[test]
fn only_figures_of_one_breakdown_can_be_subtracted() {
    let graph = classes(&[]);
    let [count, classes, bucket] =
        [Breakdown::count(), Breakdown::default(), Breakdown::object_class(Breakdown::Bucket)]
            .map(|breakdown| Census::take(&graph, &breakdown).unwrap());
    assert_eq!(CensusDifference::of(&count, &classes).err(), Some(DiffError::Breakdowns));
    assert_eq!(CensusDifference::of(&bucket, &bucket).err(), Some(DiffError::Bucket));
}

/// Returns the figures of all leaves by the way to them, in words.
fn leaves(value: &CensusValue, frames: &ReportFrames) -> BTreeMap<String, (i64, i64)> {
    let mut leaves = BTreeMap::new();
    let mut pending = vec![(String::new(), value)];
    while let Some((way, value)) = pending.pop() {
        if let CensusValue::Count(figures) = value {
            leaves.insert(way, (figures.count.unwrap(), figures.bytes.unwrap()));
            continue;
        }
        for (key, child) in value.children() {
            let key = match key {
                ValueKey::Stack(StackKey::Stack(stack)) => format!("{:?}", frames.stack(stack).collect::<Vec<_>>()),
                key => format!("{key:?}"),
            };
            pending.push((format!("{way}/{key}"), child));
        }
    }
    leaves
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_figure_is_the_second_less_the_first(
        first in graphs(),
        second in graphs(),
        words in prop::sample::subsequence(By::ALL[2..].to_vec(), 1..4).prop_shuffle(),
    ) {
        let breakdown = Breakdown::nested(&words).unwrap();
        let breakdown = Breakdown::All(vec![breakdown, Breakdown::default()]);
        let [first, second] = [&first, &second].map(|graph| Census::take(graph, &breakdown).unwrap());
        let difference = CensusDifference::of(&first, &second).unwrap();
        let [first, second] = [&first, &second].map(|census| leaves(&census.value, &census.frames));
        let mut expected = second;
        for (way, (count, bytes)) in &first {
            let known = expected.entry(way.clone()).or_default();
            *known = (known.0 - count, known.1 - bytes);
        }
        prop_assert_eq!(leaves(&difference.value, &difference.frames), expected);
        prop_assert_eq!(difference.basis_count, first.values().map(|it| it.0).sum::<i64>());
        prop_assert_eq!(difference.basis_bytes, first.values().map(|it| it.1).sum::<i64>());
    }
}
