use proptest::prelude::*;

use super::*;
use crate::graph::{CoarseType, Frame, GraphBuilder, NodeData, NodeId};
use crate::random::graphs;
use crate::read::read;

fn written(format: WrittenFormat, graph: &Graph) -> Graph {
    read(format.write(graph, Vec::new()).unwrap().as_slice()).unwrap()
}

#[test]
fn losses_of_a_whole_snapshot_are_counted() {
    let graph = heapsnapshot::read(heapsnapshot::WHOLE.as_bytes()).unwrap();
    let lost = WrittenFormat::Firefox.lost(&graph);
    let expected = [
        (Lost::Texts, 5),
        // A weak one, one of a `WeakMap`, and one from the engine's nodes to the program's.
        (Lost::WeakEdges, 3),
        (Lost::EdgeKinds, 7),
        (Lost::Locations, 2),
        (Lost::Detachedness, 2),
        (Lost::Moments, 2),
        (Lost::EmptyStacks, 1),
        (Lost::Allocated, 3),
        (Lost::ZeroSizes, 1),
    ];
    assert_eq!(lost, expected);
    assert_eq!(WrittenFormat::V8.lost(&graph), []);
    let firefox = written(WrittenFormat::Firefox, &graph);
    assert_eq!(WrittenFormat::Firefox.lost(&firefox), []);
    let lost = WrittenFormat::V8.lost(&firefox);
    assert_eq!(lost, [(Lost::TypeNames, 8), (Lost::ScriptFiles, 3), (Lost::UnknownSizes, 1)]);
}

#[test]
fn types_that_a_byte_cannot_number_are_lost() {
    let mut builder = GraphBuilder::new();
    builder.about.origin = Origin::V8;
    for id in 1..400 {
        let type_name = builder.intern(&format!("type {id}")).unwrap();
        builder.add_node(NodeData::new(NodeId(id), type_name, Some(1))).unwrap();
    }
    assert_eq!(WrittenFormat::V8.lost(&builder.finish().unwrap()), [(Lost::TypeNames, 399 - 240)]);
}

/// Every loss of a format occurs: a graph of Firefox has a time, marked frames, and more.
#[test]
fn losses_of_a_graph_of_firefox_are_counted() {
    let mut builder = GraphBuilder::new();
    builder.about.time_us = Some(7);
    let name = builder.intern("a").unwrap();
    let frame = Frame { is_system: true, ..crate::random::frame(1, None, name) };
    let stack = Some(AllocationStack::At(builder.add_frame(frame).unwrap()));
    let (class, descriptive_name, script_file) = (Some(name), Some(name), Some(name));
    let node = NodeData::new(NodeId(1), name, None);
    builder.add_node(NodeData { class, descriptive_name, script_file, stack, ..node }).unwrap();
    let all =
        [Lost::TypeNames, Lost::ScriptFiles, Lost::DescriptiveNames, Lost::FrameMarks, Lost::UnknownSizes, Lost::Time];
    assert_eq!(WrittenFormat::V8.lost(&builder.finish().unwrap()), all.map(|lost| (lost, 1)));
}

/// Firefox's name of an element becomes a tag, which is read as a DOM node again.
#[test]
fn elements_become_tags() {
    let mut builder = GraphBuilder::new();
    let type_name = builder.intern("T").unwrap();
    for (id, text) in [(1, "UL"), (2, "#text"), (3, "UL")] {
        let descriptive_name = Some(builder.intern(text).unwrap());
        let node = NodeData::new(NodeId(id), type_name, Some(1));
        builder.add_node(NodeData { coarse_type: CoarseType::DomNode, descriptive_name, ..node }).unwrap();
    }
    let again = written(WrittenFormat::V8, &builder.finish().unwrap());
    let names: Vec<_> = again.nodes().map(|node| again.descriptive_name(node).map(|it| again.text(it))).collect();
    assert_eq!(names, [Some("<ul>"), Some("#text"), Some("<ul>")]);
    assert!(again.nodes().all(|node| again.coarse_type(node) == CoarseType::DomNode));
}

proptest! {
    /// A property that is not said to be lost is read again as it was.
    #[test]
    fn the_rest_is_kept(graph in graphs(), is_v8: bool) {
        let format = if is_v8 { WrittenFormat::V8 } else { WrittenFormat::Firefox };
        let lost = format.lost(&graph);
        let again = written(format, &graph);
        let keeps = |property| !lost.iter().any(|it| it.0 == property);
        prop_assert_eq!(graph.node_count(), again.node_count());
        if keeps(Lost::WeakEdges) {
            prop_assert_eq!(graph.edge_count(), again.edge_count());
        }
        for node in graph.nodes() {
            let names = |graph: &Graph| {
                [graph.descriptive_name(node), graph.script_file(node), graph.class(node)]
                    .map(|name| name.map(|it| graph.text(it).to_owned()))
            };
            let ([name, file, class], [name_again, file_again, class_again]) = (names(&graph), names(&again));
            prop_assert_eq!((graph.id(node), graph.size(node)), (again.id(node), again.size(node)));
            if keeps(Lost::UnknownSizes) && keeps(Lost::ZeroSizes) {
                prop_assert_eq!(graph.is_size_known(node), again.is_size_known(node));
            }
            if keeps(Lost::ScriptFiles) {
                prop_assert_eq!(file, file_again);
            }
            if keeps(Lost::EmptyStacks) {
                prop_assert_eq!(graph.stack(node).is_some(), again.stack(node).is_some());
            }
            if keeps(Lost::TypeNames) {
                prop_assert_eq!(graph.text(graph.type_name(node)), again.text(again.type_name(node)));
                prop_assert_eq!((graph.coarse_type(node), name, class), (again.coarse_type(node), name_again, class_again));
            } else if let (CoarseType::Object, Some(class)) = (graph.coarse_type(node), class) {
                prop_assert_eq!(Some(class), class_again);
            }
        }
    }
}
