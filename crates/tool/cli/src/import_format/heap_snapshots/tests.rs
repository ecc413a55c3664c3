use heapledger_census::graph::{EdgeData, Frame as GraphFrame, GraphBuilder, NodeData, NodeId};

use super::*;

/// Returns a graph whose root has a node of one class for each of the frames, which are the lines
/// of one function.
fn graph(class: &str, lines: impl Iterator<Item = (u32, u32)>) -> Graph {
    let mut builder = GraphBuilder::new();
    let root_type = builder.intern("root").unwrap();
    let (class, function, source) =
        (builder.intern(class).unwrap(), builder.intern("make").unwrap(), builder.intern("a.js").unwrap());
    let mut nodes = Vec::new();
    for (number, (line, column)) in lines.enumerate() {
        let frame = builder.add_frame(GraphFrame {
            id: number as u64,
            parent: None,
            source: Some(source),
            line,
            column,
            function: Some(function),
            is_system: false,
            is_self_hosted: false,
        });
        nodes.push((number as u64 + 2, AllocationStack::At(frame.unwrap())));
    }
    builder.add_node(NodeData::new(NodeId(1), root_type, Some(0))).unwrap();
    for (id, _) in &nodes {
        builder.add_edge_to_id(NodeId(*id), EdgeData::default()).unwrap();
    }
    for (id, stack) in nodes {
        let data = NodeData {
            coarse_type: CoarseType::Object,
            class: Some(class),
            stack: Some(stack),
            ..NodeData::new(NodeId(id), class, Some(16))
        };
        builder.add_node(data).unwrap();
    }
    builder.finish().unwrap()
}

#[test]
fn frames_that_differ_by_columns_alone_are_one_location() {
    let profile = profile(&graph("Point", [(1, 1), (1, 9), (2, 1)].into_iter())).unwrap();
    let of_class = |sample: &&Sample| sample.labels.iter().any(|(_, text)| text == "Point");
    let samples: Vec<&[usize]> = profile.samples.iter().filter(of_class).map(|it| &it.locations[..]).collect();
    assert_eq!(samples.len(), 3);
    assert_eq!(samples[0], samples[1]);
    assert_ne!(samples[0], samples[2]);
    let frame = &profile.locations[samples[2][0]].frames[0];
    assert_eq!((&*frame.function, &*frame.file, frame.line), ("make", "a.js", 2));
}

#[test]
fn a_long_name_that_many_stacks_share_is_refused() {
    let class = "x".repeat(1 << 20);
    assert!(profile(&graph(&class, (1..=100).map(|line| (line, 1)))).is_ok());
    let error = profile(&graph(&class, (1..=300).map(|line| (line, 1)))).unwrap_err();
    assert!(error.contains("names"), "{error}");
}
