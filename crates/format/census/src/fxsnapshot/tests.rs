use proptest::prelude::*;

use super::wire::{put_bytes, put_number, put_varint};
use super::*;
use crate::compare::{assert_same, edge_text, node_text};
use crate::fuzzing;
use crate::graph::{
    AllocationStack, CoarseType, EdgeData, EdgeKind, EdgeName, Frame, Graph, GraphBuilder, NodeData, NodeId, NodeIndex,
    Origin,
};

/// A message that is made field by field.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(mut self, field: u64, value: u64) -> Message {
        put_number(&mut self.0, field, value);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Message {
        put_bytes(&mut self.0, field, bytes);
        self
    }

    fn wide(self, field: u64, text: &str) -> Message {
        let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        self.bytes(field, &bytes)
    }

    fn message(self, field: u64, message: Message) -> Message {
        self.bytes(field, &message.0)
    }
}

fn new() -> Message {
    Message::default()
}

fn file(messages: &[Message]) -> Vec<u8> {
    let mut file = Vec::new();
    for message in messages {
        put_varint(&mut file, message.0.len() as u64);
        file.extend_from_slice(&message.0);
    }
    file
}

/// A file whose texts are counted in another order than that in which they are in the file.
fn whole() -> Vec<Message> {
    // The wide texts: 0 "R", 1 "edge", 2 "inner.js", 3 "f", 4 "outer.js", 5 "g", 6 "#text".
    let outer = new().number(1, 70).number(3, 1).number(4, 2).wide(5, "outer.js").wide(7, "g").number(9, 1);
    let inner = new().number(1, 71).message(2, new().message(1, outer)).number(3, 3).number(4, 4);
    let inner = inner.wide(5, "inner.js").wide(7, "f").number(10, 1);
    let root = new().number(1, 1000).wide(2, "R").number(4, 1).message(5, new().number(1, 500).wide(2, "edge"));
    let root = root.message(5, new().number(1, 1000).number(3, 1)).message(5, new().number(1, 600));
    let root =
        root.message(6, new().message(1, inner)).bytes(7, b"Array").bytes(10, "é.js".as_bytes()).wide(12, "#text");
    let second = new().number(13, 6).number(11, 1).number(9, 4).number(8, 0).number(4, 20).number(3, 2).number(1, 500);
    let second = second.message(6, new().number(2, 70)).number(99, 1).bytes(98, b"later");
    let third = new().number(1, 600).number(3, 0).number(4, 0).bytes(7, &[0xe9]).message(6, new().number(2, 71));
    vec![new().number(1, 1_234), root, second, third]
}

fn graph(messages: &[Message]) -> Graph {
    read_unpacked(file(messages).as_slice()).unwrap()
}

fn reason(messages: &[Message]) -> String {
    read_unpacked(file(messages).as_slice()).err().map_or_else(|| "it was read".to_owned(), |it| it.to_string())
}

#[test]
fn texts_are_counted_in_the_order_of_reading() {
    let graph = graph(&whole());
    assert_eq!((graph.about().origin, graph.about().time_us), (Origin::Firefox, Some(1_234)));
    let texts: Vec<String> = graph.nodes().map(|it| node_text(&graph, it)).collect();
    assert_eq!(
        texts,
        [
            concat!(
                r##"1000 R 1/true Other class Some("Array") label None descriptive Some("#text") file Some("é.js") "##,
                r#"Unknown None 3 edges, stack Some("Some(\"f\") Some(\"inner.js\"):3:4 false true\n"#,
                r#"Some(\"g\") Some(\"outer.js\"):1:2 true false")"#
            ),
            concat!(
                r##"500 inner.js 20/true DomNode class Some("Array") label None descriptive Some("#text") "##,
                r#"file Some("é.js") Unknown None 0 edges, stack Some("Some(\"g\") Some(\"outer.js\"):1:2 true false")"#
            ),
            concat!(
                r#"600 R 0/false Other class Some("é") label None descriptive None file None Unknown None 0 edges, "#,
                r#"stack Some("Some(\"f\") Some(\"inner.js\"):3:4 false true\nSome(\"g\") Some(\"outer.js\"):1:2 true false")"#
            ),
        ]
    );
    let edges: Vec<String> = graph.edges(NodeIndex(0)).map(|it| edge_text(&graph, &it)).collect();
    assert_eq!(edges, ["Plain.edge -> 1", "Plain.edge -> 0", "Plain -> 2"]);
}

#[test]
fn it_is_written_as_it_was() {
    let graph = graph(&whole());
    let written = write(&graph, Vec::new()).unwrap();
    assert_same(&graph, &read(written.as_slice()).unwrap());
    // The stream goes on after the compressed data of another program.
    let message = read(&written[..written.len() - 9]).unwrap_err().to_string();
    assert!(message.contains("the compressed data is damaged or cut off"), "{message}");
}

#[test]
fn deep_stacks_are_cut() {
    let mut builder = GraphBuilder::new();
    let name = builder.intern("f").unwrap();
    let mut parent = None;
    for id in 0..100 {
        let frame = Frame {
            id,
            parent,
            source: Some(name),
            line: id as u32,
            column: 0,
            function: Some(name),
            is_system: false,
            is_self_hosted: false,
        };
        parent = Some(builder.add_frame(frame).unwrap());
    }
    let stack = parent.map(AllocationStack::At);
    builder.add_node(NodeData { stack, ..NodeData::new(NodeId(1), name, Some(1)) }).unwrap();
    let graph = builder.finish().unwrap();
    let again = read(write(&graph, Vec::new()).unwrap().as_slice()).unwrap();
    let Some(AllocationStack::At(innermost)) = again.stack(again.root()) else { panic!("it has a stack") };
    let lines: Vec<u32> = again.frames().stack(innermost).map(|it| again.frame(it).line).collect();
    assert_eq!(lines, (40..100).rev().collect::<Vec<_>>());
}

#[test]
fn edges_that_do_not_retain_are_not_written() {
    let mut builder = GraphBuilder::new();
    let name = builder.intern("f").unwrap();
    builder.add_node(NodeData::new(NodeId(1), name, Some(1))).unwrap();
    for kind in [EdgeKind::Weak, EdgeKind::Shortcut, EdgeKind::Element, EdgeKind::Element] {
        builder.add_edge(NodeIndex(1), EdgeData { name: Some(EdgeName::Index(12)), kind }).unwrap();
    }
    let string = NodeData { coarse_type: CoarseType::String, ..NodeData::new(NodeId(2), name, None) };
    builder.add_node(string).unwrap();
    builder.add_edge(NodeIndex(0), EdgeData { name: None, kind: EdgeKind::Shortcut }).unwrap();
    builder.set_root(NodeIndex(1)).unwrap();
    let graph = builder.finish().unwrap();
    let again = read(write(&graph, Vec::new()).unwrap().as_slice()).unwrap();
    // The root comes first, and only its shortcuts retain.
    assert_eq!(again.id(again.root()), NodeId(2));
    assert_eq!(again.coarse_type(again.root()), CoarseType::String);
    let edges: Vec<String> = again.nodes().flat_map(|it| again.edges(it)).map(|it| edge_text(&again, &it)).collect();
    assert_eq!(edges, ["Plain -> 1", "Plain.12 -> 0", "Plain.12 -> 0"]);
}

#[test]
fn damage_is_found() {
    let metadata = new();
    let node = |id| new().number(1, id).wide(2, "T").number(4, 1);
    let cases = [
        (vec![metadata.clone()], "there is no node"),
        (vec![metadata.clone(), new().wide(2, "T").number(4, 1)], "a node has no id"),
        (vec![metadata.clone(), new().number(1, 1).number(4, 1)], "node 1 has no type name"),
        (vec![metadata.clone(), new().number(1, 1).wide(2, "T")], "node 1 has no size"),
        (vec![metadata.clone(), node(1), node(1)], "two nodes have the id 1"),
        (vec![metadata.clone(), node(1 << 53)], "the id 9007199254740992 is not less than 2^53"),
        (vec![metadata.clone(), node(1).number(9, 5)], "node 1 has the coarse type 5"),
        (vec![metadata.clone(), node(1).number(8, 0)], "text 0 is used, and only 0 came before"),
        (vec![metadata.clone(), node(1).number(13, 1)], "text 1 is used, and only 1 came before"),
        (
            vec![metadata.clone(), node(1).message(5, new().number(1, 2))],
            "an edge of node 1 leads to node 2, which is not in the snapshot",
        ),
        (vec![metadata.clone(), node(1).message(5, new().wide(2, "e"))], "an edge leads nowhere"),
        (vec![metadata.clone(), node(1).message(6, new())], "a frame has neither data nor a reference"),
        (vec![metadata.clone(), node(1).message(6, new().number(2, 7))], "frame 7 is used before it is described"),
        (vec![metadata.clone(), node(1).message(6, new().message(1, new().number(3, 7)))], "a frame has no id"),
        (vec![metadata.clone(), node(1).bytes(12, b"odd")], "a text in UTF-16 has 3 bytes"),
        (vec![metadata.clone(), node(1).number(12, 0)], "field 12 has the wrong encoding"),
        (vec![metadata.clone(), Message(vec![0x0b])], "a field has an unknown encoding"),
        (vec![metadata.clone(), Message(vec![0x12, 9, 1])], "a field is longer than its message"),
    ];
    for (messages, expected) in cases {
        assert!(reason(&messages).ends_with(expected), "{} instead of {expected}", reason(&messages));
    }
    let whole = file(&whole());
    assert!(reason(&[]).ends_with("the file is empty"));
    // The offset is that of the message.
    assert!(reason(&[metadata, node(1), node(1).number(9, 5)]).starts_with("at byte 11:"));
    for end in 0..whole.len() {
        assert!(read_unpacked(&whole[..end]).is_err(), "cut at {end}");
    }
}

/// Texts are counted in the order of the fields' numbers, wherever the fields are.
#[test]
fn fields_may_come_in_any_order() {
    let edge = |name: &str| new().number(1, 1).wide(2, name);
    let known = |name: u64| new().number(1, 1).number(3, name);
    let root = new().message(5, edge("a")).number(4, 1).message(5, known(0)).wide(2, "T").message(5, known(1));
    let second = new().wide(12, "d").number(3, 1).message(5, edge("c")).number(1, 2).number(4, 1);
    let third = new().message(5, known(2)).message(5, known(3)).number(3, 0).number(1, 3).number(4, 1);
    let file = file(&[new(), root.number(1, 1), second, third]);
    let graph = read_unpacked(file.as_slice()).unwrap();
    let types: Vec<&str> = graph.nodes().map(|it| graph.text(graph.type_name(it))).collect();
    assert_eq!(types, ["T", "a", "T"]);
    let names: Vec<String> = graph.nodes().flat_map(|it| graph.edges(it)).map(|it| edge_text(&graph, &it)).collect();
    assert_eq!(names, [".a", ".T", ".a", ".c", ".c", ".d"].map(|name| format!("Plain{name} -> 0")));
}

proptest! {
    #[test]
    fn damaged_files_are_no_danger(changes in prop::collection::vec((0_usize..300, any::<u8>(), 0_usize..3), 0..4)) {
        let mut file = file(&whole());
        for (at, byte, length) in changes {
            let at = at % file.len();
            let end = (at + length).min(file.len());
            file.splice(at..end, [byte]);
        }
        fuzzing::fxsnapshot(&file);
    }

    #[test]
    fn nor_is_anything_else(data: Vec<u8>) {
        fuzzing::fxsnapshot(&data);
    }
}
