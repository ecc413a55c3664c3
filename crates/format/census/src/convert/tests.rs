use proptest::prelude::*;

use super::*;
use crate::graph::CoarseType;
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
    let mut builder = crate::graph::GraphBuilder::new();
    builder.about.origin = Origin::V8;
    for id in 1..400 {
        let type_name = builder.intern(&format!("type {id}")).unwrap();
        builder.add_node(crate::graph::NodeData::new(crate::graph::NodeId(id), type_name, Some(1))).unwrap();
    }
    assert_eq!(WrittenFormat::V8.lost(&builder.finish().unwrap()), [(Lost::TypeNames, 399 - 240)]);
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
