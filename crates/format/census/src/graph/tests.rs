use super::*;

fn node(builder: &mut GraphBuilder, id: u64) -> Result<NodeIndex, BuildError> {
    let type_name = builder.intern("T")?;
    builder.add_node(NodeData::new(NodeId(id), type_name, Some(id)))
}

#[test]
fn deep_stacks_are_cut() {
    let mut builder = GraphBuilder::new();
    let name = builder.intern("f").unwrap();
    let mut innermost = None;
    for id in 0..3000 {
        let frame = crate::random::frame(id, innermost.map(|it: FrameIndex| it.0), name);
        innermost = Some(builder.add_frame(frame).unwrap());
    }
    let data = NodeData::new(NodeId(1), name, None);
    builder.add_node(NodeData { stack: innermost.map(AllocationStack::At), ..data }).unwrap();
    let graph = builder.finish().unwrap();
    assert_eq!(graph.frames().count(), STACK_FRAMES_MAX);
    assert_eq!(graph.frames().stack(innermost.unwrap()).count(), STACK_FRAMES_MAX);
}

#[test]
fn a_graph_is_as_it_was_built() {
    let mut builder = GraphBuilder::new();
    let [object, array, text] = ["JSObject", "Array", "x"].map(|it| builder.intern(it).unwrap());
    assert_eq!(builder.intern("Array"), Ok(array));
    let outer = Frame {
        id: 5,
        parent: None,
        source: Some(text),
        line: 1,
        column: 2,
        function: None,
        is_system: false,
        is_self_hosted: true,
    };
    let outer = builder
        .add_frame(outer.clone())
        .and_then(|it| builder.add_frame(Frame { id: 6, parent: Some(it), function: Some(array), ..outer }));
    let inner = outer.unwrap();
    builder.add_node(NodeData::new(NodeId(1), object, None)).unwrap();
    let by_index = EdgeData { name: Some(EdgeName::Index(7)), kind: EdgeKind::Element };
    builder.add_edge(NodeIndex(1), by_index).unwrap();
    builder.add_edge_to_id(NodeId(9), EdgeData { name: Some(EdgeName::Name(text)), kind: EdgeKind::Weak }).unwrap();
    let whole = NodeData {
        coarse_type: CoarseType::DomNode,
        class: Some(array),
        label: Some(text),
        descriptive_name: Some(text),
        script_file: Some(object),
        stack: Some(AllocationStack::At(inner)),
        detachedness: Detachedness::Detached,
        ..NodeData::new(NodeId(9), array, Some(0))
    };
    let second = builder.add_node(whole).unwrap();
    builder.add_edge(NodeIndex(0), EdgeData::default()).unwrap();
    let empty = NodeData { stack: Some(AllocationStack::Empty), ..NodeData::new(NodeId(3), array, Some(4)) };
    builder.add_node(empty).unwrap();
    builder.set_location(second, Location { script_id: 1, line: 2, column: 3 }).unwrap();
    let graph = builder.finish().unwrap();

    assert_eq!((graph.node_count(), graph.edge_count()), (3, 3));
    let [first, second, third] = [0, 1, 2].map(NodeIndex);
    assert_eq!(graph.find(NodeId(9)), Some(second));
    assert_eq!(graph.find(NodeId(3)), Some(third));
    assert_eq!(graph.find(NodeId(2)), None);
    assert_eq!((graph.is_size_known(first), graph.is_size_known(second)), (false, true));
    assert_eq!(graph.class(first), None);
    assert_eq!(graph.class(second), Some(array));
    assert_eq!(graph.class(third), None);
    assert_eq!(graph.text(graph.type_name(first)), "JSObject");
    assert_eq!(graph.coarse_type(second), CoarseType::DomNode);
    assert_eq!(graph.detachedness(second), Detachedness::Detached);
    assert_eq!(graph.stack(first), None);
    assert_eq!(graph.stack(second), Some(AllocationStack::At(inner)));
    assert_eq!(graph.stack(third), Some(AllocationStack::Empty));
    assert_eq!(graph.frames().stack(inner).map(|it| graph.frame(it).id).collect::<Vec<_>>(), [6, 5]);
    assert_eq!(graph.location(second).map(|it| it.line), Some(2));
    assert_eq!(graph.location(first), None);
    let edges: Vec<Edge> = graph.edges(first).collect();
    let [index, name] = [EdgeName::Index(7), EdgeName::Name(text)].map(Some);
    assert_eq!(edges[0], Edge { target: second, name: index, kind: EdgeKind::Element, retains: true });
    assert_eq!(edges[1], Edge { target: second, name, kind: EdgeKind::Weak, retains: false });
    assert_eq!(graph.targets(second), [first]);
    assert_eq!(graph.targets(third), []);
}

#[test]
fn what_is_wrong_is_refused() {
    assert_eq!(GraphBuilder::new().finish().err(), Some(BuildError::Empty));
    let mut builder = GraphBuilder::new();
    assert_eq!(builder.add_edge(NodeIndex(0), EdgeData::default()), Err(BuildError::EdgeWithoutNode));
    node(&mut builder, 4).unwrap();
    assert_eq!(node(&mut builder, ID_MAX), Err(BuildError::IdTooLarge { id: ID_MAX }));
    let unknown = NodeData::new(NodeId(8), Name(1), None);
    assert_eq!(builder.add_node(unknown), Err(BuildError::UnknownName));
    let huge = NodeData::new(NodeId(8), Name(0), Some(u64::MAX));
    assert_eq!(builder.add_node(huge), Err(BuildError::TooManyBytes));
    let stack = Some(AllocationStack::At(FrameIndex(0)));
    let framed = NodeData { stack, ..NodeData::new(NodeId(8), Name(0), None) };
    assert_eq!(builder.add_node(framed), Err(BuildError::UnknownFrame));
    assert_eq!(builder.node_count(), 1);
    builder.add_edge(NodeIndex(1), EdgeData::default()).unwrap();
    assert_eq!(builder.finish().err(), Some(BuildError::UnknownIndex { from: NodeId(4), index: 1 }));

    let mut builder = GraphBuilder::new();
    node(&mut builder, 4).unwrap();
    builder.add_edge(NodeIndex(0), EdgeData::default()).unwrap();
    builder.add_edge_to_id(NodeId(5), EdgeData::default()).unwrap();
    assert_eq!(builder.finish().err(), Some(BuildError::UnknownId { from: NodeId(4), id: 5 }));
}

#[test]
fn ids_of_any_order_are_found() {
    let many: Vec<u64> = (0..12).map(|it| it * 5 % 12).collect();
    for ids in [vec![7], vec![1, 3, 5, 7], vec![1, 3, 5, 8, 7], vec![9, 3], vec![0, 1, 2, 4, 3], many] {
        let mut builder = GraphBuilder::new();
        for &id in &ids {
            node(&mut builder, id).unwrap();
        }
        let graph = builder.finish().unwrap();
        for id in 0..12 {
            let expected = ids.iter().position(|&it| it == id).map(|it| NodeIndex(it as u32));
            assert_eq!(graph.find(NodeId(id)), expected, "{id} of {ids:?}");
        }
    }
}

#[test]
fn two_nodes_have_different_ids() {
    for (ids, id, first, second) in [(vec![7, 7], 7, 0, 1), (vec![1, 3, 5, 3], 3, 1, 3), (vec![8, 2, 2, 8], 2, 1, 2)] {
        let mut builder = GraphBuilder::new();
        for id in ids {
            node(&mut builder, id).unwrap();
        }
        let (id, first, second) = (NodeId(id), NodeIndex(first), NodeIndex(second));
        assert_eq!(builder.finish().err(), Some(BuildError::DuplicateId { id, first, second }));
    }
}

#[test]
fn the_engine_does_not_retain_what_the_program_reaches() {
    let edges = |origin: Origin| {
        let mut builder = GraphBuilder::new();
        builder.about.origin = origin;
        let [name, documents] = ["synthetic", "(Document DOM trees)"].map(|it| builder.intern(it).unwrap());
        let all: [&[(u32, EdgeKind)]; 6] = [
            &[(1, EdgeKind::Shortcut), (2, EdgeKind::Element), (4, EdgeKind::Element), (3, EdgeKind::Property)],
            &[(3, EdgeKind::Property), (2, EdgeKind::Weak)],
            &[(3, EdgeKind::Property), (5, EdgeKind::Internal), (1, EdgeKind::Shortcut), (0, EdgeKind::Internal)],
            &[(5, EdgeKind::WeakMapTable), (3, EdgeKind::Internal)],
            &[(5, EdgeKind::Element)],
            &[],
        ];
        for (at, edges) in all.into_iter().enumerate() {
            let label = Some(if at == 4 { documents } else { name });
            builder.add_node(NodeData { label, ..NodeData::new(NodeId(at as u64), name, None) }).unwrap();
            for &(target, kind) in edges {
                builder.add_edge(NodeIndex(target), EdgeData { name: None, kind }).unwrap();
            }
        }
        let graph = builder.finish().unwrap();
        (0..graph.edge_count()).map(|it| graph.retains(it)).collect::<Vec<_>>()
    };
    let by_kind = [true, true, true, true, true, false, true, true, false, true, false, true, true];
    assert_eq!(edges(Origin::Firefox), by_kind);
    // The engine has node 2, whose edges to nodes 3 and 5 do not count.
    let by_owner = [true, true, true, true, true, false, false, false, false, true, false, true, true];
    assert_eq!(edges(Origin::V8), by_owner);
}
