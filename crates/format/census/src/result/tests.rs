use super::*;
use crate::breakdown::By;
use crate::graph::{AllocationStack, EdgeData, Frame, FrameIndex, Graph, GraphBuilder, NodeData, NodeIndex};

#[test]
fn indexes_of_arrays_are_those_of_javascript() {
    for (key, index) in [("0", 0), ("7", 7), ("4294967294", 4_294_967_294)] {
        assert_eq!(array_index(key), Some(index));
    }
    for key in ["", "00", "01", "-1", "+1", "1.0", "4294967295", "4294967296", "99999999999", "1e3", "x"] {
        assert_eq!(array_index(key), None, "{key}");
    }
}

/// A root with one node for each class name; ids grow.
fn classes(names: &[&str]) -> Graph {
    let mut builder = GraphBuilder::new();
    let names: Vec<_> = names.iter().map(|it| builder.intern(it).unwrap()).collect();
    let type_name = builder.intern("T").unwrap();
    builder.add_node(NodeData::new(NodeId(1), type_name, Some(0))).unwrap();
    for index in 0..names.len() {
        builder.add_edge(NodeIndex(index as u32 + 1), EdgeData::default()).unwrap();
    }
    for (index, &class) in names.iter().enumerate() {
        let data = NodeData::new(NodeId(index as u64 + 2), type_name, Some(8));
        builder.add_node(NodeData { class: Some(class), ..data }).unwrap();
    }
    builder.finish().unwrap()
}

fn json_by(graph: &Graph, words: &[By]) -> String {
    serde_json::to_string(&Census::take(graph, &Breakdown::nested(words).unwrap()).unwrap()).unwrap()
}

#[test]
fn keys_are_in_the_order_of_javascript() {
    let graph = classes(&["b", "10", "z", "9", "a", "01"]);
    let one = r#"{"count":1,"bytes":8}"#;
    let expected =
        format!(r#"{{"9":{one},"10":{one},"01":{one},"a":{one},"z":{one},"b":{one},"other":{{"count":0,"bytes":0}}}}"#);
    assert_eq!(json_by(&graph, &[By::ObjectClass]), expected);
}

#[test]
fn no_group_hides_behind_the_key_of_the_rest() {
    let graph = classes(&["other"]);
    let expected = r#"{"other (name)":{"count":1,"bytes":8},"other":{"count":0,"bytes":0}}"#;
    assert_eq!(json_by(&graph, &[By::ObjectClass]), expected);
}

#[test]
fn stacks_are_pairs_of_frames_and_values() {
    let mut builder = GraphBuilder::new();
    let [type_name, file, run] = ["T", "a.js", "run"].map(|it| builder.intern(it).unwrap());
    let outer = Frame {
        id: 1,
        parent: None,
        source: Some(file),
        line: 3,
        column: 4,
        function: None,
        is_system: false,
        is_self_hosted: false,
    };
    // Frame 2 is equal to frame 1, so the stacks of both are the same.
    let inner = Frame { id: 2, parent: Some(FrameIndex(0)), line: 5, function: Some(run), ..outer.clone() };
    for frame in [outer.clone(), inner, Frame { id: 9, ..outer }] {
        builder.add_frame(frame).unwrap();
    }
    let at = |frame| Some(AllocationStack::At(FrameIndex(frame)));
    let stacks = [None, at(0), at(1), at(2), Some(AllocationStack::Empty), None];
    for (index, stack) in stacks.into_iter().enumerate() {
        let data = NodeData::new(NodeId(index as u64 + 1), type_name, Some(1));
        builder.add_node(NodeData { stack, ..data }).unwrap();
        if index == 0 {
            for target in 1..6 {
                builder.add_edge(NodeIndex(target), EdgeData::default()).unwrap();
            }
        }
    }
    let graph = builder.finish().unwrap();
    let outer = r#"{"source":"a.js","line":3,"column":4,"functionDisplayName":null}"#;
    let inner = r#"{"source":"a.js","line":5,"column":4,"functionDisplayName":"run"}"#;
    let expected = format!(r#"[[null,[5]],[[{inner},{outer}],[3]],[[{outer}],[2,4]],["noStack",[6]]]"#);
    let breakdown = Breakdown::allocation_stack(Breakdown::Bucket).or_else(Breakdown::Bucket);
    let census = Census::take(&graph, &breakdown).unwrap();
    assert_eq!(serde_json::to_string(&census).unwrap(), expected);
    // Without a node that has no stack, there is no such key.
    let without = Census::of_nodes(&graph, &breakdown, &[NodeIndex(4)]).unwrap();
    assert_eq!(serde_json::to_string(&without).unwrap(), "[[null,[5]]]");
}
