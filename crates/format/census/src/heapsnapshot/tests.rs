use proptest::prelude::*;

use super::*;
use crate::compare::{assert_same, edge_text, node_text};
use crate::fuzzing;
use crate::graph::{
    AllocationStack, CoarseType, Detachedness, Graph, GraphBuilder, Location, NodeData, NodeId, NodeIndex, Origin,
};
use crate::read_error::ReadError;

/// A snapshot with everything that V8 writes, as Node.js 20 does.
pub(crate) const WHOLE: &str = r#"{"snapshot":{"meta":{"node_fields":["type","name","id","self_size","edge_count",
"trace_node_id","detachedness"],"node_types":[["hidden","array","string","object","code","closure","regexp","number",
"native","synthetic","concatenated string","future"],"string","number","number","number","number","number"],
"edge_fields":["type","name_or_index","to_node"],"edge_types":[["context","element","property","internal","hidden",
"shortcut","weak"],"string_or_number","node"],"trace_function_info_fields":["function_id","name","script_name",
"script_id","line","column"],"trace_node_fields":["id","function_info_index","count","size","children"],
"sample_fields":["timestamp_us","last_assigned_id"],"location_fields":["object_index","script_id","line","column"]},
"node_count":8,"edge_count":10,"trace_function_count":3, "more": [{"a": "}\"]"}, null, -1.5e3, true]},
"nodes":[9,0,1,0,4,0,0, 5,2,3,56,2,3,0, 4,3,5,40,1,0,0, 4,4,7,100,0,0,0, 8,5,9,64,1,1,2
,3,6,11,24,2,2,0, 11,0,13,8,0,0,0, 10,7,15,32,0,0,1],
"edges":[1,1,7 ,5,10,28,6,2,35,4,3,49, 3,8,14,0,11,35, 3,9,21, 2,11,35, 3,12,49, 1,0,28],
"trace_function_infos":[0,13,0,0,0,0, 5,2,14,9,3,4, 6,0,14,9,8,1],
"trace_tree":[1,0,0,0,[2,1,5,500,[3,2,1,100,[]]]],
"samples":[0,5,1000,15],
"locations":[7,77,2,3,35,9,0,0],
"strings":["","(GC roots)","leak","(shared function info)","file:///a.js","Detached HTMLDivElement","Leak\u00e9",
"a\ud83d\ude00\ud800b\n","shared","script_or_debug_info","window","x",
"3 / part of key (Leak @11) -> value (A @13) pair in WeakMap (table @11)","(root)","b.js"],
"unknown": {"a": [1, "]"], "b": "\\"}}"#;

fn text(graph: &Graph, node: u32) -> String {
    node_text(graph, NodeIndex(node))
}

fn reason(file: &str) -> String {
    read(file.as_bytes()).err().map_or_else(|| "it was read".to_owned(), |it| it.to_string())
}

#[test]
fn everything_is_understood() {
    let graph = read(WHOLE.as_bytes()).unwrap();
    assert_eq!(graph.about().origin, Origin::V8);
    assert_eq!((graph.node_count(), graph.edge_count()), (8, 10));
    let texts: Vec<String> = graph.nodes().map(|it| node_text(&graph, it)).collect();
    let expected = [
        r#"1 synthetic 0/true Other class None label Some("") descriptive None file None Unknown None 4 edges, stack None"#,
        concat!(
            r#"3 closure 56/true Object class Some("Function") label Some("leak") descriptive None "#,
            r#"file Some("file:///a.js") Unknown Some(Location { script_id: 77, line: 2, column: 3 }) 2 edges, "#,
            r#"stack Some("None Some(\"b.js\"):8:1 false false\nSome(\"leak\") Some(\"b.js\"):3:4 false false")"#
        ),
        concat!(
            r#"5 code 40/true Script class None label Some("(shared function info)") descriptive None "#,
            r#"file Some("file:///a.js") Unknown None 1 edges, stack None"#
        ),
        concat!(
            r#"7 code 100/true Script class None label Some("file:///a.js") descriptive None "#,
            r#"file Some("file:///a.js") Unknown None 0 edges, stack None"#
        ),
        concat!(
            r#"9 native 64/true DomNode class None label Some("Detached HTMLDivElement") "#,
            r#"descriptive Some("HTMLDivElement") file None Detached None 1 edges, stack Some("")"#
        ),
        concat!(
            r#"11 object 24/true Object class Some("Leaké") label Some("Leaké") descriptive None file None Unknown "#,
            r#"Some(Location { script_id: 9, line: 0, column: 0 }) 2 edges, "#,
            r#"stack Some("Some(\"leak\") Some(\"b.js\"):3:4 false false")"#
        ),
        r#"13 future 8/true Other class None label Some("") descriptive None file None Unknown None 0 edges, stack None"#,
        concat!(
            r#"15 concatenated string 32/true String class None label Some("a😀�b\n") descriptive None "#,
            r#"file None Attached None 0 edges, stack None"#
        ),
    ];
    for (text, expected) in texts.iter().zip(expected) {
        assert_eq!(text, expected);
    }
    let edges: Vec<String> = graph.nodes().flat_map(|it| graph.edges(it)).map(|it| edge_text(&graph, &it)).collect();
    let expected = [
        "Element[1] -> 1",
        "Shortcut.window -> 4",
        "Weak.leak -> 5",
        "Hidden[3] -> 7",
        "Internal.shared -> 2",
        "Context.x -> 5",
        "Internal.script_or_debug_info -> 3",
        "Property.x -> 5",
        "WeakMapTable.3 / part of key (Leak @11) -> value (A @13) pair in WeakMap (table @11) -> 7",
        "Element[0] -> 4",
    ];
    assert_eq!(edges, expected);
    assert_eq!(graph.about().moments.len(), 2);
    assert_eq!(graph.about().moments[1].last_id, 15);
    assert_eq!(graph.find(NodeId(11)), Some(NodeIndex(5)));
}

#[test]
fn it_is_written_as_it_was() {
    let graph = read(WHOLE.as_bytes()).unwrap();
    let written = write(&graph, Vec::new()).unwrap();
    assert_same(&graph, &read(written.as_slice()).unwrap());
    let json: serde_json::Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(json["snapshot"]["node_count"], 8);
    assert_eq!(json["trace_tree"].to_string(), "[1,0,0,0,[2,1,5,500,[3,2,1,100,[]]]]");
}

#[test]
fn what_is_written_can_be_read() {
    let mut builder = GraphBuilder::new();
    builder.about.origin = Origin::V8;
    let file = builder.intern("a.js").unwrap();
    let frame = builder.add_frame(crate::random::frame(1, None, file)).unwrap();
    // More types than a byte can number, and a script with the highest number that is read.
    for id in 1..400 {
        let type_name = builder.intern(&format!("type {id}")).unwrap();
        let stack = Some(AllocationStack::At(frame));
        builder.add_node(NodeData { stack, ..NodeData::new(NodeId(id), type_name, Some(1)) }).unwrap();
    }
    builder.set_location(NodeIndex(0), Location { script_id: u32::MAX, line: 1, column: 2 }).unwrap();
    let graph = builder.finish().unwrap();
    let again = read(write(&graph, Vec::new()).unwrap().as_slice()).unwrap();
    let type_of = |node| again.text(again.type_name(NodeIndex(node)));
    assert_eq!((again.node_count(), type_of(0), type_of(239), type_of(240)), (399, "type 1", "type 240", "hidden"));
    assert_eq!(again.location(NodeIndex(0)).map(|it| it.script_id), Some(u32::MAX));
    assert_eq!(again.scripts().len(), 1);
}

#[test]
fn the_root_may_be_any_node() {
    let file = WHOLE.replace("\"node_count\"", "\"root_index\":14,\"node_count\"");
    let graph = read(file.as_bytes()).unwrap();
    assert_eq!(graph.root(), NodeIndex(2));
    assert_same(&graph, &read(write(&graph, Vec::new()).unwrap().as_slice()).unwrap());
    let file = WHOLE.replace("\"node_count\"", "\"root_index\":15,\"node_count\"");
    assert!(reason(&file).contains("the root: no node begins at 15 of `nodes`"), "{}", reason(&file));
}

#[test]
fn versions_differ_in_their_fields() {
    let old = r#"{"snapshot":{"meta":{"node_fields":["id","type","name","edge_count","self_size"],"node_types":
["number",["native","object"],"string","number","number"],"edge_fields":["to_node","type","name_or_index"],"edge_types":
["node",["property","new"],"string_or_number"]}},"nodes":[4,0,0,2,7,6,1,1,0,8],"edges":[5,1,1,0,0,2],
"strings":["Text","A","x"]}"#;
    let graph = read(old.as_bytes()).unwrap();
    let expected = r#"4 native 7/true DomNode class None label Some("Text") descriptive Some("Text") file None Unknown None 2 edges, stack None"#;
    assert_eq!(text(&graph, 0), expected);
    assert_eq!(graph.coarse_type(NodeIndex(1)), CoarseType::Object);
    assert_eq!(graph.detachedness(NodeIndex(0)), Detachedness::Unknown);
    let edges: Vec<String> = graph.edges(NodeIndex(0)).map(|it| edge_text(&graph, &it)).collect();
    assert_eq!(edges, ["Plain.A -> 1", "Property.x -> 0"]);
}

#[test]
fn damage_is_found_where_it_is() {
    let cases = [
        ("\"self_size\"", "\"size\"", "`node_fields` has no `self_size`"),
        ("\"to_node\"", "\"to\"", "`edge_fields` has no `to_node`"),
        ("[9,0,1,", "[19,0,1,", "a node has the type 19, and there are 12 types"),
        ("[9,0,1,0,4", "[9,0,1,0,5", "there are 10 edges, and the nodes have 11"),
        ("3,9,21", "3,9,22", "no node begins at 22 of `nodes`"),
        ("3,9,21", "3,9,210", "no node begins at 210 of `nodes`"),
        ("3,9,21", "3,90,21", "a name is string 90, which does not exist"),
        ("3,9,21", "7,9,21", "an edge has the type 7, and there are 7 types"),
        ("5,2,3,56", "5,2,1,56", "two nodes have the id 1"),
        ("5,2,3,56", "5,2,-3,56", "a number, which is not negative, is expected here"),
        ("5,2,3,56", "5,2,3.5,56", "a number has a fraction or an exponent"),
        ("5,2,3,56", "5,2,18446744073709551616,56", "a number has more than 64 bits"),
        ("5,2,3,56", "5,2,9007199254740992,56", "the id 9007199254740992 is not less than 2^53"),
        ("5,2,3,56,2,3,0", "5,2,3,56,2,9,0", "a node refers to stack 9, which is not in `trace_tree`"),
        ("5,2,3,56,2,3,0", "5,2,3,56,2,3,3", "a node has the detachedness 3"),
        ("[3,2,1,100", "[3,8,1,100", "a stack refers to function 8"),
        ("[3,2,1,100", "[2,2,1,100", "the id 2 of a stack is 0 or that of another"),
        ("[3,2,1,100,[]]", "[3,2,1]", "a row of `trace_tree` is cut off"),
        ("\\u00e9", "\\u00g9", "a hexadecimal digit is expected here"),
        ("\"edges\":", "\"nodes\":", "`nodes` or `edges` are there twice"),
        ("\"strings\":[", "\"Strings\":[", "there are no `strings`"),
        ("\"}\\\"]\"}", "\"}\\\"]\"]", "a bracket does not match"),
    ];
    for (before, after, expected) in cases {
        let file = WHOLE.replacen(before, after, 1);
        assert_ne!(file, WHOLE, "{before} is in the file");
        assert!(reason(&file).ends_with(expected), "{after}: {}", reason(&file));
    }
    let at = WHOLE.find("[9,0,1,").unwrap() as u64;
    let Err(ReadError::Malformed { offset, .. }) = read(WHOLE.replace("[9,0,1,", "[x,0,1,").as_bytes()) else {
        panic!("it is damaged")
    };
    assert_eq!(offset, at + 1);
    for end in 0..WHOLE.len() {
        assert!(read(&WHOLE.as_bytes()[..end]).is_err(), "cut at {end}");
    }
}

/// Returns files with a few of their bytes, or of their words, changed.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let words =
        ["{", "}", "[", "]", ",", ":", "\"", "-1", "0", "1", "18446744073709551615", "1e9", "7", "\\ud800", "[["];
    let change = (0..WHOLE.len(), 0_usize..6, prop::sample::select(words.to_vec()));
    prop::collection::vec(change, 0..4).prop_map(|changes| {
        let mut file = WHOLE.as_bytes().to_vec();
        for (at, length, word) in changes {
            let at = at.min(file.len());
            let end = (at + length).min(file.len());
            file.splice(at..end, word.bytes());
        }
        file
    })
}

proptest! {
    #[test]
    fn damaged_files_are_no_danger(file in damaged()) {
        fuzzing::heapsnapshot(&file);
    }

    #[test]
    fn other_numbers_are_no_danger(numbers in prop::collection::vec((0_usize..400, 0_u64..60), 1..6)) {
        let mut at = 0;
        // The file, with some of the numbers after the header replaced.
        let (header, rest) = WHOLE.split_at(WHOLE.find("\"nodes\"").unwrap());
        let parts: Vec<String> = rest.split(',').map(|part| {
            at += 1;
            match numbers.iter().find(|it| it.0 == at) {
                Some((_, number)) if part.trim().bytes().all(|it| it.is_ascii_digit()) => number.to_string(),
                _ => part.to_owned(),
            }
        }).collect();
        fuzzing::heapsnapshot((header.to_owned() + &parts.join(",")).as_bytes());
    }

    #[test]
    fn nor_is_anything_else(data: Vec<u8>) {
        fuzzing::heapsnapshot(&data);
    }
}
